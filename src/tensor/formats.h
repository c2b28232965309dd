// The number formats of the checkpoint and of the caches, one value at a time, bit-exact (docs/spec/model.md 4.1).
//
//   BF16       upper half of an fp32; rounding to nearest, ties to even.
//   E4M3 (fn)  bias 7, largest 448, no infinity, smallest subnormal 2^-9, 0x7f/0xff = NaN.
//   E8M0       byte b = 2^(b-127), 255 = NaN.
//   E2M1       codes 0..7 = 0 .5 1 1.5 2 3 4 6, bit 3 = sign; two codes a byte, the low nibble is the even element.
//
// Infinite and NaN inputs of the encoders are outside the contract of the quantizers (docs/spec/model.md 4.1); here
// they saturate, and NaN becomes a NaN code where the format has one, else zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace deepinfer {

struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(Bf16, Bf16) = default;
};

constexpr float to_float(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};  // keep NaN a NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

// fp32 -> bf16 -> fp32, the "bf(x)" of docs/spec/model.md 0.1.
constexpr float round_bf16(float value) { return to_float(to_bf16(value)); }

float e4m3_to_float(uint8_t code);
uint8_t float_to_e4m3(float value);  // clamps to +-448, nearest even

// 2^(b-127), exact for all b (b = 0 gives the subnormal 2^-127); b = 255 gives NaN.
constexpr float e8m0_to_float(uint8_t exponent) {
  if (exponent == 255) return std::bit_cast<float>(0x7fc00000u);
  return exponent == 0 ? std::bit_cast<float>(0x00400000u) : std::bit_cast<float>(uint32_t{exponent} << 23);
}

inline constexpr std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr float e2m1_to_float(uint8_t code) { return kE2m1Values[code & 15]; }
uint8_t float_to_e2m1(float value);  // clamps to +-6, nearest, ties to the even code; returns 0..15

constexpr uint8_t nibble(const uint8_t* packed, int64_t index) {
  return index % 2 == 0 ? packed[index / 2] & 15 : packed[index / 2] >> 4;
}

// The power-of-two ceiling p2c(v) as an E8M0 byte: 2^(e-127 + (mantissa != 0)). Requires v > 0 and finite.
constexpr uint8_t power_of_two_ceiling(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>((bits >> 23 & 255u) + ((bits & 0x7fffffu) != 0 ? 1 : 0));
}

}  // namespace deepinfer
