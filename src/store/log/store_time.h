// The store's own time of day. A machine's clock may be set back; what was promised must not suffer for it.
#pragma once

#include <mutex>

#include "base/clock.h"

namespace deepinfer::store {

// Thread-safe.
class StoreTime {
 public:
  explicit StoreTime(const Clock& clock) : clock_(clock) {}  // Borrowed; outlives this.

  // Milliseconds since 1970. Never goes back: where the machine's clock does, time goes on as it passes.
  uint64_t now_ms();
  // The same, but no later than the machine's clock says: whatever may have run out is compared with it, so that nothing ends
  // too early on a clock that went back, nor on one that was ahead and was put right.
  uint64_t earliest_now_ms();

  uint64_t steps_back() const;     // by more than a second; said in the log
  uint64_t steps_forward() const;  // by more than a minute beyond the time that passed (or the machine slept)

 private:
  uint64_t wall_ms() const;
  uint64_t update(uint64_t wall);  // called with mu_ held

  const Clock& clock_;
  mutable std::mutex mu_;
  uint64_t last_ms_ = 0;              // guarded by mu_; while the clock is behind: when that began
  Clock::time_point last_steady_{};   // guarded by mu_; of last_ms_
  bool behind_ = false;               // guarded by mu_
  uint64_t steps_back_ = 0, steps_forward_ = 0;  // guarded by mu_
};

}  // namespace deepinfer::store
