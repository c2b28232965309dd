#include "apps/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "base/log.h"

namespace deepinfer {
namespace {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

StopSignals::StopSignals(int terminated_early) : terminated_early_(terminated_early) {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
}

bool StopSignals::requested() const {
  return first_seen_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void StopSignals::watch(std::stop_token stop) {
  const sigset_t signals = stop_signals();
  const timespec step = {0, 100'000'000};  // how long the end of the program may wait for this thread
  bool seen = false;
  while (!stop.stop_requested()) {
    siginfo_t info = {};
    if (sigtimedwait(&signals, &info, &step) < 0) continue;
    // Ctrl-C comes from the kernel, which has no process id.
    log::info("got {} from process {}", info.si_signo == SIGINT ? "SIGINT" : "SIGTERM", info.si_pid);
    const bool early = !seen && !expected_;
    if (early && info.si_signo == SIGTERM) _exit(terminated_early_);
    if (early || seen) _exit(kExitInterrupted);
    seen = true;
    first_.set_value();
  }
}

}  // namespace deepinfer
