// Named counters and gauges of one process, to be shown on /metrics. Updates are single relaxed atomic adds.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// One number. Thread-safe; its own variable, so relaxed order suffices: readers want the value, not an ordering.
class Counter {
 public:
  void add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Owns counters by name; a reference stays valid as long as the set. Thread-safe.
class Counters {
 public:
  // The counter of that name, made at the first call.
  Counter& get(std::string_view name);

  struct Reading {
    std::string name;
    int64_t value;
  };
  std::vector<Reading> read_all() const;  // in order of creation

 private:
  struct Entry {
    std::string name;
    Counter counter;
  };
  mutable std::mutex mu_;
  std::deque<Entry> entries_;  // guarded by mu_; a deque keeps references valid
};

}  // namespace deepinfer
