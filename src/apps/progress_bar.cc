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

std::string progress_text(const Progress& progress) {
  constexpr double kEnoughSeconds = 0.5, kEnoughShare = 0.02;  // before them a speed is an accident
  const auto done = static_cast<double>(progress.done_bytes), total = static_cast<double>(progress.total_bytes);
  const double seconds = std::chrono::duration<double>(progress.passed).count();
  std::string text = fmt::format("{:.2f} of {:.2f} GB", done / 1e9, total / 1e9);
  if (seconds < kEnoughSeconds || done < kEnoughShare * total || done == 0) return text;
  return text + fmt::format(", {:.2f} GB/s, {:.1f} s left", done / seconds / 1e9, (total - done) * seconds / done);
}

void ProgressBar::update(uint64_t done_bytes, uint64_t total_bytes) {
  constexpr std::chrono::milliseconds kRedraw{100};
  const auto now = system_clock().now();
  if (!shown_ || now - last_ < kRedraw) return;
  last_ = now;
  drawn_ = true;
  constexpr size_t kWidth = 30;
  const double share = static_cast<double>(done_bytes) / static_cast<double>(std::max<uint64_t>(total_bytes, 1));
  print_note("\r{} [{:-<{}}] {:3.0f} %  {}\x1b[K", verb_, std::string(static_cast<size_t>(share * kWidth), '#'), kWidth,
             share * 100, progress_text({done_bytes, total_bytes, now - start_}));
}

}  // namespace deepinfer
