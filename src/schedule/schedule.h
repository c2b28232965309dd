// What runs in the next step: pure functions over plain structs. No model, no queue, no clock of its own.
//
// A step is one pass through the model over rows (one row = one position of one sequence): first one row for
// every sequence that decodes, then rows of drafts to verify, then a bounded slice of prefill rows, because a
// step reads the same weights for all. Drafts take memory that is free; nobody is pre-empted for them.
// docs/scheduling.md is the algorithm in a page. Ideas and weak points it answers: specs engine 3, 12, 13.
//
// Order. Every sequence has one fixed place: its arrival, later by `ageing` for each band of priority. So a
// request is overtaken only by requests that arrive less than (bands between them) x ageing after it: nobody
// starves.
//
// Memory. A sequence is admitted when the blocks of its known tokens and a reserve for its answers are to be
// had beside what the running ones still have reserved. Growth beyond the reserve takes what is free; when
// nothing is, the sequences that come last in the order give their blocks back, and only for one that comes
// before them. The first in the order can always go on, so every request ends.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace deepinfer {

inline constexpr int kNumPriorities = 4;  // 0 first

struct Place {
  Clock::time_point arrival = {};  // moved by the band; see place_of()
  uint64_t number = 0;        // of the submission, among equals
  auto operator<=>(const Place&) const = default;
};
inline Place place_of(Clock::time_point arrival, int priority, Clock::duration ageing, uint64_t number) {
  return {arrival + priority * ageing, number};
}

struct ScheduleLimits {
  int64_t max_rows = 256;           // token budget of a step
  int64_t prefill_rows = 64;        // prefill rows of a step in which something decodes
  int64_t max_context_sum = 1 << 20;  // of a step's prefill spans, the sum of the positions where they end; one always fits
  int64_t max_running = 1;
  int64_t max_bypass = 16;          // times that later requests may be admitted past one that does not fit
};

// A sequence that holds a state.
struct RunningView {
  Place place = {};
  int priority = 0;
  int64_t known = 0;         // tokens known, those that steps in flight will draw included
  int64_t done = 0;          // rows computed, in flight included; known - done rows are to be computed
  int64_t blocks = 0;        // held
  int64_t reserve = 0;       // blocks that it may hold in all without asking again
  bool reserve_is_firm = false;  // can't be pre-empted and nobody may eat into its reserve
  int64_t freeable = 0;      // blocks that become available when it is pre-empted
  int64_t checkpoint = 0;    // a span that passes this position ends there; 0 = none
  int64_t decoder_first = 0;  // rows below run the encoder half only
  int64_t forks = 0;         // answers that split off when the last known row is computed
  int64_t drafts = 0;        // rows that it would add behind its one decode row
  bool paused = false;       // not now
};

// A sequence that waits for a state.
struct WaitingView {
  Place place = {};
  int priority = 0;
  int64_t start = 0;         // first row to compute
  int64_t known = 0;
  // Available blocks that it takes for its known tokens: new ones, cached ones that it will refer to, and the copy of a
  // partly filled last one for every further answer.
  int64_t blocks_needed = 0;
  int64_t blocks_shared = 0;  // of a hit, part of its block table from the start
  int64_t reserve = 0;       // blocks beyond those, for the answers
  bool reserve_is_firm = false;
  int64_t answers = 1;       // places it takes
  int64_t checkpoint = 0;
  int64_t decoder_first = 0;
  bool swapped = false;      // its blocks come back before anything is computed
  int64_t bypassed = 0;      // how often it was passed already
};

struct Span {
  int32_t sequence = 0;       // index into `running`, or running.size() + index into StepPlan::admitted
  int64_t first = 0;          // position
  int64_t count = 0;
  int64_t encoder_rows = 0;   // of these, the leading rows that run the encoder half only
  int64_t new_blocks = 0;     // to allocate, forks and drafts included
  int64_t drafts = 0;         // rows behind `count`, of tokens that may turn out wrong
};

struct StepPlan {
  std::vector<int32_t> preempted;  // indices into `running`, in this order, before anything is allocated
  std::vector<int32_t> admitted;   // indices into `waiting`
  std::vector<Span> spans;         // decode rows first
  int64_t decode_rows = 0, draft_rows = 0, prefill_rows = 0;
  std::optional<int32_t> bypassed;  // index into `waiting`: one that did not fit while a later one did

  void clear();
  int64_t rows() const { return decode_rows + draft_rows + prefill_rows; }

  // Scratch of plan_step, kept so that a step allocates nothing.
  std::vector<int32_t> order, prefilling;
  std::vector<int64_t> pending, given;
  std::vector<bool> is_preempted;
};

// Plans one step. `waiting`: the first ones, in order of place. available_blocks and available_states: what can be had
// now. Requires limits.max_running <= limits.max_rows.
void plan_step(const ScheduleLimits& limits, std::span<const RunningView> running,
               std::span<const WaitingView> waiting, int64_t available_blocks, int64_t available_states,
               StepPlan& plan);

// Rows of prefill for each of `pending` rows wanted (first: the one first in order), out of `budget`. The first gets at
// least half; what remains goes to those with the fewest rows left; so the first never waits, and a short prompt does
// not wait for a long one.
void share_prefill(std::span<const int64_t> pending, int64_t budget, std::vector<int64_t>& given);

}  // namespace deepinfer
