// The AVX-512 table for processors without bf16 instructions: products on fp32 multiply-adds; single rows as in AVX2.
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx512.h"

#include "kernels/ref/ref_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/elementary.h"
#include "kernels/linear_list.h"
#include "kernels/quantize.h"
#include "kernels/x86/avx2.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")

namespace deepinfer::avx512 {
namespace {

constexpr bool kNativeDot = false;
__m512 native_dot(__m512, __m512i, __m512i) = delete;

struct Fp8Decoder {
  // bf16 of the eight subnormal codes, four times.
  alignas(64) static constexpr uint16_t kSubnormals[32] = {
      0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60,
      0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  __m512i table;
  Fp8Decoder() : table(_mm512_load_si512(kSubnormals)) {}

  // Codes in the lower half of each word to bf16.
  inline __m512i words(__m512i codes) const {
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
    const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    const __mmask32 is_subnormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
    const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
    __m512i value = _mm512_mask_permutexvar_epi16(normal, is_subnormal, codes, table);
    value = _mm512_mask_mov_epi16(value, is_nan, _mm512_set1_epi16(0x7fc0));
    return _mm512_or_si512(value, _mm512_slli_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(0x80)), 8));
  }
  using Line = __m512i;
  inline Line load(const std::byte* bytes) const { return _mm512_loadu_si512(bytes); }
  template <int kPair>
  inline __m512i pair(Line codes) const {
    const __m512i zero = _mm512_setzero_si512();
    return words(kPair == 0 ? _mm512_unpacklo_epi8(codes, zero) : _mm512_unpackhi_epi8(codes, zero));
  }
};

inline __m512i dot_bytes(__m512i acc, __m512i w, __m512i x) {  // no pair of products is beyond 2 * 24 * 127
  return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1)));
}

struct Int8Decoder {
  __m512i table, nibble;
  Int8Decoder()
      : table(
            _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0))),
        nibble(_mm512_set1_epi8(15)) {}
  inline void line(const std::byte* line, __m512i (&bytes)[2]) const {
    const __m512i codes = _mm512_loadu_si512(line);
    bytes[0] = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibble));
    bytes[1] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
  }
};

#include "kernels/x86/avx512_linear.h"

#include "kernels/x86/avx512_attention.h"

#include "kernels/x86/avx512_table.h"

}  // namespace

const Ops& table() {
  static const Ops ops = make_table("avx512", avx2::table());
  return ops;
}

bool supported() {
  return avx2::supported() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace deepinfer::avx512

#pragma GCC pop_options

#else

namespace deepinfer::avx512 {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::avx512

#endif
