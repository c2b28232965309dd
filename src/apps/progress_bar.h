// "loading [#######-------------]  35 %  0.41 of 1.17 GB, 2.10 GB/s, 0.4 s left" on stderr, over itself, when that is a
// terminal.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace deepinfer {

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;
  Clock::duration passed{};
};
// "0.41 of 1.17 GB, 2.10 GB/s, 0.4 s left"; speed and time only once there is enough to tell them from.
std::string progress_text(const Progress& progress);

// Owned by the thread that reports progress. The destructor takes the bar away.
class ProgressBar {
 public:
  explicit ProgressBar(std::string verb);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done_bytes, uint64_t total_bytes);

 private:
  const std::string verb_;
  const bool shown_;
  const Clock::time_point start_;
  Clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace deepinfer
