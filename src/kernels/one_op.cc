#include "kernels/one_op.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/linear_list.h"

namespace deepinfer {

void run_linear_list(const Ops& ops, KernelContext& ctx, std::span<const LinearTask> tasks) {
  const int64_t shares = linear_shares(linear_cost(tasks), ctx.pool->num_threads());
  ctx.pool->parallel_for(shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      run_linear_share(ops, tasks, {static_cast<int>(i), static_cast<int>(shares)});
    }
  });
}

void run_attention(const Ops& ops, KernelContext& ctx, const AttentionArgs& args) {
  // Few tokens: their heads are divided, too.
  int64_t heads = kMostAttentionHeads;
  const auto tiles = [&] { return static_cast<int64_t>(ceil_div(args.num_heads, heads)); };
  while (heads > kAttentionHeads && args.num_tokens * tiles() < ctx.pool->num_threads()) heads /= 2;
  const int64_t tasks = args.num_tokens * tiles(), threads = std::min<int64_t>(tasks, ctx.pool->num_threads());
  ctx.pool->parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t task = part; task < tasks; task += threads) {
        const int64_t first = task % tiles() * heads;
        ops.attend(args, task / tiles(), first, std::min(heads, args.num_heads - first), ctx.thread_scratch(part));
      }
    }
  });
}

}  // namespace deepinfer
