// What other threads tell the engine thread: a queue without locks, many writers, one reader.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <semaphore>
#include <utility>

#include "base/clock.h"

namespace deepinfer {

// push() is thread-safe; the rest belongs to the reader. Unbounded: what may enter is counted by the writers.
template <typename Message>
class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox() {
    drain([](Message) {});
  }

  void push(Message message) {
    Node* node = new Node{std::move(message), newest_.load(std::memory_order_relaxed)};
    // Release pairs with the acquire of drain(): the reader sees the message behind the pointer.
    while (!newest_.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
    }
    wake();
  }
  void wake() { bell_.release(); }

  // Calls `take` for every message, oldest first.
  template <typename Take>
  void drain(Take&& take) {
    while (bell_.try_acquire()) {
    }
    Node* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Node* oldest = nullptr;
    while (newest != nullptr) oldest = std::exchange(newest, std::exchange(newest->next, oldest));
    while (oldest != nullptr) {
      const std::unique_ptr<Node> node(std::exchange(oldest, oldest->next));
      take(std::move(node->message));
    }
  }

  // Until something was pushed or `deadline` passed.
  void wait() { bell_.acquire(); }
  void wait_until(Clock::time_point deadline) { (void)bell_.try_acquire_until(deadline); }

 private:
  struct Node {
    Message message;
    Node* next;
  };
  std::atomic<Node*> newest_{nullptr};
  std::counting_semaphore<> bell_{0};
};

}  // namespace deepinfer
