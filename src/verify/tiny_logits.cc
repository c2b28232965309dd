// Loose checks: the model runs freely over its own results. FP8 and FP4 rounding amplify a difference of one
// unit in the last place to quantization noise within a few layers, so these limits tell an engine from a
// broken one, no more.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "sampling/sampling.h"
#include "verify/compare.h"
#include "verify/tiny_checks.h"

namespace deepinfer::golden {
namespace {

// How many rows have the same largest entry.
int64_t count_equal_top1(std::span<const float> expected, std::span<const float> found, int64_t vocab) {
  int64_t equal = 0;
  for (size_t first = 0; first < expected.size(); first += static_cast<size_t>(vocab)) {
    const auto size = static_cast<size_t>(vocab);
    equal += argmax(expected.subspan(first, size)) == argmax(found.subspan(first, size)) ? 1 : 0;
  }
  return equal;
}

void compare_top1(const PromptCheck& prompt, const std::string& item, int64_t equal, int64_t rows) {
  if (rows == 0) return;
  prompt.compare(item, kMissed, 1 - static_cast<double>(equal) / static_cast<double>(rows),
                 missed_allowed(prompt.numerics()), fmt::format("{} of {} equal", equal, rows));
}

// One wrong row among many good ones hardly moves the error of all. Noise turns a row but hardly stretches it.
void compare_row_scales(const PromptCheck& prompt, const std::string& item, std::span<const float> expected,
                        std::span<const float> found) {
  const auto vocab = static_cast<size_t>(prompt.model.config().vocab_size);
  double worst = 0;
  for (size_t first = 0; first < expected.size(); first += vocab) {
    worst = std::max(worst, std::fabs(1 - relative_size(expected.subspan(first, vocab), found.subspan(first, vocab))));
  }
  prompt.compare(item, "row size off", worst, kRowSizeOff);
}

// Rows whose largest entry is the golden one.
struct Top1Count {
  int64_t equal = 0;
  int64_t rows = 0;
};

Top1Count compare_logits(const PromptCheck& prompt, const std::string& item, std::span<const float> expected,
                         std::span<const float> found, double allowed_rms) {
  const int64_t vocab = prompt.model.config().vocab_size;
  prompt.compare(item, kRelativeRms, relative_rms(expected, found), allowed_rms);
  compare_row_scales(prompt, item, expected, found);
  const Top1Count count{count_equal_top1(expected, found, vocab), std::ssize(expected) / vocab};
  prompt.recorder.count_top1(count.equal, count.rows);
  return count;
}

// Appends the logits of ids [first, first + count), in calls as large as the model takes.
Status append_logits(const PromptCheck& prompt, Sequence& sequence, std::span<const int32_t> ids,
                     LogitsRows wanted, std::vector<float>& logits) {
  const auto most = static_cast<size_t>(prompt.model.options().max_batch_tokens);
  while (!ids.empty()) {
    const size_t count = std::min(most, ids.size());
    const bool ends = count == ids.size();
    const SequenceSpan span{&sequence, Model::length(sequence), ids.first(count),
                            wanted == LogitsRows::kLast && !ends ? LogitsRows::kNone : wanted};
    ASSIGN_OR_RETURN(const auto rows, prompt.model.forward({&span, 1}));
    logits.insert(logits.end(), rows.begin(), rows.end());
    ids = ids.subspan(count);
  }
  return Status();
}

Status check_one_shot(const PromptCheck& prompt) {
  if (!prompt.file.contains("one.f32.logits")) return Status();
  const int64_t n = prompt.length();
  ASSIGN_OR_RETURN(const auto expected,
                   prompt.file.read<float>("one.f32.logits", {n, prompt.model.config().vocab_size}));
  ASSIGN_OR_RETURN(const auto sequence, prompt.model.make_sequence());
  std::vector<float> found;
  RETURN_IF_ERROR(append_logits(prompt, *sequence, prompt.ids, LogitsRows::kAll, found));
  const Top1Count top1 = compare_logits(prompt, "one.logits", expected, found,
                                        n <= kShortPrompt && prompt.numerics() == Numerics::kExact
                                            ? kShortPromptRms
                                            : free_rms(prompt.numerics()));
  compare_top1(prompt, "one.logits", top1.equal, top1.rows);
  return Status();
}

// Prompts prefilled to S tokens, the rest one token at a time: "split.f32.S.logits". A share of few rows says
// little, so top-1 is counted over all splits of the prompt.
Status check_splits(const PromptCheck& prompt) {
  constexpr std::string_view kPrefix = "split.f32.", kSuffix = ".logits";
  const int64_t n = prompt.length(), vocab = prompt.model.config().vocab_size;
  Top1Count all;
  for (const std::string& name : prompt.file.names()) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    int64_t prefilled = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size() - kSuffix.size(), prefilled);
    if (prefilled < 1 || prefilled > n) {
      return Error(Code::kInvalidArgument, "{}: tensor '{}': expected a split at 1 to {}", prompt.file.path(),
                   name, n);
    }
    ASSIGN_OR_RETURN(const auto expected, prompt.file.read<float>(name, {n - prefilled + 1, vocab}));
    ASSIGN_OR_RETURN(const auto sequence, prompt.model.make_sequence());
    std::vector<float> found;
    const std::span<const int32_t> ids = prompt.ids;
    RETURN_IF_ERROR(append_logits(prompt, *sequence, ids.first(prefilled), LogitsRows::kLast, found));
    for (int64_t p = prefilled; p < n; ++p) {
      RETURN_IF_ERROR(append_logits(prompt, *sequence, ids.subspan(p, 1), LogitsRows::kLast, found));
    }
    const Top1Count top1 = compare_logits(prompt, fmt::format("split.{}.logits", prefilled), expected, found,
                                          free_rms(prompt.numerics()));
    all.equal += top1.equal;
    all.rows += top1.rows;
  }
  compare_top1(prompt, "split.logits", all.equal, all.rows);
  return Status();
}

