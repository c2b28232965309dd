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
#elif defined(__aarch64__)
  asm volatile("yield");
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
  CHECK(num_threads >= 1 && num_threads <= 0xffff);
  for (int i = 1; i < num_threads; ++i) {
    workers_.emplace_back([this] { worker_loop(); });
    if (pinning == Pinning::kOneCorePerThread) pin_to_core(workers_.back(), i);
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_ranges(int64_t count, int64_t grain, RangeFunction function, void* context) {
  if (count <= 0) return;
  const int64_t by_grain = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  const int num_ranges = static_cast<int>(std::min<int64_t>(num_threads_, by_grain));
  if (num_ranges == 1) {
    function(context, 0, count);
    return;
  }
  ++num_regions_;
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  count_.store(count, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  const Ticket ticket = Ticket{epoch} << 32 | static_cast<Ticket>(num_ranges) << 16;
  ticket_.store(ticket, std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  run_claimed(ticket);
  for (int spins = 0; true; ++spins) {
    const int done = done_.load(std::memory_order_acquire);
    if (done == num_ranges) return;
    if (spins < kSpinPauses) {
      cpu_pause();
    } else {
      done_.wait(done, std::memory_order_acquire);
    }
  }
}

// Claims and runs ranges of the ticket's region until none is left. A claim succeeds only while the region lacks that
// range, so function_, context_ and count_ are the ones that belong to it.
void ThreadPool::run_claimed(Ticket ticket) {
  const uint32_t epoch = epoch_of(ticket);
  while (epoch_of(ticket) == epoch && claimed_of(ticket) < ranges_of(ticket)) {
    const RangeFunction function = function_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const int64_t count = count_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    const int range = claimed_of(ticket), num_ranges = ranges_of(ticket);
    const int64_t begin = count * range / num_ranges, end = count * (range + 1) / num_ranges;
    if (begin < end) function(context, begin, end);
    const int done = done_.fetch_add(1, std::memory_order_release) + 1;
    if (done == num_ranges) done_.notify_one();
    ++ticket;
  }
}

void ThreadPool::worker_loop() {
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
    run_claimed(ticket_.load(std::memory_order_acquire));
  }
}

}  // namespace deepinfer
