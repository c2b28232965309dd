// Ctrl-C and SIGTERM as something to wait for.
#pragma once

#include <atomic>
#include <future>
#include <thread>

namespace deepinfer {

// Create it before any other thread, so that all of them leave the signals to this one.
// The first signal ends wait(), or, if nobody has begun to wait yet, the process; the second ends the process
// at once. Its functions are for one thread.
class StopSignals {
 public:
  StopSignals();

  void wait();
  // Whether the first signal came; from the first call on, somebody waits.
  bool requested();

 private:
  void watch(std::stop_token stop);

  std::atomic<bool> waiting_{false};  // its own fact: nothing else is read through it
  std::promise<void> first_;
  std::future<void> first_seen_ = first_.get_future();
  std::jthread thread_;
};

}  // namespace deepinfer