// Golden drafts after each step: the token y and the drafts that follow it.
struct GoldenDrafts {
  std::vector<int32_t> ids;       // [steps][1 + block]
  std::vector<float> logits;      // [steps][block][vocab]; empty when the file has none
  std::vector<float> confidence;  // [steps][block]; likewise
};

Result<GoldenDrafts> read_drafts(const PromptCheck& prompt, int64_t steps) {
  const ModelConfig& config = prompt.model.config();
  GoldenDrafts drafts;
  if (config.num_nextn_predict_layers == 0 || !prompt.file.contains("dec.f32.draft_ids")) return drafts;
  const int64_t block = config.dspark_block_size;
  ASSIGN_OR_RETURN(drafts.ids, prompt.file.read<int32_t>("dec.f32.draft_ids", {steps, 1 + block}));
  if (prompt.file.contains("dec.f32.draft_logits")) {
    ASSIGN_OR_RETURN(drafts.logits,
                     prompt.file.read<float>("dec.f32.draft_logits", {steps, block, config.vocab_size}));
  }
  if (prompt.file.contains("dec.f32.draft_conf")) {
    ASSIGN_OR_RETURN(drafts.confidence, prompt.file.read<float>("dec.f32.draft_conf", {steps, block}));
  }
  return drafts;
}

// What the engine's draft passes gave, golden drafts being forced upon the chain.
struct FoundDrafts {
  std::vector<float> logits, confidence;
  int64_t equal = 0;  // own choices that are the golden ones
  int64_t rows = 0;
};

Status draft_step(const PromptCheck& prompt, Sequence& sequence, std::span<const int32_t> golden_ids,
                  FoundDrafts& found) {
  size_t next = 1;
  const DraftChooser force_golden = [&](size_t, int64_t, std::span<const float> logits) {
    const int32_t forced = golden_ids[next++];
    found.equal += argmax(logits) == forced ? 1 : 0;
    ++found.rows;
    return forced;
  };
  ASSIGN_OR_RETURN(const DraftOutput drafts,
                   prompt.model.draft({{{&sequence, golden_ids[0]}}}, force_golden));
  found.logits.insert(found.logits.end(), drafts.logits.begin(), drafts.logits.end());
  found.confidence.insert(found.confidence.end(), drafts.confidence.begin(), drafts.confidence.end());
  return Status();
}

// Rows of prompts so short that rounding leaves some of them alone.
void note_rows(const PromptCheck& prompt, const std::string& item, std::span<const float> expected,
               std::span<const float> found, int64_t width, RowErrors& best) {
  if (prompt.length() > kShortPrompt) return;
  const auto rows = row_relative_rms(expected, found, width);
  best[item].insert(best[item].end(), rows.begin(), rows.end());
}

// Greedy decoding with the golden tokens forced: logits of the last prompt position and of each step, drafts
// after each.
Status check_decoding(const PromptCheck& prompt, RowErrors& best) {
  if (!prompt.file.contains("dec.f32.tokens")) return Status();
  ASSIGN_OR_RETURN(const auto tokens, prompt.file.read<int32_t>("dec.f32.tokens", {-1}));
  const int64_t steps = std::ssize(tokens);
  ASSIGN_OR_RETURN(const auto expected,
                   prompt.file.read<float>("dec.f32.logits", {steps + 1, prompt.model.config().vocab_size}));
  ASSIGN_OR_RETURN(const GoldenDrafts golden, read_drafts(prompt, steps));
  ASSIGN_OR_RETURN(const auto sequence, prompt.model.make_sequence());
  std::vector<float> found;
  FoundDrafts drafts;
  RETURN_IF_ERROR(append_logits(prompt, *sequence, prompt.ids, LogitsRows::kLast, found));
  for (int64_t step = 0; step < steps; ++step) {
    RETURN_IF_ERROR(
        append_logits(prompt, *sequence, std::span(tokens).subspan(step, 1), LogitsRows::kLast, found));
    if (golden.ids.empty()) continue;
    const int64_t width = std::ssize(golden.ids) / steps;
    RETURN_IF_ERROR(
        draft_step(prompt, *sequence, std::span(golden.ids).subspan(step * width, width), drafts));
  }
  const Top1Count top1 = compare_logits(prompt, "dec.logits", expected, found, free_rms(prompt.numerics()));
  compare_top1(prompt, "dec.logits", top1.equal, top1.rows);
  compare_top1(prompt, "dec.draft_ids", drafts.equal, drafts.rows);
  if (!golden.logits.empty()) {
    compare_row_scales(prompt, "dec.draft_logits", golden.logits, drafts.logits);
    note_rows(prompt, "draft_logits", golden.logits, drafts.logits, prompt.model.config().vocab_size, best);
    prompt.compare("dec.draft_logits", kRelativeRms, relative_rms(golden.logits, drafts.logits),
                   free_rms(prompt.numerics()));
  }
  if (!golden.confidence.empty()) {
    note_rows(prompt, "draft_conf", golden.confidence, drafts.confidence, prompt.model.config().dspark_block_size,
              best);
    prompt.compare("dec.draft_conf", kRelativeRms, relative_rms(golden.confidence, drafts.confidence),
                   free_rms(prompt.numerics()));
  }
  return Status();
}

}  // namespace

Status check_logits(PromptCheck& prompt, RowErrors& best) {
  RETURN_IF_ERROR(check_one_shot(prompt));
  RETURN_IF_ERROR(check_splits(prompt));
  return check_decoding(prompt, best);
}

}  // namespace deepinfer::golden
