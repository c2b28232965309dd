// The AVX-512 table for processors with VBMI and VNNI whose dot products of bf16 pairs are absent or slow: products on fp32
// multiply-adds.
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx512.h"

#include "kernels/ref/ref_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/elementary.h"
#include "kernels/linear_list.h"
#include "kernels/quantize.h"
#include "kernels/x86/avx2.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,fma")

namespace deepinfer::avx512vnni {
namespace {

constexpr bool kNativeDot = false;
__m512 native_dot(__m512, __m512i, __m512i) = delete;

#include "kernels/x86/avx512_vbmi.h"

#include "kernels/x86/avx512_linear.h"

#include "kernels/x86/avx512_attention.h"

#include "kernels/x86/avx512_table.h"

}  // namespace

const Ops& table() {
  static const Ops ops = make_table("avx512vnni", avx512::table());
  return ops;
}

bool supported() {
  return avx512::supported() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace deepinfer::avx512vnni

#pragma GCC pop_options

#else

namespace deepinfer::avx512vnni {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::avx512vnni

#endif
