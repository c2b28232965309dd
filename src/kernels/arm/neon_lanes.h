// Eight fp32 lanes in two NEON registers (private to the kernels room): what lanes8/*.h is written in. To be included inside
// the namespace of the table, after all standard headers.

struct F8 {
  float32x4_t low, high;
};
struct Mask8 {
  uint32x4_t low, high;
};

// f(low half, low half, ...) and the same for the upper halves.
template <typename Function, typename... Lanes>
inline F8 map8(Function&& f, const Lanes&... x) {
  return {f(x.low...), f(x.high...)};
}

inline F8 zero8() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
inline F8 set8(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline F8 load8(const float* x) { return {vld1q_f32(x), vld1q_f32(x + 4)}; }
inline void store8(float* out, F8 x) {
  vst1q_f32(out, x.low);
  vst1q_f32(out + 4, x.high);
}
inline F8 add8(F8 a, F8 b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline F8 sub8(F8 a, F8 b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
inline F8 mul8(F8 a, F8 b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
inline F8 div8(F8 a, F8 b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
inline F8 fma8(F8 a, F8 b, F8 c) { return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)}; }  // a b + c
inline Mask8 less8(F8 a, F8 b) { return {vcltq_f32(a.low, b.low), vcltq_f32(a.high, b.high)}; }
inline Mask8 is_nan8(F8 x) { return {vmvnq_u32(vceqq_f32(x.low, x.low)), vmvnq_u32(vceqq_f32(x.high, x.high))}; }
inline F8 select8(Mask8 mask, F8 where_set, F8 otherwise) {
  return {vbslq_f32(mask.low, where_set.low, otherwise.low), vbslq_f32(mask.high, where_set.high, otherwise.high)};
}
inline F8 max8(F8 a, F8 b) { return select8(less8(b, a), a, b); }  // a > b ? a : b, so b where one is NaN
inline F8 min8(F8 a, F8 b) { return select8(less8(a, b), a, b); }  // a < b ? a : b
inline F8 abs8(F8 x) { return {vabsq_f32(x.low), vabsq_f32(x.high)}; }
inline F8 negate8(F8 x) { return {vnegq_f32(x.low), vnegq_f32(x.high)}; }
inline F8 round8(F8 x) { return {vrndnq_f32(x.low), vrndnq_f32(x.high)}; }
// x 2^n by adding the whole number n to the exponent.
inline F8 raise8(F8 x, F8 n) {
  return map8([](float32x4_t value, float32x4_t exponent) {
    const int32x4_t step = vshlq_n_s32(vcvtq_s32_f32(exponent), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value), step));
  }, x, n);
}
inline float largest_lane(F8 x) { return std::max(vmaxvq_f32(x.low), vmaxvq_f32(x.high)); }  // of numbers

// Lane j of vector i changes places with lane i of vector j.
inline void transpose4(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float64x2_t t0 = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), t1 = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
  const float64x2_t t2 = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), t3 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
  a = vreinterpretq_f32_f64(vtrn1q_f64(t0, t2));
  b = vreinterpretq_f32_f64(vtrn1q_f64(t1, t3));
  c = vreinterpretq_f32_f64(vtrn2q_f64(t0, t2));
  d = vreinterpretq_f32_f64(vtrn2q_f64(t1, t3));
}
inline void transpose8(F8* r) {
  transpose4(r[0].low, r[1].low, r[2].low, r[3].low);
  transpose4(r[4].high, r[5].high, r[6].high, r[7].high);
  transpose4(r[0].high, r[1].high, r[2].high, r[3].high);
  transpose4(r[4].low, r[5].low, r[6].low, r[7].low);
  for (int i = 0; i < 4; ++i) std::swap(r[i].high, r[i + 4].low);
}

// ---- formats -----------------------------------------------------------------------------------------------------------

// Four E4M3 codes, one in each lane, to fp32: as fp16 with the same fields they are 2^-8 of their value.
inline float32x4_t decode_e4m3(uint16x4_t codes) {
  const uint16x4_t sign = vshl_n_u16(vand_u16(codes, vdup_n_u16(0x80)), 8), magnitude = vand_u16(codes, vdup_n_u16(0x7f));
  const float16x4_t half = vreinterpret_f16_u16(vorr_u16(sign, vshl_n_u16(magnitude, 7)));
  const uint32x4_t is_nan = vceqq_u32(vmovl_u16(magnitude), vdupq_n_u32(0x7f));
  return vbslq_f32(is_nan, vdupq_n_f32(__builtin_nanf("")), vmulq_n_f32(vcvt_f32_f16(half), 256.0f));
}
inline F8 load_e4m3(const void* codes) {
  const uint16x8_t wide = vmovl_u8(vld1_u8(static_cast<const uint8_t*>(codes)));
  return {decode_e4m3(vget_low_u16(wide)), decode_e4m3(vget_high_u16(wide))};
}

