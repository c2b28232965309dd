#include "tensor/formats.h"

#include <cmath>

namespace deepinfer {
namespace {

constexpr float kE4m3Max = 448.0f;

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude = 0;
    if (exponent == 15 && mantissa == 7) {
      magnitude = std::bit_cast<float>(0x7fc00000u);
    } else if (exponent == 0) {
      magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    } else {
      magnitude = std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23 |
                                       static_cast<uint32_t>(mantissa) << 20);
    }
    table[code] = code & 128 ? -magnitude : magnitude;
  }
  return table;
}

constexpr std::array<float, 256> kE4m3Table = make_e4m3_table();

}  // namespace

float e4m3_to_float(uint8_t code) { return kE4m3Table[code]; }

uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  if (std::isnan(value)) return sign | 0x7f;
  const float magnitude = std::fmin(std::fabs(value), kE4m3Max);
  if (magnitude < 0x1p-6f) {
    // Subnormal codes are multiples of 2^-9; nearbyint rounds to even in the default rounding mode.
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  auto rounded = std::bit_cast<uint32_t>(magnitude);
  rounded += 0x7ffffu + (rounded >> 20 & 1u);
  return sign | static_cast<uint8_t>((rounded >> 20) - ((127 - 7) << 3));
}

uint8_t float_to_e2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float magnitude = std::fabs(value);
  // Half-way points between neighbours; at a tie the even code wins: upwards into 2, 4, 6, never into 1, 3, 5, 7.
  uint8_t code = 0;
  if (magnitude > 0.25f) code = 1;
  if (magnitude >= 0.75f) code = 2;
  if (magnitude > 1.25f) code = 3;
  if (magnitude >= 1.75f) code = 4;
  if (magnitude > 2.5f) code = 5;
  if (magnitude >= 3.5f) code = 6;
  if (magnitude > 5.0f) code = 7;
  return sign | code;
}

}  // namespace deepinfer
