// Queues on io_uring: one ring a queue, its memory registered as one fixed buffer where RLIMIT_MEMLOCK allows
// it.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/checked_math.h"
#include "store/io/posix_files.h"

namespace deepinfer::store {
namespace {

// Held while a ring is made or unmade: a new one may be mapped where another was, and a thread sanitizer knows no
// other order between their threads.
std::mutex ring_lifetimes;

class UringQueue : public IoQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> make(size_t depth, size_t memory_bytes) {
    auto memory = AlignedBuffer::allocate(round_up(std::max(memory_bytes, size_t{4096}), size_t{2} << 20));
    if (!memory.ok()) return memory.error();
    auto queue = std::make_unique<UringQueue>(depth, std::move(memory).value());
    const std::lock_guard lock(ring_lifetimes);
    const int error = ::io_uring_queue_init(static_cast<unsigned>(depth), &queue->ring_, 0);
    if (error < 0) return Error(Code::kUnavailable, "io_uring_queue_init: {}", std::strerror(-error));
    queue->open_ = true;
    const iovec whole{queue->memory_.data(), queue->memory_.size()};
    queue->registered_ = ::io_uring_register_buffers(&queue->ring_, &whole, 1) == 0;
    return std::unique_ptr<IoQueue>(std::move(queue));
  }

  UringQueue(size_t depth, AlignedBuffer memory) : depth_(depth), memory_(std::move(memory)) {}

  ~UringQueue() override {
    const auto deadline = Clock::time_point::clock::now() + std::chrono::seconds(1);
    std::array<IoCompletion, 16> done;
    while (in_flight_ > 0 && wait(done, deadline) > 0) {
    }
    if (in_flight_ > 0) {
      new AlignedBuffer(std::move(memory_));  // a device may still write there: abandoned with its ring
      return;
    }
    const std::lock_guard lock(ring_lifetimes);
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  std::span<std::byte> memory() override { return memory_.bytes(); }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return in_flight_; }

  void submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
      CHECK(sqe != nullptr);
      prepare(sqe, request);
      ::io_uring_sqe_set_data64(sqe, request.tag);
    }
    in_flight_ += requests.size();
    size_t left = requests.size();
    while (left > 0) {
      const int taken = ::io_uring_submit(&ring_);
      CHECK(taken >= 0 || taken == -EINTR || taken == -EAGAIN || taken == -EBUSY);
      left -= static_cast<size_t>(std::max(taken, 0));
    }
  }

  size_t wait(std::span<IoCompletion> out, Clock::time_point deadline) override {
    if (in_flight_ == 0 || out.empty()) return 0;
    size_t count = reap(out);
    while (count == 0) {
      const auto left = deadline - Clock::time_point::clock::now();
      if (left <= left.zero()) return 0;
      const int64_t nanoseconds = std::chrono::nanoseconds(left).count();
      __kernel_timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
      io_uring_cqe* cqe = nullptr;
      ::io_uring_wait_cqe_timeout(&ring_, &cqe, &limit);
      count = reap(out);
    }
    return count;
  }

 private:
  void prepare(io_uring_sqe* sqe, const IoRequest& request) {
    const int fd = static_cast<PosixFile*>(request.file)->fd();
    void* data = request.buffer.data();
    const auto size = static_cast<unsigned>(request.buffer.size());
    switch (request.op) {
      case IoRequest::Op::kRead:
        if (registered_)
          ::io_uring_prep_read_fixed(sqe, fd, data, size, request.offset, 0);
        else
          ::io_uring_prep_read(sqe, fd, data, size, request.offset);
        return;
      case IoRequest::Op::kWrite:
        if (registered_)
          ::io_uring_prep_write_fixed(sqe, fd, data, size, request.offset, 0);
        else
          ::io_uring_prep_write(sqe, fd, data, size, request.offset);
        return;
      case IoRequest::Op::kSync:
        ::io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        return;
    }
  }

  size_t reap(std::span<IoCompletion> out) {
    std::array<io_uring_cqe*, 64> cqes;
    const unsigned count = ::io_uring_peek_batch_cqe(
        &ring_, cqes.data(), static_cast<unsigned>(std::min(out.size(), cqes.size())));
    for (unsigned i = 0; i < count; ++i) {
      const int result = cqes[i]->res;
      out[i] = {::io_uring_cqe_get_data64(cqes[i]), result < 0 ? -result : 0,
                result < 0 ? 0 : static_cast<uint64_t>(result)};
    }
    ::io_uring_cq_advance(&ring_, count);
    in_flight_ -= count;
    return count;
  }

  const size_t depth_;
  AlignedBuffer memory_;
  io_uring ring_{};
  bool open_ = false;
  bool registered_ = false;
  size_t in_flight_ = 0;
};

class UringBackend : public PosixBackend {
 public:
  std::string_view name() const override { return "io_uring"; }
  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth, size_t memory_bytes) override {
    return UringQueue::make(depth, memory_bytes);
  }
};

}  // namespace

Result<std::unique_ptr<IoBackend>> make_uring_backend() {
  io_uring ring;
  if (const int error = ::io_uring_queue_init(4, &ring, 0); error < 0)
    return Error(Code::kUnavailable, "io_uring is refused here: {}", std::strerror(-error));
  ::io_uring_queue_exit(&ring);
  return std::unique_ptr<IoBackend>(std::make_unique<UringBackend>());
}

}  // namespace deepinfer::store
