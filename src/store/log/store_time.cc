#include "store/log/store_time.h"

#include <algorithm>

#include "base/log.h"

namespace deepinfer::store {
namespace {

constexpr uint64_t kStepBackMs = 1000, kStepForwardMs = 60'000;

}  // namespace

uint64_t StoreTime::wall_ms() const {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall_now().time_since_epoch()).count());
}

uint64_t StoreTime::update(uint64_t wall) {
  const auto steady = clock_.now();
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(steady - last_steady_).count();
  const uint64_t expected = last_ms_ + static_cast<uint64_t>(std::max<int64_t>(0, passed));
  if (last_ms_ != 0 && wall + kStepBackMs < expected) {
    if (!behind_) {
      behind_ = true;
      ++steps_back_;
      log::warn("kv store: the machine's clock went back by {} s; the store's time goes on, nothing expires until it has caught "
                "up", (expected - wall) / 1000);
    }
    return expected;
  }
  if (last_ms_ != 0 && !behind_ && wall > expected + kStepForwardMs) {
    ++steps_forward_;
    log::warn("kv store: the machine's clock went ahead by {} s, or it slept; blocks age by that", (wall - expected) / 1000);
  }
  behind_ = false;
  last_ms_ = std::max(last_ms_, wall);
  last_steady_ = steady;
  return last_ms_;
}

uint64_t StoreTime::now_ms() {
  const std::lock_guard lock(mu_);
  return update(wall_ms());
}

uint64_t StoreTime::earliest_now_ms() {
  const std::lock_guard lock(mu_);
  const uint64_t wall = wall_ms();
  return std::min(wall, update(wall));
}

uint64_t StoreTime::steps_back() const {
  const std::lock_guard lock(mu_);
  return steps_back_;
}

uint64_t StoreTime::steps_forward() const {
  const std::lock_guard lock(mu_);
  return steps_forward_;
}

}  // namespace deepinfer::store
