// The AVX2 + FMA table.
#include "kernels/x86/avx2.h"

#include "kernels/ref/ref_ops.h"

namespace deepinfer::avx2 {

#if defined(__x86_64__)

const Ops& table() {
  static const Ops ops = {
      .name = "avx2",
      .linear_list = linear_list,
      .quantize_rows = quantize_rows,
      .pair_rows = pair_rows,
      .rms_norm = rms_norm,
      .rotate = rotate,
      .hc_mix = hc_mix,
      .hc_fold = hc_fold,
      .hc_unfold = hc_unfold,
      .swiglu = swiglu,
      .sum_rows = sum_rows,
      .sparse_attention = sparse_attention,
      .index_scores = index_scores,
      .engram_gate = engram_gate,
      .pool_pair = ref::pool_pair,
  };
  return ops;
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

#else

const Ops& table() { return ref::table(); }
bool supported() { return false; }

#endif

}  // namespace deepinfer::avx2
