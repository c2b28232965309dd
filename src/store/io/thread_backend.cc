// Queues on plain pread and pwrite by a few threads of their own, for machines where io_uring is refused.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/checked_math.h"
#include "store/io/posix_files.h"

namespace deepinfer::store {
namespace {

// What threads and queue share; outlives a queue whose requests hang. Thread-safe.
struct ThreadQueueState {
  explicit ThreadQueueState(AlignedBuffer buffer) : memory(std::move(buffer)) {}
  AlignedBuffer memory;
  std::mutex mu;
  std::condition_variable work, finished;
  std::deque<IoRequest> waiting;  // guarded by mu
  std::deque<IoCompletion> done;  // guarded by mu
  bool stopping = false;          // guarded by mu
};

IoCompletion execute(const IoRequest& request) {
  const int fd = static_cast<PosixFile*>(request.file)->fd();
  if (request.op == IoRequest::Op::kSync) return {request.tag, ::fdatasync(fd) == 0 ? 0 : errno, 0};
  uint64_t moved = 0;
  while (moved < request.buffer.size()) {
    std::byte* data = request.buffer.data() + moved;
    const size_t left = request.buffer.size() - moved;
    const auto offset = static_cast<off_t>(request.offset + moved);
    const ssize_t n = request.op == IoRequest::Op::kRead ? ::pread(fd, data, left, offset)
                                                         : ::pwrite(fd, data, left, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {request.tag, errno, moved};
    if (n == 0) break;
    moved += static_cast<uint64_t>(n);
  }
  return {request.tag, 0, moved};
}

void worker(const std::shared_ptr<ThreadQueueState>& state) {
  std::unique_lock lock(state->mu);
  while (true) {
    state->work.wait(lock, [&] { return state->stopping || !state->waiting.empty(); });
    if (state->waiting.empty()) return;
    const IoRequest request = state->waiting.front();
    state->waiting.pop_front();
    lock.unlock();
    const IoCompletion completion = execute(request);
    lock.lock();
    state->done.push_back(completion);
    state->finished.notify_one();
  }
}

class ThreadQueue : public IoQueue {
 public:
  ThreadQueue(size_t depth, AlignedBuffer memory)
      : depth_(depth), state_(std::make_shared<ThreadQueueState>(std::move(memory))) {
    for (size_t i = 0; i < std::min<size_t>(depth, 8); ++i) std::thread(worker, state_).detach();
  }

  // The threads hold the state, so hanging requests keep their memory; idle threads end now.
  ~ThreadQueue() override {
    const auto deadline = Clock::time_point::clock::now() + std::chrono::seconds(1);
    std::array<IoCompletion, 16> done;
    while (in_flight_ > 0 && wait(done, deadline) > 0) {
    }
    const std::lock_guard lock(state_->mu);
    state_->stopping = true;
    state_->waiting.clear();
    state_->work.notify_all();
  }

  std::span<std::byte> memory() override { return state_->memory.bytes(); }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return in_flight_; }

  void submit(std::span<const IoRequest> requests) override {
    in_flight_ += requests.size();
    const std::lock_guard lock(state_->mu);
    state_->waiting.insert(state_->waiting.end(), requests.begin(), requests.end());
    state_->work.notify_all();
  }

  size_t wait(std::span<IoCompletion> out, Clock::time_point deadline) override {
    if (in_flight_ == 0 || out.empty()) return 0;
    std::unique_lock lock(state_->mu);
    state_->finished.wait_until(lock, deadline, [&] { return !state_->done.empty(); });
    size_t count = 0;
    for (; count < out.size() && !state_->done.empty(); ++count) {
      out[count] = state_->done.front();
      state_->done.pop_front();
    }
    in_flight_ -= count;
    return count;
  }

 private:
  const size_t depth_;
  std::shared_ptr<ThreadQueueState> state_;  // shared with the threads
  size_t in_flight_ = 0;
};

class ThreadBackend : public PosixBackend {
 public:
  std::string_view name() const override { return "threads"; }
  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth, size_t memory_bytes) override {
    auto memory = AlignedBuffer::allocate(round_up(std::max(memory_bytes, size_t{4096}), size_t{2} << 20));
    if (!memory.ok()) return memory.error();
    return std::unique_ptr<IoQueue>(std::make_unique<ThreadQueue>(depth, std::move(memory).value()));
  }
};

}  // namespace

std::unique_ptr<IoBackend> make_thread_backend() {
  return std::make_unique<ThreadBackend>();
}

}  // namespace deepinfer::store
