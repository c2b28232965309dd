// Ctrl-C and SIGTERM as something to wait for.
#pragma once

#include <atomic>
#include <future>
#include <thread>

#include "apps/command.h"

namespace deepinfer {

// Create it before any other thread, so that all of them leave the signals to this one.
// Until expect() the first signal ends the process. After it the first one ends wait(), the second the
// process. The exit code is that of an interrupted command, but for a SIGTERM until expect(), whose code the command
// chooses. Its functions are for one thread.
class StopSignals {
 public:
  explicit StopSignals(int terminated_early = kExitInterrupted);

  // From here on the caller looks for the first signal.
  void expect() { expected_ = true; }
  void wait() { first_seen_.wait(); }
  bool requested() const;

 private:
  void watch(std::stop_token stop);

  const int terminated_early_;
  std::atomic<bool> expected_{false};  // its own fact: nothing else is read through it
  std::promise<void> first_;
  std::future<void> first_seen_ = first_.get_future();
  std::jthread thread_;
};

}  // namespace deepinfer
