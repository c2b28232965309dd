// exp, sigmoid and softplus in fp32 as fixed sequences of correctly rounded operations, so that their bits do not depend
// on a C library or an instruction set. Error below 2 ulp (kernels_test checks it against fp64).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace deepinfer {

inline constexpr float kExpLowest = -87.0f;  // below: 0
inline constexpr float kExpHighest = 88.0f;  // above: +inf
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kExpPolynomial[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                            4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

// e^x: x = n ln2 + r, |r| <= ln2 / 2, polynomial of degree 7 in r, exact scaling by 2^n. NaN stays NaN.
inline float exp_f32(float x) {
  if (x < kExpLowest) return 0.0f;
  if (x > kExpHighest) return std::bit_cast<float>(0x7f800000u);
  if (x != x) return x;
  const float n = std::nearbyint(x * kLog2e);
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = kExpPolynomial[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, kExpPolynomial[i]);
  p = std::fma(p, r * r, r) + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (exponent << 23));
}

inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// log(1 + e^x), and x itself above 20. fp64 inside: few calls per token, one rounding at the end.
inline float softplus_f32(float x) {
  if (x > 20.0f) return x;
  return static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

}  // namespace deepinfer
