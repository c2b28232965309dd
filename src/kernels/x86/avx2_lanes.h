// Eight numbers at a time: what the files of the AVX2 table share (private to the kernels room). To be included below
// `#pragma GCC target("avx2,fma")` and after all standard headers.
#pragma once

#include <immintrin.h>

#include "kernels/elementary.h"
#include "tensor/formats.h"

namespace deepinfer::avx2 {

// Eight E4M3 codes to fp32.
inline __m256 decode_e4m3(__m256i codes) {
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7f));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f));
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  const __m256 value =
      _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal, _mm256_castsi256_ps(is_subnormal));
  return _mm256_castsi256_ps(_mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(value), is_nan), sign));
}

inline __m256 load_e4m3(const void* codes) {
  return decode_e4m3(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(codes))));
}

// Eight E2M1 codes (the low four bits of each lane; bits above are ignored) to fp32.
inline __m256 decode_e2m1(__m256i codes) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign));
}

// Eight consecutive values of an FP4 row (four bytes, the low nibble first).
inline __m256 load_e2m1(const void* packed) {
  int32_t word;
  __builtin_memcpy(&word, packed, sizeof(word));
  return decode_e2m1(_mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)));
}

inline __m256 widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
inline __m256 load_bf16(const Bf16* values) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}

// The bits of bf(x), in the upper half of each lane; NaN stays NaN.
inline __m256i round_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
// bf(x) as fp32.
inline __m256 round_bf16(__m256 x) {
  return _mm256_castsi256_ps(_mm256_and_si256(round_bits(x), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline __m128i narrow(__m256 x) {
  const __m256i words = _mm256_srli_epi32(round_bits(x), 16);
  const __m256i packed = _mm256_packus_epi32(words, words);  // lanes a a b b
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
inline void store_bf16(Bf16* out, __m256 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), narrow(x)); }

// exp_f32 of eight values, the same operations in the same order.
inline __m256 exp8(__m256 x) {
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2e)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExpPolynomial[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[i]));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  const __m256 too_low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_LT_OQ);
  const __m256 too_high = _mm256_cmp_ps(x, _mm256_set1_ps(kExpHighest), _CMP_GT_OQ);
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  __m256 result = _mm256_andnot_ps(too_low, scaled);
  result = _mm256_blendv_ps(result, _mm256_set1_ps(__builtin_inff()), too_high);
  return _mm256_blendv_ps(result, x, is_nan);
}

// sigmoid_f32 of eight values.
inline __m256 sigmoid8(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  return _mm256_div_ps(one, _mm256_add_ps(one, exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)))));
}

}  // namespace deepinfer::avx2
