// The AVX-512 table for processors with BF16, VNNI and VBMI: products on dot products of bf16 pairs.
//
// VDPBF16PS adds the product of the upper numbers of a pair, then that of the lower ones, each with one
// rounding: two multiply-adds in a row. With the odd column of a pair in the lower place that is the order
// f32-block32 (docs/numerics.md).
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx512.h"

#include "kernels/ref/ref_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementary.h"
#include "kernels/linear_list.h"
#include "kernels/quantize.h"
#include "kernels/x86/avx2.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx512bf16,fma")

namespace deepinfer::avx512bf16 {
namespace {

constexpr bool kNativeDot = true;
inline __m512 native_dot(__m512 acc, __m512i w, __m512i x) { return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x); }

// Upper and lower bytes of the bf16 numbers of the 128 E4M3 magnitudes.
struct Fp8Tables {
  alignas(64) uint8_t upper[128];
  alignas(64) uint8_t lower[128];
};
constexpr Fp8Tables make_fp8_tables() {
  Fp8Tables tables = {};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    float value = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent > 0) value = std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | static_cast<uint32_t>(mantissa) << 20);
    const uint32_t bits = code == 127 ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
    tables.upper[code] = static_cast<uint8_t>(bits >> 24);
    tables.lower[code] = static_cast<uint8_t>(bits >> 16);
  }
  return tables;
}
constexpr Fp8Tables kFp8Tables = make_fp8_tables();

struct Fp8Decoder {
  __m512i upper[2], lower[2];
  Fp8Decoder() {
    for (int half = 0; half < 2; ++half) {
      upper[half] = _mm512_load_si512(kFp8Tables.upper + 64 * half);
      lower[half] = _mm512_load_si512(kFp8Tables.lower + 64 * half);
    }
  }

  struct Line {
    __m512i low, high;  // bytes of the numbers
  };
  inline Line load(const std::byte* bytes) const {
    const __m512i codes = _mm512_loadu_si512(bytes);
    const __m512i high = _mm512_permutex2var_epi8(upper[0], codes, upper[1]);  // takes seven bits of a code
    return {_mm512_permutex2var_epi8(lower[0], codes, lower[1]),
            _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8)};  // or the sign
  }
  template <int kPair>
  inline __m512i pair(const Line& line) const {
    return kPair == 0 ? _mm512_unpacklo_epi8(line.low, line.high) : _mm512_unpackhi_epi8(line.low, line.high);
  }
};

inline __m512i dot_bytes(__m512i acc, __m512i w, __m512i x) {
  return _mm512_dpbusd_epi32(acc, w, x);
}

struct Int8Decoder {
  __m512i table;  // four times the same: the look-up takes two bits of a neighbour with it
  Int8Decoder()
      : table(_mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0))) {}
  inline void line(const std::byte* line, __m512i (&bytes)[2]) const {
    const __m512i codes = _mm512_loadu_si512(line);
    bytes[0] = _mm512_permutexvar_epi8(codes, table);
    bytes[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
  }
};

#include "kernels/x86/avx512_linear.h"

#include "kernels/x86/avx512_attention.h"

// Two products and a sum whose result tells the documented order from a fused pair and from the opposite order.
bool dot_adds_in_order() {
  const float acc = 0x1.000002p0f;
  const Bf16 w[2] = {to_bf16(0x1.01p-12f), to_bf16(0x1.03p-12f)}, x[2] = {to_bf16(0x1.7ep-12f), to_bf16(0x1.fep-13f)};
  alignas(64) float found[16];
  const auto pair = [](const Bf16* p) { return _mm512_set1_epi32(static_cast<int>(p[0].bits | uint32_t{p[1].bits} << 16)); };
  bool same = true;
  for (int step = -40; step <= 40; ++step) {  // products of many sizes beside the sum
    const float scaled = std::ldexp(acc, step / 2 - 24);
    _mm512_store_ps(found, native_dot(_mm512_set1_ps(scaled), pair(w), pair(x)));
    const float first = std::fma(to_float(w[1]), to_float(x[1]), scaled);
    same = same && found[0] == std::fma(to_float(w[0]), to_float(x[0]), first);
  }
  return same;
}

}  // namespace

const Ops& table() {
  static const Ops ops = [] {
    Ops ops = avx512::table();
    ops.name = "avx512bf16";
    ops.linear_groups = linear_groups;
    ops.attend = attend;
    ops.index_scores = index_scores;
    return ops;
  }();
  return ops;
}

bool supported() {
  static const bool is_supported = avx512::supported() && __builtin_cpu_supports("avx512vbmi") &&
                                   __builtin_cpu_supports("avx512vnni") &&
                                   __builtin_cpu_supports("avx512bf16") && dot_adds_in_order();
  return is_supported;
}

}  // namespace deepinfer::avx512bf16

#pragma GCC pop_options

#else

namespace deepinfer::avx512bf16 {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::avx512bf16

#endif
