#include "simulator/histogram.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::simulator {

void Histogram::add(double value, int64_t count) {
  const int bin = value <= kLeast ? 0 : static_cast<int>(std::log(value / kLeast) / std::log(kGrowth));
  bins_[static_cast<size_t>(std::clamp(bin, 0, kBins - 1))] += count;
  count_ += count;
  sum_ += value * static_cast<double>(count);
}

double Histogram::percentile(double share) const {
  int64_t before = 0;
  const double wanted = share * static_cast<double>(count_);
  for (int bin = 0; bin < kBins; ++bin) {
    before += bins_[static_cast<size_t>(bin)];
    if (before > 0 && static_cast<double>(before) >= wanted) return kLeast * std::pow(kGrowth, bin + 0.5);
  }
  return 0;
}

}  // namespace deepinfer::simulator
