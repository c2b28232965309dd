// The checks of golden/tiny: the model under test on prompts whose intermediate results are stored.
//
//   tiny_layers.cc  tight: attention and experts of every layer get the golden input, every part is compared
//   tiny_caches.cc  the rows that such a run leaves in the caches
//   tiny_logits.cc  loose: the model runs freely, logits and drafts are compared
//
// The aim is the variant `f32` of the data. Every tensor is optional: what a file lacks is not checked.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/model.h"
#include "verify/golden_file.h"
#include "verify/recorder.h"

namespace deepinfer::golden {

// What the checks of one prompt work with. All borrowed for the call.
struct PromptCheck {
  std::string name;  // "p064"
  const GoldenFile& file;
  std::vector<int32_t> ids;
  Model& model;
  Recorder& recorder;

  int64_t length() const { return static_cast<int64_t>(ids.size()); }
  Numerics numerics() const { return model.options().numerics; }
  void compare(std::string_view item, std::string_view measure, double error, double allowed,
               std::string note = "") const {
    recorder.compare(fmt::format("tiny/{} {}", name, item), measure, error, allowed, std::move(note));
  }
};

// Relative rms of every row compared, by item; for limits on the share of good rows over all prompts.
using RowErrors = std::map<std::string, std::vector<double>>;

// Loads the model and runs every file of tiny/prompts in order of name. Errors: the model can't be loaded. A
// damaged prompt is a failed check.
Status check_tiny(const VerifyOptions& options, Recorder& recorder);

// True when the directory holds at least one prompt.
bool has_prompts(const std::string& golden_directory);

// Name of a tensor of the one-shot prefill.
inline std::string golden_name(std::string_view item) {
  return fmt::format("one.f32.{}", item);
}

// How often a choice was the golden one.
struct ChoiceCount {
  int64_t rows = 0;
  int64_t mismatches = 0;
  int64_t ties = 0;  // differences within the margin
};

// The codes of cached rows. A stored row fits when each of its numbers is a rounding of a number near ours, kCodeMargin
// off at most; one that differs from our own rounding and fits is a tie.
enum class RowFormat { kQ8, kQ4i, kQ4k };
void count_codes(ChoiceCount& count, RowFormat format, std::span<const Bf16> values, std::span<const float> stored);

// Rows of the caches: "ck" and "ik", rings of the draft stages after the prompt, window rows [first, first +
// count).
Status compare_compressed_rows(const PromptCheck& prompt, const Sequence& sequence, RowErrors& errors);
Status compare_dspark_rings(const PromptCheck& prompt, const Sequence& sequence, RowErrors& errors);
void compare_window_rows(const PromptCheck& prompt, const Sequence& sequence, std::span<const float> expected,
                         int64_t first, int64_t count, std::vector<double>& errors);
inline bool is_cached_item(std::string_view item) {
  return item == "ck" || item == "ik" || item == "win" || item == "dspark_ring";
}

Status check_layers(PromptCheck& prompt, RowErrors& all_errors);
// `best`: errors of rows of which the best one must be next to nothing.
Status check_logits(PromptCheck& prompt, RowErrors& best);

// Limits of docs/verify.md.
inline constexpr double kWorstRow = 0.01;
inline constexpr double kMostRows = 0.001;
inline constexpr double kWorstFastRow = 0.15;  // experts in the fast mode
inline constexpr double kMostFastRows = 0.1;
inline constexpr double kFastShare = 0.3;  // of their error that the streams may take on
inline constexpr double kMostRowsShare = 0.99;
inline constexpr double kTieMargin = 1e-3;
inline constexpr float kCodeMargin = 0x1p-7f;       // of a number, and a quarter of it of the block's largest
inline constexpr double kWorstCachedRow = 0.1;      // a code of 8 bits one step off
inline constexpr double kWorstPackedRow = 1.0 / 3;  // a code of 4 bits one step off, at most from 6 to 4
inline constexpr double kCachedRowsDiffer = 0.1;
inline constexpr double kShortPromptRms = 0.01;  // one-shot logits of at most kShortPrompt positions
inline constexpr int64_t kShortPrompt = 2;
inline constexpr double kFreeRms = 0.25;
inline constexpr double kRowSizeOff = 0.2;
inline constexpr double kBestRow = 1e-4;
inline constexpr double kMissedAllowed = 0.15;
inline constexpr double kFreeFastRms = 0.35;
inline constexpr double kMissedFastAllowed = 0.25;

// What INT8 activations of the experts reach when each part gets the stored inputs.
inline double fast_share(std::string_view item, Numerics numerics) {
  if (numerics == Numerics::kExact) return 0;
  return item == "ffn_out" ? 1 : item == "h_out" || item == "main_hidden" ? kFastShare : 0;
}
inline double most_rows(std::string_view item, Numerics numerics) {
  return std::max(kMostRows, fast_share(item, numerics) * kMostFastRows);
}
inline double free_rms(Numerics numerics) {
  return numerics == Numerics::kExact ? kFreeRms : kFreeFastRms;
}
inline double missed_allowed(Numerics numerics) {
  return numerics == Numerics::kExact ? kMissedAllowed : kMissedFastAllowed;
}

// kWorstRow is for rows of at least kFullWidth values: one value that falls the other way weighs 1 / sqrt(width).
inline constexpr int64_t kFullWidth = 256;
inline double worst_row(std::string_view item, int64_t hidden, Numerics numerics) {
  if (item == "ck" || item == "ik") return kWorstPackedRow;
  if (is_cached_item(item)) return kWorstCachedRow;
  return std::max(kWorstRow, fast_share(item, numerics) * kWorstFastRow) *
         std::sqrt(static_cast<double>(kFullWidth) / static_cast<double>(std::min(hidden, kFullWidth)));
}

}  // namespace deepinfer::golden
