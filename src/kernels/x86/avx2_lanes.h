// Eight fp32 lanes in a 256-bit register (private to the kernels room): what lanes8/*.h is written in. To be included inside
// the namespace of the table, below `#pragma GCC target("avx2,fma")` and after all standard headers.

using F8 = __m256;
using Mask8 = __m256;

inline F8 zero8() { return _mm256_setzero_ps(); }
inline F8 set8(float x) { return _mm256_set1_ps(x); }
inline F8 load8(const float* x) { return _mm256_loadu_ps(x); }
inline void store8(float* out, F8 x) { _mm256_storeu_ps(out, x); }
inline F8 add8(F8 a, F8 b) { return _mm256_add_ps(a, b); }
inline F8 sub8(F8 a, F8 b) { return _mm256_sub_ps(a, b); }
inline F8 mul8(F8 a, F8 b) { return _mm256_mul_ps(a, b); }
inline F8 div8(F8 a, F8 b) { return _mm256_div_ps(a, b); }
inline F8 fma8(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a, b, c); }  // a b + c
inline F8 max8(F8 a, F8 b) { return _mm256_max_ps(a, b); }             // a > b ? a : b, so b where one is NaN
inline F8 min8(F8 a, F8 b) { return _mm256_min_ps(a, b); }             // a < b ? a : b
inline F8 abs8(F8 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
inline F8 negate8(F8 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }
inline F8 round8(F8 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline Mask8 less8(F8 a, F8 b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Mask8 is_nan8(F8 x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
inline F8 select8(Mask8 mask, F8 where_set, F8 otherwise) { return _mm256_blendv_ps(otherwise, where_set, mask); }
// x 2^n by adding the whole number n to the exponent.
inline F8 raise8(F8 x, F8 n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
inline float largest_lane(F8 x) {  // of numbers
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// Lane j of vector i changes places with lane i of vector j.
inline void transpose8(F8* r) {
  F8 t[8], s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    s[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    s[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    s[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    s[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

// ---- formats -----------------------------------------------------------------------------------------------------------

// Eight E4M3 codes to fp32.
inline F8 decode_e4m3(__m256i codes) {
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

inline F8 load_e4m3(const void* codes) {
  return decode_e4m3(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(codes))));
}

// Eight E2M1 codes (the low four bits of each lane; bits above are ignored) to fp32.
inline F8 decode_e2m1(__m256i codes) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign));
}

// Eight consecutive values of an FP4 row (four bytes, the low nibble first).
inline F8 load_e2m1(const void* packed) {
  int32_t word;
  __builtin_memcpy(&word, packed, sizeof(word));
  return decode_e2m1(_mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)));
}

inline F8 widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
inline F8 load_bf16(const Bf16* values) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}

// The bits of bf(x), in the upper half of each lane; NaN stays NaN.
inline __m256i round_bits(F8 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
// bf(x) as fp32.
inline F8 round_bf16(F8 x) {
  return _mm256_castsi256_ps(_mm256_and_si256(round_bits(x), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline __m128i narrow(F8 x) {
  const __m256i words = _mm256_srli_epi32(round_bits(x), 16);
  const __m256i packed = _mm256_packus_epi32(words, words);  // lanes a a b b
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
inline void store_bf16(Bf16* out, F8 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), narrow(x)); }

// Eight bf16 numbers in exchanged pairs.
inline __m128i exchange_words(__m128i words) { return _mm_shufflehi_epi16(_mm_shufflelo_epi16(words, 0xb1), 0xb1); }
inline void exchange_pairs(const Bf16* in, Bf16* out) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), exchange_words(words));
}
inline void store_exchanged(Bf16* out, F8 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), exchange_words(narrow(x)));
}

// The values of E4M3 codes nearest to eight numbers.
inline F8 round_e4m3(F8 x) {
  const F8 sign_bit = _mm256_set1_ps(-0.0f);
  const F8 magnitude = _mm256_min_ps(_mm256_andnot_ps(sign_bit, x), _mm256_set1_ps(448.0f));
  const __m256i bits = _mm256_castps_si256(magnitude);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
  const F8 normal = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xfff00000u))));
  const F8 subnormal = mul8(round8(mul8(magnitude, set8(0x1p9f))), set8(0x1p-9f));
  const F8 value = select8(less8(magnitude, set8(0x1p-6f)), subnormal, normal);
  return select8(is_nan8(x), x, _mm256_or_ps(value, _mm256_and_ps(x, sign_bit)));
}

