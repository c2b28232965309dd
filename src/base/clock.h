// Time as a value that is passed in, so that tests can turn it by hand.
#pragma once

#include <chrono>

namespace deepinfer {

// Thread-safe.
class Clock {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;
  virtual ~Clock() = default;
  virtual time_point now() const = 0;
  virtual std::chrono::system_clock::time_point wall_now() const = 0;
};

// The machine's own clock. Stateless; lives as long as the program.
const Clock& system_clock();

}  // namespace deepinfer
