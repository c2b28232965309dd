#include "kernels/linear_list.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int64_t kShareCost = 2000;  // a share should be worth the taking: about 2 us

int64_t num_chunks(const LinearTask& task) {
  return static_cast<int64_t>(ceil_div(task.weights.num_groups(), kChunkGroups));
}

// 16 bytes of weights, or 64 multiply-adds, in a nanosecond.
int64_t chunk_cost(const LinearTask& task) {
  const int64_t bytes = kChunkGroups * task.weights.group_bytes();
  const int64_t products = kChunkRows * task.weights.cols * task.x.count;
  return std::max<int64_t>(1, std::max(bytes / 16, products / 64));
}

}  // namespace

int64_t linear_cost(std::span<const LinearTask> tasks) {
  int64_t cost = 0;
  for (const LinearTask& task : tasks) cost += num_chunks(task) * chunk_cost(task);
  return cost;
}

int linear_shares(int64_t cost, int most) {
  return static_cast<int>(std::clamp<int64_t>(cost / kShareCost, 1, most));
}

void run_linear_share(const Ops& ops, std::span<const LinearTask> tasks, const Share& share) {
  for_each_linear_part(tasks, share, [&](int64_t i, int64_t first, int64_t end) { ops.linear_groups(tasks[i], first, end); });
}

void run_linear_columns(const Ops& ops, const LinearTask& task, Columns columns) {
  ops.linear_groups(task, columns.first / kRowGroup, static_cast<int64_t>(ceil_div(columns.end, kRowGroup)));
}

}  // namespace deepinfer
