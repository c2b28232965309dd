// What an engine thread needs of the store without ever waiting for it: when a load pays, how long it may
// take, and a thread that does it. Source: kv-and-routing B.7.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "store/store.h"

namespace deepinfer::store {

struct LoadCost {
  double first_byte_s = 0.0002;      // measured: until the first block is there
  double bytes_per_s = 1e9;          // measured
  double prefill_tokens_per_s = 30;  // what computing the same tokens takes instead
};

// True when reading `blocks` of `block_bytes` takes less than 0.8 of computing their 128 tokens each.
inline bool load_pays(const LoadCost& cost, size_t blocks, uint64_t block_bytes) {
  if (blocks == 0) return false;
  const double load = cost.first_byte_s + static_cast<double>(blocks * block_bytes) / cost.bytes_per_s;
  return load < 0.8 * static_cast<double>(blocks) * 128 / cost.prefill_tokens_per_s;
}

// min(configured, 0.7 of computing what is missing).
inline std::chrono::nanoseconds load_limit(const LoadCost& cost, size_t blocks,
                                           std::chrono::nanoseconds configured) {
  const double recompute = 0.7 * static_cast<double>(blocks) * 128 / cost.prefill_tokens_per_s;
  return std::min(configured, std::chrono::nanoseconds(static_cast<int64_t>(recompute * 1e9)));
}

// Loads one after another on a thread of its own. Thread-safe.
class Loader {
 public:
  struct Job {
    Hit hit;  // pinned until the job is done
    size_t first = 0;
    Clock::time_point deadline;
    BlockSink sink;                        // on the loader's thread
    std::function<void(LoadResult)> done;  // on the loader's thread, exactly once
  };
  Loader(Store& store, size_t max_waiting)
      : store_(store), max_waiting_(max_waiting), thread_([this] { run(); }) {}
  // Jobs that have not begun end with kBusy.
  ~Loader() {
    {
      const std::lock_guard lock(mu_);
      stopping_ = true;
      wake_.notify_one();
    }
    thread_.join();
  }
  // False when max_waiting jobs wait; `done` is not called then.
  bool submit(Job job) {
    const std::lock_guard lock(mu_);
    if (stopping_ || jobs_.size() >= max_waiting_) return false;
    jobs_.push_back(std::move(job));
    wake_.notify_one();
    return true;
  }

 private:
  void run() {
    while (true) {
      Job job;
      bool stopping;
      {
        std::unique_lock lock(mu_);
        wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
        stopping = stopping_;
      }
      job.done(stopping ? LoadResult{0, MissReason::kBusy}
                        : store_.load(job.hit, job.first, job.deadline, job.sink));
    }
  }

  Store& store_;  // Borrowed; outlives the loader.
  const size_t max_waiting_;
  std::mutex mu_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;   // guarded by mu_
  bool stopping_ = false;  // guarded by mu_
  std::thread thread_;
};

}  // namespace deepinfer::store
