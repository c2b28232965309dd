// Measures of the distance between expected and found numbers. Spans of one call have the same size
// (CHECKed).
//
// Everywhere: numbers with equal bits have distance 0, and a NaN or infinity on one side only has distance
// infinity.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/formats.h"

namespace deepinfer::golden {

inline constexpr std::string_view kMismatches = "mismatches";
inline constexpr std::string_view kAbsolute = "absolute";
inline constexpr std::string_view kOfRms = "of rms";
inline constexpr std::string_view kRelativeRms = "relative rms";
inline constexpr std::string_view kBf16Ulps = "bf16 ulps";
inline constexpr std::string_view kF32Ulps = "fp32 ulps";
inline constexpr std::string_view kMissed = "top-1 missed";

// How many elements differ; for floats in their bits, NaN being equal to NaN.
int64_t count_mismatches(std::span<const float> expected, std::span<const float> found);
template <typename T>
int64_t count_mismatches(std::span<const T> expected, std::span<const T> found) {
  CHECK(expected.size() == found.size());
  int64_t count = 0;
  for (size_t i = 0; i < expected.size(); ++i) count += expected[i] == found[i] ? 0 : 1;
  return count;
}

double worst_absolute(std::span<const float> expected, std::span<const float> found);

// Largest |found - expected| / rms(expected row).
double worst_of_rms(std::span<const float> expected, std::span<const float> found, int64_t row_length);

// Largest |found - expected| in steps of bf16 (or fp32) at the expected value. A sum that nearly cancels has
// steps far below the rounding errors of its terms, so a step counts as at least 1e-5 of the row's rms, the
// limit of the sums.
double worst_bf16_ulps(std::span<const float> expected, std::span<const float> found, int64_t row_length);
double worst_f32_ulps(std::span<const float> expected, std::span<const float> found);

// The step of bf16 at |value|.
double bf16_step(double value);

// |found| / |expected| as vectors; 1 for two zero vectors.
double relative_size(std::span<const float> expected, std::span<const float> found);

// |found - expected| / |expected| as vectors; 0 for two zero vectors.
double relative_rms(std::span<const float> expected, std::span<const float> found);
std::vector<double> row_relative_rms(std::span<const float> expected, std::span<const float> found,
                                     int64_t row_length);

// The smallest value that at least `share` of the values do not exceed; 0 for none.
double quantile(std::vector<double> values, double share);

}  // namespace deepinfer::golden
