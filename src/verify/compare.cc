#include "verify/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace deepinfer::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool same_number(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

double distance(float expected, float found) {
  if (same_number(expected, found)) return 0;
  if (!std::isfinite(expected) || !std::isfinite(found)) return kInfinity;
  return std::fabs(static_cast<double>(found) - static_cast<double>(expected));
}

double rms(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

// Distance in units; no distance is 0 units, whatever the unit.
double in_units(double distance, double unit) {
  return distance == 0 ? 0 : distance / unit;
}

// Largest distance(i) / unit(row, i) over all rows.
template <typename Unit>
double worst_by_row(std::span<const float> expected, std::span<const float> found, int64_t row_length,
                    Unit&& unit) {
  CHECK(expected.size() == found.size() && row_length > 0 &&
        expected.size() % static_cast<size_t>(row_length) == 0);
  double worst = 0;
  for (size_t first = 0; first < expected.size(); first += static_cast<size_t>(row_length)) {
    const double row_rms = rms(expected.subspan(first, static_cast<size_t>(row_length)));
    for (size_t i = first; i < first + static_cast<size_t>(row_length); ++i) {
      worst = std::max(worst, in_units(distance(expected[i], found[i]), unit(row_rms, expected[i])));
    }
  }
  return worst;
}

double step(double value, int fraction_bits, int lowest_exponent) {
  const int exponent = value == 0 ? lowest_exponent : std::max(std::ilogb(value), lowest_exponent);
  return std::ldexp(1.0, exponent - fraction_bits);
}

constexpr double kSumTolerance = 1e-5;

}  // namespace

int64_t count_mismatches(std::span<const float> expected, std::span<const float> found) {
  CHECK(expected.size() == found.size());
  int64_t count = 0;
  for (size_t i = 0; i < expected.size(); ++i) count += same_number(expected[i], found[i]) ? 0 : 1;
  return count;
}

double worst_absolute(std::span<const float> expected, std::span<const float> found) {
  CHECK(expected.size() == found.size());
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, distance(expected[i], found[i]));
  return worst;
}

double worst_of_rms(std::span<const float> expected, std::span<const float> found, int64_t row_length) {
  return worst_by_row(expected, found, row_length, [](double row_rms, float) { return row_rms; });
}

double bf16_step(double value) {
  return step(value, 7, -126);
}

double worst_bf16_ulps(std::span<const float> expected, std::span<const float> found, int64_t row_length) {
  return worst_by_row(expected, found, row_length, [](double row_rms, float value) {
    return std::max(std::isfinite(value) ? bf16_step(value) : 1.0, kSumTolerance * row_rms);
  });
}

double worst_f32_ulps(std::span<const float> expected, std::span<const float> found) {
  return worst_by_row(expected, found, 1,
                      [](double, float value) { return std::isfinite(value) ? step(value, 23, -126) : 1.0; });
}

double relative_size(std::span<const float> expected, std::span<const float> found) {
  CHECK(expected.size() == found.size());
  const double size = rms(expected), other = rms(found);
  return size == other ? 1 : other / size;
}

double relative_rms(std::span<const float> expected, std::span<const float> found) {
  CHECK(expected.size() == found.size());
  double squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) squares += std::pow(distance(expected[i], found[i]), 2);
  if (squares == 0) return 0;
  return std::sqrt(squares / static_cast<double>(expected.size())) / rms(expected);
}

std::vector<double> row_relative_rms(std::span<const float> expected, std::span<const float> found,
                                     int64_t row_length) {
  CHECK(expected.size() == found.size() && row_length > 0 &&
        expected.size() % static_cast<size_t>(row_length) == 0);
  std::vector<double> rows;
  const auto length = static_cast<size_t>(row_length);
  for (size_t first = 0; first < expected.size(); first += length) {
    rows.push_back(relative_rms(expected.subspan(first, length), found.subspan(first, length)));
  }
  return rows;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

}  // namespace deepinfer::golden
