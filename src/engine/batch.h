// One step as the executor runs it, and what it answers. Plain data that the engine thread fills and the executor
// reads, or the other way round; never both at a time (step_runner.h). Buffers are reused: a step allocates nothing
// once they have grown.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "cache/prefix_cache.h"
#include "engine/engine.h"
#include "model/kv_arena.h"
#include "model/model.h"
#include "model/sequence_state.h"
#include "sampling/penalties.h"
#include "speculate/proposer.h"

namespace deepinfer {

// What the executor remembers of one answer between steps. Owned by the engine's job, which lives until no submitted
// step refers to it; touched by the executor alone.
struct AnswerState {
  uint64_t request = 0;
  SamplingParams sampling;  // with the answer's own seed
  std::optional<int32_t> top_logprobs;
  std::optional<int32_t> prompt_logprobs_top;
  std::shared_ptr<const OutputConstraint> constraint;  // of the request; null: none
  std::unique_ptr<ConstraintState> constraint_state;    // from the first draw on
  TokenCounts counts;       // of the answer, when penalties need them
  int32_t last_token = 0;   // drawn last; fed to the model in the next step
  std::vector<int32_t> stop_ids;  // nothing is drawn behind one of them
  int64_t end_position = 0;       // the answer holds no token from here on
  std::vector<int32_t> history;   // all tokens, for a proposer that wants them
  // Of the step that drew last_token. The engine thread reads it while no step refers to the answer.
  Draft draft;
  std::vector<TokenLogprobs> prompt_logprobs;
};

// Moves of state and block bytes, in the order of the list.
struct StateOp {
  enum class Kind {
    kStart,      // state `to`, empty or a copy, goes on at `position` under `cut`; `before`: the tokens before it
    kCopyState,  // state `from` to state `to`
    kCopyBlock,  // block `from` to block `to`
    kSwapOut,    // state `from` and its `blocks` to swap state `to` and `swap_blocks`
    kSwapIn,     // swap state `from` and `swap_blocks` to state `to` and `blocks`, under `cut`
  } kind = Kind::kStart;
  int32_t from = 0, to = 0;
  int64_t position = 0;
  SequenceCut cut = {};
  std::vector<int32_t> before = {};
  std::vector<BlockId> blocks = {}, swap_blocks = {};
  StateExtent extent = {};  // of a swapped state
};

struct BatchSpan {
  StateId state{};
  int64_t first_position = 0;
  int64_t first_id = 0, num_ids = 0;        // in Batch::ids
  AnswerState* feeds_last = nullptr;        // set: the one id is its last token
  int64_t first_block = 0;                  // of the block table
  int64_t first_new_block = 0, num_new_blocks = 0;  // in Batch::blocks
  // In Batch::samples. Without drafts all are drawn from the span's last row; with them the first from the
  // row of last_token and each further one from the row of the draft before it, as long as that was right.
  int64_t first_sample = 0, num_samples = 0;
  int64_t num_drafts = 0;                   // of num_ids, the last ones
  AnswerState* prompt_logprobs = nullptr;   // set: those of every row's next token are appended
  int32_t next_id = 0;                      // the prompt token behind the span, when prompt_logprobs is set; -1 none
};

struct SampleResult {
  int32_t token = 0;
  std::shared_ptr<const TokenLogprobs> logprobs;
  std::shared_ptr<const std::vector<TokenLogprobs>> prompt_logprobs;
  std::optional<Error> error;
};
struct Sample {
  AnswerState* answer = nullptr;
  StateId state{};
  int64_t position = 0;      // of the token drawn
  bool wants_draft = false;  // of the tokens behind it, when it is the last one drawn
  SampleResult result = {};
  bool drawn = false;     // there is a result
  bool accepted = false;  // and it is the draft of its row
};

struct Batch {
  std::vector<StateOp> before, after;
  std::vector<BatchSpan> spans;
  std::vector<int32_t> ids;
  std::vector<BlockId> blocks;
  std::vector<Sample> samples;

  // The executor's answer.
  std::vector<SpanFault> faults;
  std::optional<Error> failure;  // of the step as a whole
  Clock::duration execute_time{}, sample_time{}, draft_time{};
  int64_t num_drafting = 0, num_drafted = 0;  // sequences and tokens of the draft pass
  double calibration_error = 0;               // of all steps so far

  void clear();
  bool empty() const { return spans.empty() && before.empty() && after.empty(); }
};

}  // namespace deepinfer
