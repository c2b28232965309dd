// How a list of products is cut into pieces of work: chunks of up to four row groups of one matrix (private to the
// kernels room). Chunks cost about the same bytes and arithmetic whatever matrix they come from.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/ops.h"

namespace deepinfer {

inline constexpr int64_t kChunkGroups = 4;

// run(task, first_group, num_groups) for every chunk of every task, over the threads of the pool.
template <typename Run>
void for_each_chunk(ThreadPool& pool, std::span<const LinearTask> tasks, Run&& run) {
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
    size_t t = 0;
    int64_t before = 0;  // chunks of the tasks before t
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      while (chunk - before >= chunks_of(tasks[t])) before += chunks_of(tasks[t++]);
      const int64_t first = (chunk - before) * kChunkGroups;
      run(tasks[t], first, std::min(kChunkGroups, tasks[t].weights.num_groups() - first));
    }
  });
}

}  // namespace deepinfer
