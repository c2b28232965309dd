// Lets so many long tasks run at a time, the others in order of arrival. Private to the room.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "base/log.h"

namespace deepinfer {

// Thread-safe.
class WorkGate {
 public:
  explicit WorkGate(int places) : free_(places) {}

  // `start` puts a task on its worker when there is a place; it calls leave() at the end of the task.
  void enter(std::function<void()> start) {
    {
      const std::lock_guard lock(mu_);
      if (free_ == 0) return waiting_.push_back(std::move(start));
      --free_;
    }
    start();
  }
  void leave() noexcept {
    while (const auto next = take_next()) {
      try {
        return next();
      } catch (const std::exception& exception) {
        log::error("http: a request is lost: {}", exception.what());  // no memory to begin it
      }
    }
  }

 private:
  // Empty, and the place is free, when nobody waits.
  std::function<void()> take_next() {
    const std::lock_guard lock(mu_);
    if (waiting_.empty()) {
      ++free_;
      return nullptr;
    }
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    return next;
  }

  std::mutex mu_;
  int free_;                                   // guarded by mu_
  std::deque<std::function<void()>> waiting_;  // guarded by mu_
};

}  // namespace deepinfer
