#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deepinfer {

std::vector<float> plain_frequencies(double theta, int64_t dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < dim / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    frequencies.push_back(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return frequencies;
}

std::vector<float> yarn_frequencies(double theta, int64_t dim, const RopeScaling& scaling) {
  // The channel at which a wavelength turns `rotations` times within the original context.
  const auto correction = [&](double rotations) {
    const auto context = static_cast<double>(scaling.original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const double low = std::max(std::floor(correction(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(scaling.beta_slow)), static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  auto frequencies = plain_frequencies(theta, dim);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low),
                                  0.0f, 1.0f);
    const float f = frequencies[i];
    frequencies[i] = f / static_cast<float>(scaling.factor) * ramp + f * (1.0f - ramp);
  }
  return frequencies;
}

void fill_rope_row(const std::vector<float>& frequencies, int64_t position, float* row) {
  for (const float frequency : frequencies) {
    const float angle = static_cast<float>(position) * frequency;
    *row++ = static_cast<float>(std::cos(static_cast<double>(angle)));
    *row++ = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

Result<RopeTable> RopeTable::make(const std::vector<float>& frequencies, int64_t num_positions) {
  RopeTable table;
  table.width_ = 2 * static_cast<int64_t>(frequencies.size());
  ASSIGN_OR_RETURN(table.values_, AlignedBuffer::allocate(
                                      static_cast<size_t>(num_positions * table.width_) * sizeof(float)));
  for (int64_t position = 0; position < num_positions; ++position) {
    fill_rope_row(frequencies, position, table.values_.as<float>() + position * table.width_);
  }
  return table;
}

}  // namespace deepinfer
