#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/status.h"

namespace deepinfer {
namespace {

// About 20 to 50 microseconds of `pause`: longer than the serial stretches inside a token, shorter than a time slice.
constexpr int kSpinPauses = 2000;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void pin_to_core(std::thread& thread, int core) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || !CPU_ISSET(core, &allowed)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one);  // best effort: containers may refuse
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, Pinning pinning) : num_threads_(num_threads) {
  CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this, i] { worker_loop(i); });
    if (pinning == Pinning::kOneCorePerThread) pin_to_core(workers_.back(), i);
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_range(const Region& region, int range) {
  const int64_t begin = region.count * range / region.num_ranges;
  const int64_t end = region.count * (range + 1) / region.num_ranges;
  if (begin < end) region.function(region.context, begin, end);
}

void ThreadPool::run_ranges(int64_t count, int64_t grain, RangeFunction function, void* context) {
  if (count <= 0) return;
  const int64_t by_grain = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  const int num_ranges = static_cast<int>(std::min<int64_t>(num_threads_, by_grain));
  if (num_ranges == 1) {
    function(context, 0, count);
    return;
  }
  region_ = {function, context, count, num_ranges};
  pending_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  run_range(region_, 0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpinPauses) {
      cpu_pause();
    } else if (const uint32_t left = pending_.load(std::memory_order_acquire); left != 0) {
      pending_.wait(left, std::memory_order_acquire);
    }
  }
}

void ThreadPool::worker_loop(int worker_index) {
  uint32_t seen = 0;
  while (true) {
    uint32_t now = epoch_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen && spins < kSpinPauses; ++spins) {
      cpu_pause();
      now = epoch_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = now;
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (worker_index < region_.num_ranges) run_range(region_, worker_index);
    if (pending_.fetch_sub(1, std::memory_order_release) == 1) pending_.notify_one();
  }
}

}  // namespace deepinfer