// bf16 of the E2M1 codes in sixteen bytes (0 .. 15).
struct Bf16Codes {
  uint16x8_t first, second;
};
inline Bf16Codes decode_e2m1(uint8x16_t codes) {
  alignas(16) static constexpr uint8_t kUpper[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
  alignas(16) static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                                     0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
  const uint8x16_t upper = vqtbl1q_u8(vld1q_u8(kUpper), codes), lower = vqtbl1q_u8(vld1q_u8(kLower), codes);
  return {vreinterpretq_u16_u8(vzip1q_u8(lower, upper)), vreinterpretq_u16_u8(vzip2q_u8(lower, upper))};
}

inline F8 widen(uint16x8_t bf16) {
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bf16), 16)),
          vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(bf16), 16))};
}

// Eight consecutive values of an FP4 row (four bytes, the low nibble first).
inline F8 load_e2m1(const void* packed) {
  uint32_t word;
  __builtin_memcpy(&word, packed, sizeof(word));
  const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(word));
  return widen(decode_e2m1(vzip1q_u8(vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8(bytes, 4))).first);
}

inline const uint16_t* words_of(const Bf16* values) { return reinterpret_cast<const uint16_t*>(values); }
inline uint16_t* words_of(Bf16* values) { return reinterpret_cast<uint16_t*>(values); }

inline F8 load_bf16(const Bf16* values) { return widen(vld1q_u16(words_of(values))); }

// The bits of bf(x), in the upper half of each lane; NaN stays NaN.
inline uint32x4_t round_bits(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  return vbslq_u32(vceqq_f32(x, x), rounded, vorrq_u32(bits, vdupq_n_u32(0x400000)));
}
// bf(x) as fp32.
inline F8 round_bf16(F8 x) {
  return map8([](float32x4_t half) {
    return vreinterpretq_f32_u32(vandq_u32(round_bits(half), vdupq_n_u32(0xffff0000u)));
  }, x);
}
inline uint16x8_t narrow(F8 x) {
  return vcombine_u16(vshrn_n_u32(round_bits(x.low), 16), vshrn_n_u32(round_bits(x.high), 16));
}
inline void store_bf16(Bf16* out, F8 x) { vst1q_u16(words_of(out), narrow(x)); }

// Eight bf16 numbers in exchanged pairs.
inline void exchange_pairs(const Bf16* in, Bf16* out) { vst1q_u16(words_of(out), vrev32q_u16(vld1q_u16(words_of(in)))); }
inline void store_exchanged(Bf16* out, F8 x) { vst1q_u16(words_of(out), vrev32q_u16(narrow(x))); }

// The values of E4M3 codes nearest to eight numbers.
inline F8 round_e4m3(F8 x) {
  const F8 magnitude = min8(abs8(x), set8(448.0f));
  const F8 normal = map8([](float32x4_t half) {
    const uint32x4_t bits = vreinterpretq_u32_f32(half), odd = vandq_u32(vshrq_n_u32(bits, 20), vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7ffff)));
    return vreinterpretq_f32_u32(vandq_u32(sum, vdupq_n_u32(0xfff00000u)));
  }, magnitude);
  const F8 subnormal = mul8(round8(mul8(magnitude, set8(0x1p9f))), set8(0x1p-9f));
  const F8 value = map8([](float32x4_t rounded, float32x4_t signed_value) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), signed_value, rounded);
  }, select8(less8(magnitude, set8(0x1p-6f)), subnormal, normal), x);
  return select8(is_nan8(x), x, value);
}

// Four pairs (a, b) to (a cos - b sin, a sin + b cos); angles: cos and sin in turn, sin times `direction`.
inline F8 rotate_pairs(F8 ab, F8 angles, F8 direction) {
  return map8([](float32x4_t pairs, float32x4_t angle, float32x4_t sign) {
    const uint32x4_t first_of_pair = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    const float32x4_t cosine = vtrn1q_f32(angle, angle), sine = vmulq_f32(sign, vtrn2q_f32(angle, angle));
    const uint32x4_t product = vreinterpretq_u32_f32(vmulq_f32(vrev64q_f32(pairs), sine));
    return vaddq_f32(vmulq_f32(pairs, cosine), vreinterpretq_f32_u32(veorq_u32(product, first_of_pair)));
  }, ab, angles, direction);
}

// ---- lines of packed matrices (kernels/matrix.h) as fp32 [columns][16] -----------------------------------------------------

// Lane = row: the lower and the upper number of each pair.
inline void store_pairs(uint32x4_t pairs, float* lower, float* upper) {
  vst1q_f32(lower, vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16)));
  vst1q_f32(upper, vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u))));
}

