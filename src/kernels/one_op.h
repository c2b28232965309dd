// One operation at a time over the threads of a pool, for those who run no layers: verification, tests, benchmarks.
#pragma once

#include <span>

#include "kernels/ops.h"

namespace deepinfer {

// All products of a list in one region; outputs must not overlap.
void run_linear_list(const Ops& ops, KernelContext& ctx, std::span<const LinearTask> tasks);
inline void run_linear(const Ops& ops, KernelContext& ctx, const MatrixView& weights, const ActivationRows& x,
                       const OutputRows& y) {
  const LinearTask task = {weights, x, y};
  run_linear_list(ops, ctx, {&task, 1});
}

// All tokens and heads.
void run_attention(const Ops& ops, KernelContext& ctx, const AttentionArgs& args);

}  // namespace deepinfer
