// The AVX2 + FMA table: everything in eight lanes.
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx2.h"

#include "kernels/ref/ref_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/elementary.h"
#include "kernels/linear_list.h"
#include "kernels/quantize.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace deepinfer::avx2 {
namespace {

#include "kernels/x86/avx2_lanes.h"

#include "kernels/lanes8/math.h"

#include "kernels/lanes8/linear.h"

#include "kernels/lanes8/attention.h"

#include "kernels/lanes8/rows.h"

#include "kernels/op_table.h"

}  // namespace

const Ops& table() {
  static const Ops ops = make_table("avx2");
  return ops;
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace deepinfer::avx2

#pragma GCC pop_options

#else

namespace deepinfer::avx2 {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::avx2

#endif