inline void decode_fp8_line(const std::byte* line, float (*out)[kRowGroup]) {
#pragma GCC unroll 4
  for (int rows = 0; rows < kRowGroup; rows += 4) {
    const uint8x16_t codes = vld1q_u8(reinterpret_cast<const uint8_t*>(line) + 4 * rows);
    const uint16x8_t first = vmovl_u8(vget_low_u8(codes)), second = vmovl_high_u8(codes);
    vst1q_f32(out[1] + rows, decode_e4m3(vget_low_u16(vuzp1q_u16(first, first))));
    vst1q_f32(out[0] + rows, decode_e4m3(vget_low_u16(vuzp2q_u16(first, first))));
    vst1q_f32(out[3] + rows, decode_e4m3(vget_low_u16(vuzp1q_u16(second, second))));
    vst1q_f32(out[2] + rows, decode_e4m3(vget_low_u16(vuzp2q_u16(second, second))));
  }
}

inline void decode_fp4_line(const std::byte* line, float (*out)[kRowGroup]) {
#pragma GCC unroll 4
  for (int rows = 0; rows < kRowGroup; rows += 4) {
    const uint8x16_t codes = vld1q_u8(reinterpret_cast<const uint8_t*>(line) + 4 * rows);
    const Bf16Codes low = decode_e2m1(vandq_u8(codes, vdupq_n_u8(15))), high = decode_e2m1(vshrq_n_u8(codes, 4));
    // Of each row: columns (1, 5) and (0, 4) from the low nibbles, (3, 7) and (2, 6) from the high ones.
    const uint32x4_t low0 = vreinterpretq_u32_u16(low.first), low1 = vreinterpretq_u32_u16(low.second);
    const uint32x4_t high0 = vreinterpretq_u32_u16(high.first), high1 = vreinterpretq_u32_u16(high.second);
    store_pairs(vuzp1q_u32(low0, low1), out[1] + rows, out[5] + rows);
    store_pairs(vuzp2q_u32(low0, low1), out[0] + rows, out[4] + rows);
    store_pairs(vuzp1q_u32(high0, high1), out[3] + rows, out[7] + rows);
    store_pairs(vuzp2q_u32(high0, high1), out[2] + rows, out[6] + rows);
  }
}

inline void decode_bf16_line(const std::byte* line, float (*out)[kRowGroup]) {
#pragma GCC unroll 4
  for (int rows = 0; rows < kRowGroup; rows += 4) {
    store_pairs(vld1q_u32(reinterpret_cast<const uint32_t*>(line) + rows), out[1] + rows, out[0] + rows);
  }
}

// ---- FP4 weights as bytes: twice their value
// -----------------------------------------------------------------------------

struct Int8Weights {
  int8x16_t bytes[8][4];  // four columns each, four rows each
};

inline Int8Weights decode_int8(const std::byte* lines) {  // of one block
  alignas(16) static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int8x16_t table = vld1q_s8(kTwice);
  Int8Weights weights;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2, lines += 64) {
#pragma GCC unroll 4
    for (int rows = 0; rows < 4; ++rows) {
      const uint8x16_t codes = vld1q_u8(reinterpret_cast<const uint8_t*>(lines) + 16 * rows);
      weights.bytes[i][rows] = vqtbl1q_s8(table, vandq_u8(codes, vdupq_n_u8(15)));
      weights.bytes[i + 1][rows] = vqtbl1q_s8(table, vshrq_n_u8(codes, 4));
    }
  }
  return weights;
}

// Four rows of a block: the sums of eight times four products.
inline int32x4_t sum_products(const Int8Weights& weights, int rows, const int8_t* codes) {
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);  // of two rows each, halves of a row side by side
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    int32_t four;
    __builtin_memcpy(&four, codes + 4 * i, sizeof(four));
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four)), w = weights.bytes[i][rows];
    low = vpadalq_s16(low, vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    high = vpadalq_s16(high, vmull_high_s8(w, x));
  }
  return vpaddq_s32(low, high);
}

// With the instruction for four products of bytes (the feature dotprod of Armv8.2): one for seven of the
// above.
__attribute__((target("arch=armv8.2-a+dotprod"))) inline int32x4_t sum_products_dot(const Int8Weights& weights, int rows,
                                                                      const int8_t* codes) {
  int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    int32_t four;
    __builtin_memcpy(&four, codes + 4 * i, sizeof(four));
    sum = vdotq_s32(sum, weights.bytes[i][rows], vreinterpretq_s8_s32(vdupq_n_s32(four)));
  }
  return sum;
}
inline bool has_dot_products() {
  static const bool has = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return has;
}

// The whole numbers of a block, sixteen rows, as fp32.
inline void multiply_int8(const Int8Weights& weights, const Int8Block& x, F8 (&sums)[2]) {
  const auto sum = has_dot_products() ? sum_products_dot : sum_products;
  for (int half = 0; half < 2; ++half) {
    sums[half] = {vcvtq_f32_s32(sum(weights, 2 * half, x.codes)),
                  vcvtq_f32_s32(sum(weights, 2 * half + 1, x.codes))};
  }
}
