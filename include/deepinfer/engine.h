// The engine as a library: token ids in, token ids out. Submit a request, receive its events, cancel it, read numbers.
//
// Many requests share each step of the model (docs/scheduling.md). The tokens of a request depend on the checkpoint, the
// numeric mode, the context mode, the prompt and its parameters, and on nothing else: not on what runs beside it, on what
// ran before and is cached (docs/context-modes.md; bounded mode alone excepts hits whose windows are lost), on memory
// pressure, threads or the depth of scheduling. Knows no text, no JSON and no HTTP. examples/generate.cc uses all of it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/status.h"
#include "cache/context.h"
#include "sampling/constraint.h"
#include "sampling/penalties.h"
#include "sampling/sampling.h"

namespace deepinfer {

class ForwardObserver;
class Model;
class Proposer;
class Trace;
namespace store {
class GuardedTier;
class Store;
}

enum class FinishReason { kStop, kLength, kCancelled, kError };

// What one request asks for. Plain data.
struct EngineRequest {
  std::vector<int32_t> prompt_ids;  // at least one; ids below the model's vocab_size
  int64_t max_tokens = 0;           // at least one new token
  std::vector<int32_t> stop_ids;    // ends the answer; the stop token itself is counted, not delivered
  SamplingParams sampling;
  // Set: every token is drawn among those that it allows, each answer from a state of its own. Biases and penalties
  // come on top. Its ids are below the model's vocab_size.
  std::shared_ptr<const OutputConstraint> constraint = {};
  // Answers to this one prompt. Answer i has the request id `first id + i` and draws with sampling.seed + i,
  // so answer 0 is the one that n = 1 gives. The prompt is computed once if all of them can run at a time.
  int32_t n = 1;
  // Present: every kToken carries its log probability and those of so many likeliest tokens (0 to 20), from
  // the raw logits: before temperature, penalties, biases and filters. With a constraint they are those of the
  // distribution over the allowed ids; others are not listed.
  std::optional<int32_t> top_logprobs = {};
  // The same for every prompt token but the first, delivered as kPrompt. Runs all layers over the whole prompt.
  std::optional<int32_t> prompt_logprobs = {};
  std::string cache_salt = {};  // requests share cached prompts only when their salts are equal
  std::string tenant = {};      // nor across tenants; a domain of the KV store, with its own key, quota and time to live
  bool use_cache = true;        // false: neither reads nor leaves anything
  std::optional<ContextMode> context_mode = {};  // absent: EngineOptions::context_mode
  // Prompt positions where later requests may part from this one, ascending; a state is kept there.
  std::vector<int64_t> cache_points = {};
  int32_t priority = 1;         // 0 (first) to 3
  std::optional<Clock::time_point> deadline = {};  // ends it with kDeadlineExceeded when it passes
  bool speculation = true;  // drafts may be made and verified for it, where the engine does so at all
};

// What the engine reports for each answer, in this order: kPrompt when asked for (answer 0 only), any number of kToken,
// then exactly one kFinished.
struct EngineEvent {
  enum class Kind { kToken, kFinished, kPrompt };
  Kind kind = Kind::kToken;
  int32_t answer_index = 0;                          // 0 .. n - 1
  int32_t token_id = 0;                              // kToken
  FinishReason finish_reason = FinishReason::kStop;  // kFinished
  std::optional<Error> error = {};                   // kFinished with kError
  int64_t prompt_tokens = 0;                         // kFinished
  int64_t cached_tokens = 0;                         // kFinished; of the prompt, found in the KV cache
  int64_t completion_tokens = 0;                     // kFinished
  std::shared_ptr<const TokenLogprobs> logprobs = {};  // kToken, when asked for
  std::shared_ptr<const std::vector<TokenLogprobs>> prompt_logprobs = {};  // kPrompt: of tokens 1, 2, ...
};

// Called on the engine thread for each event of one request; must be quick and must not call back into the
// engine.
using EventSink = std::function<void(const EngineEvent&)>;

// The last row of logits [vocab] that a token of `request` is drawn from; `position` is the token's. For tests.
using LogitsProbe = std::function<void(uint64_t request, int64_t position, std::span<const float> logits)>;

enum class DraftProposer {
  kOff,
  kDspark,  // the checkpoint's draft stages; off when it has none
  kNgram,   // what followed the last tokens where they stood before; any checkpoint
};

// Several tokens a step (docs/speculation.md). In deterministic mode no token depends on any of this.
struct SpeculationOptions {
  DraftProposer proposer = DraftProposer::kDspark;
  SpeculationSampling sampling = SpeculationSampling::kDeterministic;
  int64_t max_drafts = 5;                    // behind a token; at most what the model has spare rows for
  std::optional<int64_t> fixed_drafts = {};  // verify always so many; absent: by confidence and cost
  std::vector<float> temperatures = {};      // of the confidences (speculate/calibration.h)
  std::function<std::unique_ptr<Proposer>(Model&)> custom = {};  // in place of `proposer`; for tests and benchmarks
};

struct EngineOptions {
  int64_t max_queued_requests = 1024;  // submit answers kResourceExhausted beyond that
  int64_t max_running = 0;             // answers in one step; 0: the model's states less a quarter that keeps prefixes
  int64_t prefill_rows = 64;           // most prompt tokens of a step in which answers advance
  double decode_slowdown = 1.8;        // fewer of them where such steps would take longer than this factor
  int64_t max_context_sum = 1 << 20;   // of a step's prompt parts, the sum of the positions where they end
  int64_t reserve_tokens = 256;        // room set aside for each answer when it is admitted
  Clock::duration ageing = std::chrono::seconds(10);  // what a level of priority is worth in waiting
  ContextMode context_mode = ContextMode::kStable;
  TurnTokens turn_tokens = {};         // for stable mode: where the model speaks in a prompt
  bool prefix_cache = true;
  bool keep_states = true;             // false: window states of ended requests are not kept; for tests
  int64_t swap_blocks = -1;            // host memory for pre-empted sequences; -1: a quarter of the model's blocks
  store::Store* store = nullptr;       // borrowed; keeps full blocks on disk and brings them back; null: none
  store::GuardedTier* store_tier =
      nullptr;  // borrowed; where blocks go from the store, and come from when it lacks them
  bool store_windows = true;  // window states go there, too: a request may resume from one after a restart
  Clock::duration store_load_limit = std::chrono::seconds(5);  // a request waits no longer for it
  int scheduling_depth = 0;            // steps planned ahead: 0 or 1; docs/scheduling.md has the figures
  SpeculationOptions speculation = {};
  const Clock* clock = nullptr;        // borrowed; null: the system's
  Trace* trace = nullptr;              // borrowed; base/trace.h
  ForwardObserver* observer = nullptr;  // borrowed; for tests
  LogitsProbe logits_probe = {};
};

// Numbers since the start, or of now. All fields are int64_t.
struct EngineStats {
  // Now.
  int64_t running = 0, waiting = 0;         // answers; waiting includes pre-empted ones
  int64_t preempted = 0;                    // of the waiting
  int64_t blocks_total = 0, blocks_free = 0, blocks_cached = 0, blocks_used = 0;
  int64_t states_total = 0, states_free = 0, states_kept = 0;
  int64_t swap_blocks_total = 0, swap_blocks_used = 0;
  int64_t batch_rows = 0, batch_sequences = 0;  // of the last step
  // Since the start.
  int64_t submitted = 0, finished = 0, cancelled = 0, errors = 0;
  int64_t steps = 0, decode_rows = 0, prefill_rows = 0, encoder_only_rows = 0, replayed_rows = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0, hit_tokens = 0;
  int64_t hits = 0, misses_absent = 0, misses_evicted = 0, misses_window_lost = 0, misses_too_short = 0,
          misses_lineage = 0, misses_not_kept = 0;
  int64_t misses_corrupt = 0, misses_expired = 0, misses_deadline = 0, misses_not_worth_it = 0, misses_unreadable = 0;
  // Blocks and the KV store: loaded, handed over and taken, not taken; tokens of hits that came from it; now held for it.
  int64_t store_loads = 0, store_loaded = 0, store_load_ns = 0, store_written = 0, store_dropped = 0,
          store_hit_tokens = 0, store_held = 0;
  int64_t store_states_written = 0, store_states_dropped = 0, store_states_loaded = 0;  // window states
  int64_t preempted_swap = 0, preempted_recompute = 0;
  int64_t plan_ns = 0, execute_ns = 0, sample_ns = 0, commit_ns = 0;
  // Speculation. By place: the first draft behind a token, the second, ...
  int64_t drafted = 0, draft_passes = 0, draft_ns = 0;
  std::array<int64_t, 8> verified = {}, accepted = {};
  int64_t calibration_error_ppm = 0;  // of the confidences, against what was accepted
  int64_t predicted_ns = 0,
          predicted_real_ns = 0;  // of steps without prompt rows: as planned, and as they were
};
// One name and number a line, for people.
std::string describe(const EngineStats& stats);
// Every number with its name, in the order of the struct; for /metrics.
std::vector<std::pair<std::string, int64_t>> name_stats(const EngineStats& stats);

// Thread-safe. The destructor cancels what is left (each request gets its kFinished) and joins its threads.
class Engine {
 public:
  using RequestId = uint64_t;

  // Takes the model; borrows the counters, which outlive the engine. Counts requests, prompt_tokens,
  // completion_tokens, cancelled and errors. The swap memory that the system refuses is done without, with a warning.
  Engine(std::unique_ptr<Model> model, EngineOptions options, Counters& counters);
  ~Engine();

  // Checks the request and queues it; the id of its first answer. kInvalidArgument: empty prompt, id out of
  // range, no room for one new token in the context, max_tokens or n below 1, bad sampling parameters, a
  // priority out of range, more KV blocks than there are. kResourceExhausted: the queue is full.
  Result<RequestId> submit(EngineRequest request, EventSink sink);
  // Ends one answer soon with FinishReason::kCancelled; unknown or finished ids are ignored.
  void cancel(RequestId id);
  // The answer says all that is wanted: it ends soon with FinishReason::kStop, as if the model had ended it.
  void finish(RequestId id);
  // No more tokens of this answer are wanted for now; its memory may go to others meanwhile.
  void pause(RequestId id);
  void resume(RequestId id);

  EngineStats stats() const;
  std::string memory_plan() const;     // what was allocated at the start, for people
  int64_t max_context_tokens() const;  // prompt and answer together
  int64_t vocab_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
