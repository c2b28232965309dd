// Percentiles of many numbers in little memory: bins of 2 % between 1 us and 10^7 s. Exact sums.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer::simulator {

class Histogram {
 public:
  void add(double value, int64_t count = 1);
  double percentile(double share) const;  // 0 to 1; the middle of its bin, 0 when empty
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  int64_t count() const { return count_; }

 private:
  static constexpr double kLeast = 1e-6, kGrowth = 1.02;
  static constexpr int kBins = 1520;
  std::array<int64_t, kBins> bins_{};
  int64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace deepinfer::simulator
