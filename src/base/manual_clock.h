// A clock that tests and simulations turn by hand.
#pragma once

#include "base/clock.h"

namespace deepinfer {

// Thread-compatible.
class ManualClock : public Clock {
 public:
  time_point now() const override { return now_; }
  std::chrono::system_clock::time_point wall_now() const override { return wall_; }
  void advance(std::chrono::nanoseconds by) {
    now_ += by;
    step_wall(by);
  }
  // Somebody sets the machine's clock: no time passes.
  void step_wall(std::chrono::nanoseconds by) {
    wall_ += std::chrono::duration_cast<std::chrono::system_clock::duration>(by);
  }

 private:
  time_point now_{std::chrono::hours(1)};
  std::chrono::system_clock::time_point wall_{std::chrono::hours(24 * 365 * 56)};
};

}  // namespace deepinfer
