#include "apps/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "apps/command.h"

namespace deepinfer {

ProgressBar::ProgressBar(std::string verb)
    : verb_(std::move(verb)), shown_(isatty(STDERR_FILENO) == 1), start_(system_clock().now()), last_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) print_note("\r\x1b[K");
}

void ProgressBar::update(uint64_t done_bytes, uint64_t total_bytes) {
  constexpr std::chrono::milliseconds kRedraw{100};
  const auto now = system_clock().now();
  if (!shown_ || now - last_ < kRedraw) return;
  last_ = now;
  drawn_ = true;
  constexpr size_t kWidth = 30;
  const double share = static_cast<double>(done_bytes) / static_cast<double>(std::max<uint64_t>(total_bytes, 1));
  const double rate = static_cast<double>(done_bytes) / std::chrono::duration<double>(now - start_).count();
  const double seconds_left = static_cast<double>(total_bytes - done_bytes) / std::max(rate, 1.0);
  print_note("\r{} [{:-<{}}] {:3.0f} %  {:.2f} of {:.2f} GB, {:.2f} GB/s, {:.1f} s left\x1b[K", verb_,
             std::string(static_cast<size_t>(share * kWidth), '#'), kWidth, share * 100, done_bytes / 1e9,
             total_bytes / 1e9, rate / 1e9, seconds_left);
}

}  // namespace deepinfer
