// The compute threads of one model: a fork-join pool that costs about a microsecond a region.
//
// Workers spin for a bounded time on a shared epoch and then sleep on a futex, so that a pool without work leaves the
// machine to others. Work is cut into contiguous ranges by index; which thread runs a range never changes a result.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace deepinfer {

// run() is owned by one caller at a time (the executor thread); nesting is not allowed.
class ThreadPool {
 public:
  enum class Pinning { kNone, kOneCorePerThread };

  // num_threads counts the caller: 1 means no worker at all. Requires num_threads >= 1.
  explicit ThreadPool(int num_threads, Pinning pinning = Pinning::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // body(begin, end) over [0, count) in at most num_threads ranges of at least `grain` items; returns when all ended.
  // The body must not throw.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_ranges(
        count, grain,
        [](void* context, int64_t begin, int64_t end) { (*static_cast<Plain*>(context))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
  struct Region {
    RangeFunction function = nullptr;
    void* context = nullptr;
    int64_t count = 0;
    int num_ranges = 0;
  };

  void run_ranges(int64_t count, int64_t grain, RangeFunction function, void* context);
  void worker_loop(int worker_index);
  static void run_range(const Region& region, int range);

  const int num_threads_;
  Region region_;  // written by the caller before epoch_ is raised, read by workers after they saw it
  alignas(64) std::atomic<uint32_t> epoch_{0};    // release store pairs with the workers' acquire load
  alignas(64) std::atomic<uint32_t> pending_{0};  // workers' release decrement pairs with the caller's acquire load
  std::atomic<bool> stopping_{false};             // stored before epoch_ is raised, read after it is seen
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
