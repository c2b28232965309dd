// A list of products cut into shares of about the same time, whatever matrices they come from.
#pragma once

#include <algorithm>
#include <span>

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace deepinfer {

// Row groups of one matrix that stay together.
inline constexpr int64_t kChunkGroups = 4;
inline constexpr int64_t kChunkRows = kChunkGroups * kRowGroup;

// Nanoseconds, roughly, that a list takes one core: bytes to read or multiply-adds, whichever takes longer.
int64_t linear_cost(std::span<const LinearTask> tasks);
// How many shares work of such a cost is worth, `most` at most.
int linear_shares(int64_t cost, int most);

// Calls run(task, first row group, end) for what the share has of the products. Chunks of four groups stay together.
template <typename Run>
void for_each_linear_part(std::span<const LinearTask> tasks, const Share& share, const Run& run) {
  const int64_t cost = linear_cost(tasks), begin = share.begin(cost), end = share.end(cost);
  int64_t before = 0;  // cost of the tasks before
  for (int64_t i = 0; i < std::ssize(tasks); ++i) {
    const int64_t groups = tasks[i].weights.num_groups(), all = linear_cost(tasks.subspan(i, 1));
    const auto chunks = static_cast<int64_t>(ceil_div(groups, kChunkGroups));
    // A chunk belongs to the share in which its cost begins.
    const auto chunk_at = [&](int64_t place) {
      const int64_t each = all / chunks;
      return std::clamp<int64_t>((place - before + each - 1) / each, 0, chunks);
    };
    const int64_t first = chunk_at(begin), last = chunk_at(end);
    if (first < last) run(i, first * kChunkGroups, std::min(last * kChunkGroups, groups));
    before += all;
  }
}

// The share's part of the products, on the calling thread.
void run_linear_share(const Ops& ops, std::span<const LinearTask> tasks, const Share& share);
// Output columns of one product, in whole chunks.
void run_linear_columns(const Ops& ops, const LinearTask& task, Columns columns);

}  // namespace deepinfer
