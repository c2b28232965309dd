#include "model/run_pieces.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace deepinfer {

Status run_pieces(int num_threads, size_t count, const std::function<Result<uint64_t>(size_t, size_t)>& job,
                  const std::function<void(uint64_t)>& on_bytes) {
  std::atomic<size_t> next{0};  // hands out pieces, orders nothing
  std::atomic<uint64_t> done{0};
  std::atomic<bool> failed{false};
  std::mutex mu;
  Status failure;  // guarded by mu until the threads have ended
  const auto work = [&](size_t thread) {
    uint64_t shown = 0;
    for (size_t piece = next++; piece < count && !failed; piece = next++) {
      const auto bytes = job(piece, thread);
      if (!bytes.ok()) {
        const std::lock_guard lock(mu);
        if (!failed.exchange(true)) failure = bytes.error();
        return;
      }
      const uint64_t sum = done += *bytes;
      if (thread == 0 && on_bytes && sum > shown) on_bytes(shown = sum);
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int thread = 1; thread < num_threads; ++thread) helpers.emplace_back(work, static_cast<size_t>(thread));
    work(0);
  }
  return failure;
}

}  // namespace deepinfer
