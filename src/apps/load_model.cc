#include "apps/load_model.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "apps/command.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"

namespace deepinfer {
namespace {

// "loading [#######-------------]  35 %  0.41 of 1.17 GB, 2.10 GB/s, 0.4 s left", over itself.
class ProgressBar {
 public:
  ProgressBar() : shown_(isatty(STDERR_FILENO) == 1), start_(system_clock().now()), last_(start_) {}
  ~ProgressBar() {
    if (drawn_) print_note("\r\x1b[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done_bytes, uint64_t total_bytes) {
    constexpr std::chrono::milliseconds kRedraw{100};
    const auto now = system_clock().now();
    if (!shown_ || now - last_ < kRedraw) return;
    last_ = now;
    drawn_ = true;
    constexpr size_t kWidth = 30;
    const double share =
        static_cast<double>(done_bytes) / static_cast<double>(std::max<uint64_t>(total_bytes, 1));
    const double rate = static_cast<double>(done_bytes) / std::chrono::duration<double>(now - start_).count();
    const double seconds_left = static_cast<double>(total_bytes - done_bytes) / std::max(rate, 1.0);
    print_note("\rloading [{:-<{}}] {:3.0f} %  {:.2f} of {:.2f} GB, {:.2f} GB/s, {:.1f} s left\x1b[K",
               std::string(static_cast<size_t>(share * kWidth), '#'), kWidth, share * 100, done_bytes / 1e9,
               total_bytes / 1e9, rate / 1e9, seconds_left);
  }

 private:
  const bool shown_;
  const Clock::time_point start_;
  Clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace

Result<Tokenizer> load_tokenizer(const std::string& model_directory) {
  return Tokenizer::load(model_directory + "/tokenizer.json");
}

Result<std::unique_ptr<Model>> load_model(const std::string& model_directory, const Tokenizer& tokenizer,
                                          ModelOptions options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model_directory));
  const ModelConfig& config = checkpoint.config();
  if (options.num_threads == 0)
    options.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.max_context_tokens = std::min(options.max_context_tokens, config.max_position_embeddings);
  ProgressBar bar;
  return Model::load(
      checkpoint, engram_token_map(tokenizer, config.vocab_size), options,
      [&bar](uint64_t done_bytes, uint64_t total_bytes) { bar.update(done_bytes, total_bytes); });
}

}  // namespace deepinfer
