// A real back end whose reads go wrong on demand: for tests of what stands above the store. (simulated_disk.h is the one
// for the store itself.)
#pragma once

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "store/io/io_backend.h"

namespace deepinfer::store {

// One in so many reads, counted over all of them; 0: none. Set from any thread. Atomics of their own: order does not matter.
struct ReadFaults {
  std::atomic<int64_t> fail_each{0};  // EIO
  std::atomic<int64_t> flip_each{0};  // one bit of every page
  std::atomic<bool> hang{false};      // reads wait until it is false again
  std::atomic<int64_t> reads{0}, hung{0};  // seen; of these, now waiting
};

class FaultyQueue : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> queue, ReadFaults& faults) : queue_(std::move(queue)), faults_(faults) {}
  ~FaultyQueue() override { faults_.hung -= std::ssize(hung_); }

  std::span<std::byte> memory() override { return queue_->memory(); }
  size_t depth() const override { return queue_->depth(); }
  size_t in_flight() const override { return queue_->in_flight() + hung_.size(); }
  void submit(std::span<const IoRequest> requests) override {
    std::vector<IoRequest> now;
    for (const IoRequest& request : requests) {
      if (request.op == IoRequest::Op::kRead) {
        reads_[request.tag] = {request.buffer, ++faults_.reads};
        if (faults_.hang) {
          hung_.push_back(request);
          ++faults_.hung;
          continue;
        }
      }
      now.push_back(request);
    }
    queue_->submit(now);
  }
  size_t wait(std::span<IoCompletion> out, Clock::time_point deadline) override {
    const auto slice = std::chrono::milliseconds(1);
    while (true) {
      if (!hung_.empty() && !faults_.hang) {
        queue_->submit(hung_);
        faults_.hung -= std::ssize(hung_);
        hung_.clear();
      }
      const auto now = std::chrono::steady_clock::now();
      if (queue_->in_flight() > 0) {
        const auto until = hung_.empty() ? deadline : std::min(deadline, now + slice);
        if (const size_t count = queue_->wait(out, until); count > 0) return spoil(out.first(count));
      } else if (hung_.empty()) {
        return 0;
      } else if (now < deadline) {
        std::this_thread::sleep_for(slice);
      }
      if (std::chrono::steady_clock::now() >= deadline) return 0;
    }
  }

 private:
  struct Read {
    std::span<std::byte> buffer;
    int64_t number = 0;
  };
  size_t spoil(std::span<IoCompletion> done) {
    for (IoCompletion& one : done) {
      const auto read = reads_.find(one.tag);
      if (read == reads_.end()) continue;
      const auto hit = [&](int64_t each) { return each > 0 && read->second.number % each == 0; };
      if (hit(faults_.fail_each)) one = {one.tag, 5 /* EIO */, 0};
      if (hit(faults_.flip_each)) {
        for (size_t at = 777; at < read->second.buffer.size(); at += 4096) read->second.buffer[at] ^= std::byte{16};
      }
      reads_.erase(read);
    }
    return done.size();
  }

  const std::unique_ptr<IoQueue> queue_;
  ReadFaults& faults_;  // Borrowed from the test.
  std::vector<IoRequest> hung_;
  std::map<uint64_t, Read> reads_;  // in flight, by tag
};

class FaultyBackend : public IoBackend {
 public:
  FaultyBackend(std::unique_ptr<IoBackend> backend, ReadFaults& faults) : backend_(std::move(backend)), faults_(faults) {}

  std::string_view name() const override { return backend_->name(); }
  Status make_directory(const std::string& path) override { return backend_->make_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return backend_->list(path); }
  Result<std::shared_ptr<IoFile>> open(const std::string& path, OpenMode mode) override {
    return backend_->open(path, mode);
  }
  Result<uint64_t> size(IoFile& file) override { return backend_->size(file); }
  Status allocate(IoFile& file, uint64_t bytes) override { return backend_->allocate(file, bytes); }
  Status truncate(IoFile& file, uint64_t bytes) override { return backend_->truncate(file, bytes); }
  Status punch(IoFile& file, uint64_t offset, uint64_t length) override { return backend_->punch(file, offset, length); }
  Status remove(const std::string& path) override { return backend_->remove(path); }
  Status rename(const std::string& from, const std::string& to) override { return backend_->rename(from, to); }
  Status sync_directory(const std::string& path) override { return backend_->sync_directory(path); }
  Result<std::unique_ptr<IoLock>> lock(const std::string& path) override { return backend_->lock(path); }
  Result<Space> space(const std::string& path) override { return backend_->space(path); }
  Result<std::unique_ptr<IoQueue>> make_queue(size_t depth, size_t memory_bytes) override {
    ASSIGN_OR_RETURN(auto queue, backend_->make_queue(depth, memory_bytes));
    return std::unique_ptr<IoQueue>(std::make_unique<FaultyQueue>(std::move(queue), faults_));
  }

 private:
  const std::unique_ptr<IoBackend> backend_;
  ReadFaults& faults_;
};

}  // namespace deepinfer::store
