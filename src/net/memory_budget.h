// How much memory requests may hold together. Private to the room.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace deepinfer {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit) : limit_(limit) {}

  size_t used() const { return used_; }
  size_t limit() const { return limit_; }

 private:
  friend class MemoryShare;
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// What one request holds of it. For one thread.
class MemoryShare {
 public:
  static constexpr size_t kFreeBytes = 64 << 10;  // so much is nobody's concern

  explicit MemoryShare(MemoryBudget& budget) : budget_(&budget) {}
  ~MemoryShare() { release(); }
  MemoryShare(MemoryShare&& other) noexcept : budget_(other.budget_), held_(std::exchange(other.held_, 0)) {}
  MemoryShare& operator=(MemoryShare&& other) noexcept {
    release();
    budget_ = other.budget_;
    held_ = std::exchange(other.held_, 0);
    return *this;
  }

  // False, and nothing has changed, when `bytes` are more than what would be left for the others. So those who ask for
  // most are refused first, and there is always something left for one who asks for little.
  bool grow_to(size_t bytes) {
    if (bytes <= held_ || bytes <= kFreeBytes) return true;
    size_t used = budget_->used_;
    do {
      const size_t others = used - held_;
      if (others > budget_->limit_ || bytes > (budget_->limit_ - others) / 2) return false;
    } while (!budget_->used_.compare_exchange_weak(used, used - held_ + bytes));
    held_ = bytes;
    return true;
  }
  void release() { budget_->used_ -= std::exchange(held_, 0); }

 private:
  MemoryBudget* budget_;  // borrowed
  size_t held_ = 0;
};

}  // namespace deepinfer
