// Rotary tables (docs/spec/model.md 4.2): frequencies in fp32, angles fp32(p) * f rounded to fp32, cos and sin of those.
#pragma once

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "checkpoint/config.h"

namespace deepinfer {

// f[i] = theta^(-2i / dim), i < dim / 2.
std::vector<float> plain_frequencies(double theta, int64_t dim);
// The same with YaRN: interpolated by `factor` where a wavelength exceeds the original context. No attention temperature.
std::vector<float> yarn_frequencies(double theta, int64_t dim, const RopeScaling& scaling);

// [2 * frequencies] = cos, sin, cos, sin, ... of one position.
void fill_rope_row(const std::vector<float>& frequencies, int64_t position, float* row);

// cos and sin interleaved for every position below `num_positions`. Immutable; thread-safe.
class RopeTable {
 public:
  static Result<RopeTable> make(const std::vector<float>& frequencies, int64_t num_positions);
  const float* row(int64_t position) const { return values_.as<float>() + position * width_; }

 private:
  AlignedBuffer values_;
  int64_t width_ = 0;
};

}  // namespace deepinfer
