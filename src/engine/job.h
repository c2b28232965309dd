// One answer on its way through the engine (private to the room, engine thread only).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "schedule/drafts.h"
#include "schedule/schedule.h"
#include "cache/keys.h"

namespace deepinfer {

// A request as it was submitted. Shared by its answers and their queue messages.
struct Submission {
  EngineRequest request;
  EventSink sink;
  Clock::time_point arrival;
  Engine::RequestId first_id = 0;
  PrefixKey root = {};           // of the salt
  std::vector<PrefixKey> keys;   // of the prompt's full blocks
  std::optional<uint32_t> domain;  // of the store; none: nothing of it is kept there
  mutable std::optional<ChainHasher> hasher;  // engine thread only, once submitted
  ContextMode mode = ContextMode::kStable;
  int64_t decoder_first = 0;     // first_decoder_row() of the prompt as it was submitted
  bool use_cache = true;
};

// A place in host memory that a sequence was swapped to, or has set aside for that.
struct SwapPlace {
  std::optional<int32_t> state;
  StateExtent extent = {};
  std::vector<BlockId> blocks;
};

struct Job {
  std::shared_ptr<const Submission> submission;
  Engine::RequestId id = 0;
  int32_t answer_index = 0;
  std::vector<int32_t> forks;  // indices of the answers that split off when the prompt is computed
  Place place;
  std::unique_ptr<AnswerState> answer;

  // Tokens: the prompt, then what was drawn and committed.
  std::vector<int32_t> tokens;
  std::vector<PrefixKey> keys;  // of their full blocks
  int64_t prompt = 0;
  int64_t limit = 0;            // tokens it may draw
  int64_t drawn = 0;            // drawn, in flight included

  enum class Status { kWaiting, kRunning, kEnded } status = Status::kWaiting;
  int64_t done = 0;             // rows computed, in flight included
  int64_t committed = 0;        // of them, rows whose step is committed
  int64_t in_flight = 0;        // submitted steps that refer to it
  uint64_t epoch = 0;           // raised whenever its blocks are given back
  std::vector<BlockId> blocks;
  int64_t sent_blocks = 0;      // of them, in the executor's block table
  std::optional<StateId> state;
  int64_t published = 0;        // leading blocks that have their name (or were shared)
  int64_t handed_over = 0;      // of them, to the store (or were shared)
  bool paused = false;
  int64_t bypassed = 0;
  bool failed = false;          // nothing of it is kept
  bool started = false;         // was admitted once; what the cut is stays from then on

  // Speculation.
  DraftProfile drafts_expected;
  bool wants_draft = false;  // when its next token is drawn

  // What its rows see, and what its rings hold (KeptState says the same of a kept state).
  SequenceCut cut;
  int64_t hit_tokens = 0;       // at the first admission
  bool derived = false;         // a cold run would have other bits: bounded mode, windows lost
  int64_t high = 0, step_first = 0, whole_from = 0;
  std::vector<int64_t> checkpoints;  // of the prompt, latest first: states are kept there

  // While it waits.
  std::optional<Hit> hit;
  uint64_t hit_version = 0;
  enum class AtStore { kNotAsked, kFinding, kLoading, kDone } at_store = AtStore::kNotAsked;
  Clock::time_point store_until;  // it waits no longer
  std::optional<MissReason> store_reason;  // why the store gave no more
  int64_t loaded_first = 0, loaded_end = 0;  // blocks that came from the store
  std::optional<SwapPlace> swapped;  // holds everything up to `done`
  int64_t swap_promise = 0;     // swap blocks set aside (and a state): it can be swapped at any time

  const EngineRequest& request() const { return submission->request; }
  bool use_cache() const { return submission->use_cache; }
  int64_t answers() const { return 1 + std::ssize(forks); }
  // Can't be pre-empted: neither computed again nor surely swapped.
  bool firm() const { return derived && swap_promise == 0; }
  int64_t checkpoint() const { return checkpoints.empty() ? 0 : checkpoints.back(); }
  // Rows that can be computed: the last token drawn is fed only when another may follow.
  int64_t known() const { return prompt + std::min(drawn, limit - 1); }
};

inline int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace deepinfer
