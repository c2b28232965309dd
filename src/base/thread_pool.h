// The compute threads of one model: a fork-join pool that costs about a microsecond a region.
//
// Work is cut into contiguous ranges by index. Threads claim ranges one by one, so the caller never waits for a worker
// that the system has not scheduled: it runs those ranges itself. Which thread runs a range never changes a result.
// Workers spin for a bounded time and then sleep on a futex, so that a pool without work leaves the machine to others.
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
  // Regions so far that more than the caller could work on: each is a wake-up and a wait. Read by the caller
  // of run().
  uint64_t num_regions() const { return num_regions_; }

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

  // The region in progress and the next range to claim: | epoch 32 | ranges 16 | claimed 16 |.
  using Ticket = uint64_t;
  static constexpr uint32_t epoch_of(Ticket ticket) { return static_cast<uint32_t>(ticket >> 32); }
  static constexpr int ranges_of(Ticket ticket) { return static_cast<int>(ticket >> 16 & 0xffff); }
  static constexpr int claimed_of(Ticket ticket) { return static_cast<int>(ticket & 0xffff); }

  void run_ranges(int64_t count, int64_t grain, RangeFunction function, void* context);
  void run_claimed(Ticket ticket);
  void worker_loop();

  const int num_threads_;
  uint64_t num_regions_ = 0;
  // Of the region in progress. A worker that comes late may read them while the caller writes the next ones; its claim
  // fails then, and what it read is not used.
  std::atomic<RangeFunction> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> count_{0};
  alignas(64) std::atomic<Ticket> ticket_{0};   // release store publishes a region, a successful claim owns a range
  alignas(64) std::atomic<uint32_t> epoch_{0};  // what sleeping workers wait on
  alignas(64) std::atomic<int> done_{0};        // release increments pair with the caller's acquire load
  std::atomic<bool> stopping_{false};           // stored before epoch_ is raised, read after it is seen
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
