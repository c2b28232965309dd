// How a list of products is cut into ranges of about the same bytes and arithmetic, whatever matrices they come from: in
// chunks of four row groups of one matrix (private to the kernels room).
#pragma once

#include <algorithm>
#include <span>

#include "kernels/ops.h"

namespace deepinfer {

inline constexpr int64_t kChunkGroups = 4;

// run(task, first, end) for row groups [first, end) of a task, over the threads of the pool: all that a range has of a task
// at once. `first` is a multiple of kChunkGroups.
template <typename Run>
void for_each_range(ThreadPool& pool, std::span<const LinearTask> tasks, Run&& run) {
  const auto chunks_of = [](const LinearTask& task) {
    return static_cast<int64_t>(ceil_div(task.weights.num_groups(), kChunkGroups));
  };
  int64_t num_chunks = 0, work = 0;
  for (const LinearTask& task : tasks) {
    CHECK(task.weights.kind != MatrixKind::kF32);
    num_chunks += chunks_of(task);
    work += task.weights.rows * task.weights.cols * std::max<int64_t>(1, task.x.count);
  }
  // A range should be worth a claim: about 30,000 multiply-adds, a microsecond.
  const int64_t grain = num_chunks == 0 ? 1 : std::max<int64_t>(1, 30000 * num_chunks / std::max<int64_t>(1, work));
  pool.parallel_for(num_chunks, grain, [&](int64_t begin, int64_t end) {
    int64_t before = 0;  // chunks of the tasks before
    for (const LinearTask& task : tasks) {
      const int64_t first = std::max<int64_t>(0, begin - before), last = std::min(end - before, chunks_of(task));
      if (first < last) run(task, first * kChunkGroups, std::min(last * kChunkGroups, task.weights.num_groups()));
      before += chunks_of(task);
    }
  });
}

}  // namespace deepinfer