// Four pairs (a, b) to (a cos - b sin, a sin + b cos); angles: cos and sin in turn, sin times `direction`.
inline F8 rotate_pairs(F8 ab, F8 angles, F8 direction) {
  const F8 cosine = _mm256_moveldup_ps(angles), sine = mul8(direction, _mm256_movehdup_ps(angles));
  return _mm256_addsub_ps(mul8(ab, cosine), mul8(_mm256_permute_ps(ab, 0xb1), sine));
}

// ---- lines of packed matrices (kernels/matrix.h) as fp32 [columns][16] -----------------------------------------------------

inline __m256i load_half(const std::byte* line, int half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(line + 32 * half));
}

inline void decode_fp8_line(const std::byte* line, float (*out)[kRowGroup]) {
  const __m128i column[4] = {_mm_setr_epi8(1, -1, -1, -1, 3, -1, -1, -1, 5, -1, -1, -1, 7, -1, -1, -1),
                             _mm_setr_epi8(0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6, -1, -1, -1),
                             _mm_setr_epi8(9, -1, -1, -1, 11, -1, -1, -1, 13, -1, -1, -1, 15, -1, -1, -1),
                             _mm_setr_epi8(8, -1, -1, -1, 10, -1, -1, -1, 12, -1, -1, -1, 14, -1, -1, -1)};
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256i codes = load_half(line, half);
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
      store8(out[i] + 8 * half, decode_e4m3(_mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(column[i]))));
    }
  }
}

inline void decode_fp4_line(const std::byte* line, float (*out)[kRowGroup]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256i codes = load_half(line, half);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      store8(out[i] + 8 * half, decode_e2m1(_mm256_srli_epi32(codes, (i % 2 == 0 ? 16 : 0) + i / 2 * 4)));
    }
  }
}

inline void decode_bf16_line(const std::byte* line, float (*out)[kRowGroup]) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256i pairs = load_half(line, half);
    store8(out[0] + 8 * half, _mm256_castsi256_ps(_mm256_and_si256(pairs, upper)));
    store8(out[1] + 8 * half, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
  }
}

// ---- FP4 weights as bytes: 12 + twice their value
// ------------------------------------------------------------------------

struct Int8Weights {
  __m256i bytes[8][2];  // four columns each, then rows 0 to 7 and 8 to 15
};

inline Int8Weights decode_int8(const std::byte* lines) {  // of one block
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m256i nibble = _mm256_set1_epi8(15);
  Int8Weights weights;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2, lines += 64) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i codes = load_half(lines, half);
      weights.bytes[i][half] = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibble));
      weights.bytes[i + 1][half] =
          _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble));
    }
  }
  return weights;
}

// The whole numbers of a block, sixteen rows, as fp32. Sums of two products stay within 16 bits.
inline void multiply_int8(const Int8Weights& weights, const Int8Block& x, F8 (&sums)[2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256i acc = _mm256_set1_epi32(x.minus_12_sum);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      int32_t four;
      __builtin_memcpy(&four, x.codes + 4 * i, sizeof(four));
      const __m256i pairs = _mm256_maddubs_epi16(weights.bytes[i][half], _mm256_set1_epi32(four));
      acc = _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    sums[half] = _mm256_cvtepi32_ps(acc);
  }
}
