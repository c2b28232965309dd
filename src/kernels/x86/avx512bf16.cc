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
#include <chrono>
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

#include "kernels/x86/avx512_vbmi.h"

#include "kernels/x86/avx512_linear.h"

#include "kernels/x86/avx512_attention.h"

#include "kernels/x86/avx512_table.h"

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

// The shortest of several times that twelve chains take, each a sum of products of 4,000 pairs.
template <typename Step>
double shortest_seconds(const Step& step) {
  double shortest = 1;
  for (int round = 0; round < 6; ++round) {
    __m512 sums[12];
#pragma GCC unroll 12
    for (int chain = 0; chain < 12; ++chain) {
      sums[chain] = _mm512_setzero_ps();
      asm volatile("" : "+v"(sums[chain]));  // the compiler must not see that they are one
    }
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 4000; ++i) {
#pragma GCC unroll 12
      for (int chain = 0; chain < 12; ++chain) sums[chain] = step(sums[chain]);
    }
#pragma GCC unroll 12
    for (int chain = 0; chain < 12; ++chain) asm volatile("" ::"v"(sums[chain]));
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, time.count());
  }
  return shortest;
}
double dot_seconds() {
  __m512i pair = _mm512_set1_epi32(0x3f803f80);
  asm volatile("" : "+v"(pair));  // unknown to the compiler
  return shortest_seconds([pair](__m512 sum) __attribute__((always_inline)) { return native_dot(sum, pair, pair); });
}
double multiply_add_seconds() {  // two of them are a dot product
  __m512 one = _mm512_set1_ps(1.0f);
  asm volatile("" : "+v"(one));
  return shortest_seconds([one](__m512 sum) __attribute__((always_inline)) {
    return _mm512_fmadd_ps(one, one, _mm512_fmadd_ps(one, one, sum));
  });
}

}  // namespace

const Ops& table() {
  static const Ops ops = make_table("avx512bf16", avx512::table());
  return ops;
}

bool is_fast() {
  static const bool fast = dot_seconds() < 1.25 * multiply_add_seconds();
  return fast;
}

bool supported() {
  static const bool is_supported = avx512vnni::supported() && __builtin_cpu_supports("avx512bf16") && dot_adds_in_order();
  return is_supported;
}

}  // namespace deepinfer::avx512bf16

#pragma GCC pop_options

#else

namespace deepinfer::avx512bf16 {
const Ops& table() { return ref::table(); }
bool is_fast() { return false; }
bool supported() { return false; }
}  // namespace deepinfer::avx512bf16

#endif
