#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {
namespace {

constexpr float kQ8Floor = 1e-4f;
constexpr float kQ4iFloor = 6.0f * 0x1p-126f;
constexpr float kQ4kFloor = 6.0f * 0x1p-9f;

float largest_magnitude(const Bf16* x, int64_t count) {
  float amax = 0;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(to_float(x[i])));
  return amax;
}

}  // namespace

uint8_t quantize_q8(const Bf16* x, uint8_t* codes) {
  const float amax = std::max(largest_magnitude(x, 32), kQ8Floor);
  const uint8_t scale = power_of_two_ceiling(amax * (1.0f / 448.0f));
  for (int i = 0; i < 32; ++i) codes[i] = float_to_e4m3(to_float(x[i]) / e8m0_to_float(scale));
  return scale;
}

uint8_t quantize_q4i(const Bf16* x, uint8_t* packed) {
  const float amax = std::max(largest_magnitude(x, 32), kQ4iFloor);
  const uint8_t scale = power_of_two_ceiling(amax * (1.0f / 6.0f));
  for (int i = 0; i < 16; ++i) {
    const uint8_t low = float_to_e2m1(to_float(x[2 * i]) / e8m0_to_float(scale));
    const uint8_t high = float_to_e2m1(to_float(x[2 * i + 1]) / e8m0_to_float(scale));
    packed[i] = static_cast<uint8_t>(low | high << 4);
  }
  return scale;
}

uint8_t quantize_q4k(const Bf16* x, uint8_t* packed) {
  const float amax = std::max(largest_magnitude(x, 16), kQ4kFloor);
  const uint8_t scale = float_to_e4m3(amax / 6.0f);  // saturates at 448; values beyond are clamped by the codes
  const float divisor = e4m3_to_float(scale);
  for (int i = 0; i < 8; ++i) {
    const uint8_t low = float_to_e2m1(to_float(x[2 * i]) / divisor);
    const uint8_t high = float_to_e2m1(to_float(x[2 * i + 1]) / divisor);
    packed[i] = static_cast<uint8_t>(low | high << 4);
  }
  return scale;
}

void pack_window_row(const Bf16* x, int64_t dim, std::byte* row) {
  auto* codes = reinterpret_cast<uint8_t*>(row);
  for (int64_t block = 0; block < dim / 32; ++block) {
    codes[dim + block] = quantize_q8(x + 32 * block, codes + 32 * block);
  }
}

void pack_compressed_row(const Bf16* x, int64_t dim, std::byte* row) {
  auto* codes = reinterpret_cast<uint8_t*>(row);
  for (int64_t block = 0; block < dim / 16; ++block) {
    codes[dim / 2 + block] = quantize_q4k(x + 16 * block, codes + 8 * block);
  }
}

void pack_index_row(const Bf16* x, int64_t dim, std::byte* codes, std::byte* scales) {
  for (int64_t block = 0; block < dim / 32; ++block) {
    scales[block] = std::byte{quantize_q4i(x + 32 * block, reinterpret_cast<uint8_t*>(codes) + 16 * block)};
  }
}

void unpack_window_row(const std::byte* row, int64_t dim, float* x) {
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < dim; ++i) x[i] = e4m3_to_float(codes[i]) * e8m0_to_float(codes[dim + i / 32]);
}

void unpack_compressed_row(const std::byte* row, int64_t dim, float* x) {
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < dim; ++i) x[i] = e2m1_to_float(nibble(codes, i)) * e4m3_to_float(codes[dim / 2 + i / 16]);
}

void unpack_index_row(const std::byte* codes, const std::byte* scales, int64_t dim, float* x) {
  const auto* packed = reinterpret_cast<const uint8_t*>(codes);
  for (int64_t i = 0; i < dim; ++i) {
    x[i] = e2m1_to_float(nibble(packed, i)) * e8m0_to_float(static_cast<uint8_t>(scales[i / 32]));
  }
}

}  // namespace deepinfer
