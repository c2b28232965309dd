// From the state of the loop to views, from the plan to a batch (the rest of EngineLoop is in loop.cc).
#include <algorithm>

#include "engine/loop.h"

namespace deepinfer {
namespace {

constexpr size_t kWaitingLookedAt = 5;   // the first ones; others may pass the first only so often
constexpr int64_t kShortestKept = 32;    // prompts below are computed again sooner than a state is copied

}  // namespace

bool EngineLoop::plan(Step& step) {
  step.batch.clear();
  step.num_entries = 0;
  step.keeps.clear();
  if (running_.empty() && waiting_.empty()) return false;
  view_running();
  step.predicted_seconds = 0;
  if (speculates()) choose_drafts(step);
  view_waiting();
  const auto decoding = std::count_if(running_.begin(), running_.end(), [](const Job* job) {
    return !job->paused && job->known() - job->done == 1;
  });
  limits_.prefill_rows = cost_.prefill_slice(decoding, options_.decode_slowdown, options_.prefill_rows);
  plan_step(limits_, running_views_, waiting_views_, cache_.num_available_blocks(), cache_.num_available_states(),
            plan_);

  // Indices of the plan to jobs, before the lists change.
  std::vector<Job*>& order = planned_;
  order = running_;
  for (const int32_t index : plan_.admitted) order.push_back(candidates_[static_cast<size_t>(index)]);
  if (plan_.bypassed) ++candidates_[static_cast<size_t>(*plan_.bypassed)]->bypassed;
  for (const int32_t index : plan_.preempted) preempt(*order[static_cast<size_t>(index)], step);
  // All hits are taken hold of before anything is allocated, so that no admission gives away what another will read. States
  // may still go, the ones whose last reader comes first: by then it has copied them, or it is the one that takes it.
  for (const int32_t index : plan_.admitted) hold(*candidates_[static_cast<size_t>(index)]);
  for (const int32_t index : plan_.admitted) admit(*candidates_[static_cast<size_t>(index)], step);
  stats_.batch_rows = stats_.batch_sequences = 0;
  for (const Span& span : plan_.spans) {
    if (!add_span(*order[static_cast<size_t>(span.sequence)], span, step)) continue;
    stats_.batch_rows += span.count + span.drafts;
    ++stats_.batch_sequences;
    stats_.encoder_only_rows += span.encoder_rows;
  }
  step.decode_rows = plan_.decode_rows;
  step.draft_rows = plan_.draft_rows;
  step.prefill_rows = plan_.prefill_rows;
  if (plan_.prefill_rows > 0 || plan_.draft_rows != draft_policy_.total()) step.predicted_seconds = 0;
  stats_.decode_rows += plan_.decode_rows;
  stats_.prefill_rows += plan_.prefill_rows;
  return !step.batch.empty();
}

// ---- views -----------------------------------------------------------------------------------------------------------

int64_t EngineLoop::reserve_of(const Job& job) const {
  const int64_t each = blocks_for(job.prompt + (job.firm() ? job.limit : std::min(job.limit, options_.reserve_tokens)));
  // Every further answer will have its own blocks behind the full ones of the prompt.
  return each + (job.answers() - 1) * (each - job.prompt / kBlockTokens);
}

void EngineLoop::view_running() {
  // What pre-empting somebody would free matters only when memory is short.
  const bool short_of_blocks =
      cache_.blocks().num_available() <
      2 * std::ssize(running_) + blocks_for(limits_.max_rows) + (waiting_.empty() ? 0 : shape_.num_blocks);
  running_views_.clear();
  for (const Job* job : running_) {
    int64_t freeable = 0;
    if (short_of_blocks) {
      for (int64_t i = 0; i < std::ssize(job->blocks); ++i) {
        // What the store has yet to get is handed over when the job goes, and held until it is written.
        const bool to_store = store_ != nullptr && job->submission->domain && i >= job->handed_over && i < job->published;
        freeable += !to_store && cache_.blocks().references(job->blocks[static_cast<size_t>(i)]) == 1 ? 1 : 0;
      }
    }
    running_views_.push_back({.place = job->place,
                              .priority = job->request().priority,
                              .known = job->known(),
                              .done = job->done,
                              .blocks = std::ssize(job->blocks),
                              .reserve = reserve_of(*job),
                              .reserve_is_firm = job->firm(),
                              .freeable = freeable,
                              .checkpoint = job->checkpoint(),
                              .decoder_first = job->cut.decoder_first,
                              .forks = job->answers() - 1,
                              .paused = job->paused});
  }
}

// ---- drafts
// ----------------------------------------------------------------------------------------------------------

bool EngineLoop::speculates() const {
  return shape_.max_drafts > 0 && std::any_of(running_.begin(), running_.end(),
                                              [](const Job* job) { return job->request().speculation; });
}

// What the policy, or the option that stands in for it, decides about the sequences that decode next.
void EngineLoop::choose_drafts(Step& step) {
  decoding_.clear();
  candidates_for_drafts_.clear();
  for (size_t i = 0; i < running_.size(); ++i) {
    Job& job = *running_[i];
    if (job.paused || job.known() - job.done != 1) continue;
    decoding_.push_back(i);
    DraftCandidate& candidate = candidates_for_drafts_.emplace_back();
    if (!job.request().speculation) continue;
    candidate.profile = &job.drafts_expected;
    const int64_t room =
        job.prompt + job.limit - std::ssize(job.tokens) - 1;  // behind the token that is drawn anyway
    candidate.may_draft = room > 1;
    if (job.in_flight > 0) continue;
    const Draft& draft = job.answer->draft;
    if (draft.position != std::ssize(job.tokens)) continue;
    const int64_t count = std::min({std::ssize(draft.ids), shape_.max_drafts, room});
    candidate.scores = std::span<const float>(draft.scores).first(static_cast<size_t>(count));
  }
  const int64_t max_rows = limits_.max_rows - std::ssize(decoding_);
  if (options_.speculation.fixed_drafts) {
    for (DraftCandidate& candidate : candidates_for_drafts_) {
      candidate.drafts = std::min(*options_.speculation.fixed_drafts, std::ssize(candidate.scores));
      candidate.make = candidate.may_draft;
    }
  } else {
    draft_policy_.plan(candidates_for_drafts_, cost_.decode(), max_rows);
    step.predicted_seconds = draft_policy_.seconds();
  }
  for (size_t i = 0; i < decoding_.size(); ++i) {
    running_views_[decoding_[i]].drafts = candidates_for_drafts_[i].drafts;
    running_[decoding_[i]]->wants_draft = candidates_for_drafts_[i].make;
  }
}

void EngineLoop::view_waiting() {
  waiting_views_.clear();
  candidates_.clear();
  for (Job* job : waiting_) {
    if (waiting_views_.size() == kWaitingLookedAt) break;
    if (job->paused || waits_for_store(*job)) continue;
    const int64_t known = job->known();
    WaitingView view = {.place = job->place,
                        .priority = job->request().priority,
                        .start = job->done,
                        .known = known,
                        .answers = job->answers(),
                        .swapped = job->swapped.has_value(),
                        .bypassed = job->bypassed};
    if (job->swapped) {
      view.blocks_needed = std::max(blocks_for(known), std::ssize(job->swapped->blocks));
      view.decoder_first = job->cut.decoder_first;
      view.checkpoint = job->checkpoint();
    } else {
      look_up(*job);
      const Hit& hit = *job->hit;
      view.start = hit.start;
      view.blocks_shared = std::ssize(hit.blocks) + (hit.tail_block ? 1 : 0);
      view.blocks_needed = blocks_for(known) - std::ssize(hit.blocks);
      for (const BlockId block : hit.blocks) view.blocks_needed += cache_.is_available(block) ? 1 : 0;
      if (hit.tail_block && cache_.is_available(*hit.tail_block)) ++view.blocks_needed;  // until it is copied
      view.decoder_first = hit.decoder_first;
      set_checkpoints(*job, hit);
      view.checkpoint = job->checkpoint();
      if (known % kBlockTokens != 0) view.blocks_needed += job->answers() - 1;
    }
    view.reserve_is_firm = job->firm();
    view.reserve = std::max<int64_t>(0, reserve_of(*job) - blocks_for(known));
    waiting_views_.push_back(view);
    candidates_.push_back(job);
  }
}

Hit EngineLoop::cold(const Job& job) const {
  Hit hit;
  hit.reason = MissReason::kNotKept;
  hit.decoder_first = job.submission->decoder_first;
  return hit;
}

HitQuery EngineLoop::query_of(const Job& job) const {
  return {.tokens = job.tokens,
          .root = job.submission->root,
          .keys = job.keys,
          .mode = job.submission->mode,
          .decoder_first = job.submission->decoder_first};
}

bool EngineLoop::can_promise_swap(int64_t blocks) const {
  return swap_blocks_.num_free() - promised_swap_blocks_ >= blocks &&
         std::ssize(free_swap_states_) - promised_swap_states_ >= 1;
}

// Where the job would begin now. What was pre-empted goes on with the bits it had.
void EngineLoop::look_up(Job& job) {
  if (job.hit && job.hit_version == cache_.version()) return;
  job.hit_version = cache_.version();
  if (!job.use_cache() || job.request().prompt_logprobs) {
    job.hit = cold(job);
    return;
  }
  extend_keys(job);
  job.hit = cache_.find(query_of(job));
  // A tail is copied from one block to another; a pool without room for both does without.
  if (job.hit->tail_block && blocks_for(job.known()) >= shape_.num_blocks) job.hit = cold(job);
  const int64_t worst = blocks_for(job.prompt + job.limit);
  if (job.hit->derived && (job.started || !can_promise_swap(worst))) {
    // It would have to stay until it ends. Where even an empty pool can't promise that, it starts cold.
    const bool fits = job.answers() == 1 && worst + std::ssize(job.hit->blocks) <= shape_.num_blocks;
    if (job.started || !fits) job.hit = cold(job);
  }
  job.derived = job.hit->derived;
}

// Where this request parts from what others left, and no state stands near enough.
void EngineLoop::set_checkpoints(Job& job, const Hit& hit) const {
  job.checkpoints.clear();
  if (!keeps_states(job)) return;
  // Exact requests need whole states, which serve where they stand.
  const bool exact = job.submission->mode == ContextMode::kExact;
  const int64_t back = exact ? 0 : shape_.windows.encoder_back;
  const auto add = [&](int64_t position) {
    if (position > hit.start + (hit.state ? back : 0) && position < job.prompt - back) job.checkpoints.push_back(position);
  };
  if (exact) add((job.prompt - 1) / kBlockTokens * kBlockTokens);
  for (const int64_t position : job.request().cache_points) add(position);
  // After a restart the decoder half begins there; the state at the end of the prompt may not reach back so far.
  if (store_ != nullptr && options_.store_windows) add(job.submission->decoder_first / kBlockTokens * kBlockTokens);
  add(std::ssize(hit.blocks) * kBlockTokens);
  std::sort(job.checkpoints.begin(), job.checkpoints.end(), std::greater<>());
}

// ---- moves -----------------------------------------------------------------------------------------------------------

// All that the job's rings hold of rows before the next one.
StateExtent EngineLoop::whole_extent(const Job& job) const {
  const WindowGeometry& windows = shape_.windows;
  const auto rows_from = [&](int64_t first) { return std::max<int64_t>(0, job.done - std::max<int64_t>(0, first)); };
  const int64_t stepped_back = job.high - windows.step_back;
  return {.position = job.done,
          .encoder_rows = rows_from(cache_.first_encoder_row(job.high, job.whole_from)),
          .decoder_rows = rows_from(std::max(job.cut.decoder_first, stepped_back - windows.window)),
          .pair_entries = rows_from(std::max(job.step_first, stepped_back - 1)),
          .engram_ids = std::min<int64_t>(job.done, kEngramTokens - 1)};
}

void EngineLoop::preempt(Job& job, Step& step) {
  const auto needed = std::ssize(job.blocks);
  std::erase(running_, &job);
  job.status = Job::Status::kWaiting;
  waiting_.insert(&job);
  ++num_preempted_;
  job.hit.reset();
  if (job.state && job.done > 0 && (job.swap_promise > 0 || can_promise_swap(needed))) {
    SwapPlace place{.state = free_swap_states_.back(), .extent = whole_extent(job), .blocks = {}};
    free_swap_states_.pop_back();
    for (int64_t i = 0; i < needed; ++i) place.blocks.push_back(*swap_blocks_.allocate());
    if (job.swap_promise > 0) {
      promised_swap_blocks_ -= needed;
      --promised_swap_states_;
    }
    step.batch.before.push_back({.kind = StateOp::Kind::kSwapOut,
                                 .from = static_cast<int32_t>(*job.state),
                                 .to = *place.state,
                                 .blocks = job.blocks,
                                 .swap_blocks = place.blocks,
                                 .extent = place.extent});
    job.swapped = std::move(place);
    ++stats_.preempted_swap;
  } else {
    CHECK(!job.derived);
    job.done = job.committed = 0;
    ++stats_.preempted_recompute;
  }
  const int64_t done = job.done;
  give_back(job, false);
  job.done = done;
}

void EngineLoop::count_hit(const Job& job, const Hit& hit) {
  stats_.prompt_tokens += job.prompt;
  stats_.hit_tokens += hit.tokens;
  stats_.hits += hit.tokens > 0 ? 1 : 0;
  MissReason reason = hit.reason;
  const bool missing = reason == MissReason::kAbsent || reason == MissReason::kEvicted;
  if (missing && job.store_reason && *job.store_reason != MissReason::kAbsent) reason = *job.store_reason;
  const int64_t from_store = std::min(job.loaded_end, std::ssize(hit.blocks)) - job.loaded_first;
  stats_.store_hit_tokens += std::max<int64_t>(0, from_store) * kBlockTokens;
  switch (reason) {
    case MissReason::kNone: break;
    case MissReason::kAbsent:
    case MissReason::kDomainGone: ++stats_.misses_absent; break;
    case MissReason::kEvicted: ++stats_.misses_evicted; break;
    case MissReason::kWindowLost: ++stats_.misses_window_lost; break;
    case MissReason::kTooShort: ++stats_.misses_too_short; break;
    case MissReason::kLineage: ++stats_.misses_lineage; break;
    case MissReason::kNotKept: ++stats_.misses_not_kept; break;
    case MissReason::kCorrupt: ++stats_.misses_corrupt; break;
    case MissReason::kExpired: ++stats_.misses_expired; break;
    case MissReason::kDeadline: ++stats_.misses_deadline; break;
    case MissReason::kNotWorthIt: ++stats_.misses_not_worth_it; break;
    case MissReason::kIo:
    case MissReason::kDriveDown:
    case MissReason::kBusy: ++stats_.misses_unreadable; break;
  }
}

void EngineLoop::hold(const Job& job) {
  if (job.swapped) return;
  cache_.use(*job.hit);
  if (job.hit->tail_block) cache_.blocks().add_ref(*job.hit->tail_block);  // until it is copied
}

void EngineLoop::admit(Job& job, Step& step) {
  waiting_.erase(&job);
  running_.push_back(&job);
  job.status = Job::Status::kRunning;
  job.sent_blocks = 0;
  std::vector<StateOp>& before = step.batch.before;
  if (job.started) {
    --num_preempted_;
  } else {
    queued_ -= job.answers();
  }

  if (job.swapped) {
    job.state = *cache_.allocate_state();
    if (!grow(job, std::ssize(job.swapped->blocks))) CHECK(false);  // the plan has counted them
    before.push_back({.kind = StateOp::Kind::kSwapIn,
                      .from = *job.swapped->state,
                      .to = static_cast<int32_t>(*job.state),
                      .cut = job.cut,
                      .blocks = job.blocks,
                      .swap_blocks = job.swapped->blocks,
                      .extent = job.swapped->extent});
    drop_swap(job);
    job.published = job.handed_over = std::ssize(job.blocks);  // copies keep no name
    return;
  }

  Hit hit = std::move(*job.hit);
  job.hit.reset();
  if (hit.tail_block && cache_.num_available_blocks() == 0) {
    // The plan counts a block for the copy; should another have taken it, every row is computed.
    cache_.blocks().release(*hit.tail_block);
    hit.tail_block.reset();
    hit.state.reset();
    hit.tokens = hit.start = hit.high = hit.step_first = hit.whole_from = 0;
    hit.write_first = std::ssize(hit.blocks) * kBlockTokens;
  }
  job.state = *cache_.allocate_state();
  const auto state = static_cast<int32_t>(*job.state);
  job.cut = {.encoder_first = hit.encoder_first, .decoder_first = hit.decoder_first, .write_first = hit.write_first};
  if (hit.state) {
    before.push_back({.kind = StateOp::Kind::kCopyState, .from = static_cast<int32_t>(*hit.state), .to = state});
  }
  const auto begin = job.tokens.begin() + std::max<int64_t>(0, hit.start - 8);
  before.push_back({.kind = StateOp::Kind::kStart,
                    .to = state,
                    .position = hit.start,
                    .cut = job.cut,
                    .before = {begin, job.tokens.begin() + hit.start}});
  job.blocks = hit.blocks;
  job.published = job.handed_over = std::ssize(job.blocks);
  touch_stored(job, job.published);
  if (hit.tail_block) {
    // The copy's source may be given away in this very step; it is written to by later moves and rows only.
    before.push_back({.kind = StateOp::Kind::kCopyBlock, .from = static_cast<int32_t>(*hit.tail_block)});
    StateOp& copy = before.back();
    if (!grow(job, std::ssize(job.blocks) + 1)) CHECK(false);
    copy.to = static_cast<int32_t>(job.blocks.back());
    cache_.blocks().release(*hit.tail_block);
  }
  job.done = job.committed = hit.start;
  job.high = hit.high;
  job.step_first = hit.step_first;
  job.whole_from = hit.whole_from;
  stats_.replayed_rows += hit.replayed();
  if (job.started) return;
  job.started = true;
  job.hit_tokens = hit.tokens;
  count_hit(job, hit);
  if (job.derived && can_promise_swap(blocks_for(job.prompt + job.limit))) {
    job.swap_promise = blocks_for(job.prompt + job.limit);
    promised_swap_blocks_ += job.swap_promise;
    ++promised_swap_states_;
  }
}

bool EngineLoop::grow(Job& job, int64_t count) {
  while (std::ssize(job.blocks) < count) {
    const auto block = cache_.allocate_block();
    if (!block.ok()) return false;
    job.blocks.push_back(*block);
  }
  return true;
}

// ---- spans -----------------------------------------------------------------------------------------------------------

bool EngineLoop::add_span(Job& job, const Span& planned, Step& step) {
  const int64_t first = planned.first, end = first + planned.count;
  if (first != job.done) return false;  // it began elsewhere after all (admit)
  CHECK(end <= job.known());
  if (!grow(job, blocks_for(end))) return false;
  const int64_t drafts =
      planned.drafts > 0 && grow(job, blocks_for(end + planned.drafts)) ? planned.drafts : 0;
  Batch& batch = step.batch;
  BatchSpan span = {.state = *job.state,
                    .first_position = first,
                    .first_id = std::ssize(batch.ids),
                    .num_ids = planned.count + drafts,
                    .first_block = job.sent_blocks,
                    .first_new_block = std::ssize(batch.blocks),
                    .num_new_blocks = std::ssize(job.blocks) - job.sent_blocks,
                    .first_sample = std::ssize(batch.samples),
                    .num_drafts = drafts};
  if (first == std::ssize(job.tokens)) {  // drawn by the step in flight
    span.feeds_last = job.answer.get();
  } else {
    batch.ids.insert(batch.ids.end(), job.tokens.begin() + first, job.tokens.begin() + end);
  }
  const std::vector<int32_t>& draft_ids = job.answer->draft.ids;
  double survival = 1, promised = 0;
  for (int64_t k = 0; k < drafts; ++k)
    promised += survival *= job.answer->draft.scores[static_cast<size_t>(k)];
  batch.ids.insert(batch.ids.end(), draft_ids.begin(), draft_ids.begin() + drafts);
  batch.blocks.insert(batch.blocks.end(), job.blocks.begin() + job.sent_blocks, job.blocks.end());
  job.sent_blocks = std::ssize(job.blocks);
  if (job.request().prompt_logprobs && job.drawn == 0) {
    span.prompt_logprobs = job.answer.get();
    span.next_id = end < job.prompt ? job.tokens[end] : -1;
  }

  if (step.num_entries == step.entries.size()) step.entries.emplace_back();
  Entry& entry = step.entries[step.num_entries++];
  entry.job = &job;
  entry.epoch = job.epoch;
  entry.first = first;
  entry.count = planned.count;
  entry.drafts = drafts;
  entry.promised = promised;
  entry.drawing.clear();
  job.done = end;
  job.high = std::max(job.high, end + drafts);
  ++job.in_flight;

  const bool first_time = job.drawn == 0;
  if (end == job.known()) {
    if (first_time)
      job.wants_draft = shape_.max_drafts > 0 && job.request().speculation && draft_policy_.drafting();
    add_sample(job, step, entry);
    if (!job.forks.empty()) split_forks(job, step, entry);
  }
  span.num_samples = std::ssize(batch.samples) - span.first_sample;
  batch.spans.push_back(span);
  const bool at_input_end = first_time && end == job.prompt && job.prompt >= kShortestKept;
  if (at_input_end || end == job.checkpoint()) keep_copy(job, end, step);
  while (job.checkpoint() > 0 && job.checkpoint() <= end) job.checkpoints.pop_back();
  return true;
}

void EngineLoop::add_sample(Job& job, Step& step, Entry& entry) {
  for (int64_t k = 0; k <= (entry.job == &job ? entry.drafts : 0); ++k) {
    step.batch.samples.push_back({.answer = job.answer.get(),
                                  .state = *job.state,
                                  .position = job.done + k,
                                  .wants_draft = job.wants_draft});
  }
  entry.drawing.push_back(&job);
  ++job.drawn;
}

// Every further answer gets the prompt's full blocks, a copy of the partly filled one and a copy of the state, all
// behind the forward pass; its first token comes from the same row of logits.
void EngineLoop::split_forks(Job& job, Step& step, Entry& entry) {
  const int64_t full = job.prompt / kBlockTokens;
  for (const int32_t index : job.forks) {
    auto owned = std::make_unique<Job>();
    Job& fork = *owned;
    fork.submission = job.submission;
    fork.id = job.submission->first_id + static_cast<uint64_t>(index);
    fork.answer_index = index;
    fork.place = {job.place.arrival, next_place_++};
    fork.answer = make_answer(*job.submission, index, job.prompt + job.limit);
    fork.tokens = job.tokens;
    fork.wants_draft = job.wants_draft;
    fork.keys = job.keys;
    fork.prompt = job.prompt;
    fork.limit = job.limit;
    fork.status = Job::Status::kRunning;
    fork.started = true;
    fork.done = fork.committed = job.done;
    fork.cut = job.cut;
    fork.hit_tokens = job.hit_tokens;
    fork.derived = job.derived;
    fork.high = job.high;
    fork.step_first = job.step_first;
    fork.whole_from = job.whole_from;
    fork.published = fork.handed_over = full;
    fork.blocks.assign(job.blocks.begin(), job.blocks.begin() + full);
    for (const BlockId block : fork.blocks) cache_.blocks().add_ref(block);
    fork.paused = paused_forks_.count(fork.id) > 0;
    forget_fork(fork.id);
    jobs_[fork.id] = std::move(owned);
    if (job.request().deadline) deadlines_.emplace(*job.request().deadline, fork.id);
    running_.push_back(&fork);

    const auto state = cache_.allocate_state();
    if (!state.ok() || !grow(fork, blocks_for(job.done))) {  // the plan has counted them
      if (state.ok()) fork.state = *state;
      end(fork, FinishReason::kError, Error(Code::kResourceExhausted, "answer {}: no memory for it", index));
      continue;
    }
    fork.state = *state;
    step.batch.after.push_back({.kind = StateOp::Kind::kCopyState,
                                .from = static_cast<int32_t>(*job.state),
                                .to = static_cast<int32_t>(*fork.state)});
    if (std::ssize(fork.blocks) > full) {
      step.batch.after.push_back({.kind = StateOp::Kind::kCopyBlock,
                                  .from = static_cast<int32_t>(job.blocks[full]),
                                  .to = static_cast<int32_t>(fork.blocks.back())});
    }
    ++fork.in_flight;
    add_sample(fork, step, entry);
  }
  job.forks.clear();
}

// ---- kept states -----------------------------------------------------------------------------------------------------

// The tail block gets a reference of the state's own.
KeptState EngineLoop::describe_state(const Job& job, int64_t position) {
  const int64_t full = position / kBlockTokens;
  KeptState kept = {.position = position,
                    .high = job.high,
                    .step_first = job.step_first,
                    .encoder_first = job.whole_from,
                    .decoder_first = job.submission->decoder_first,
                    .first_block = std::min(full, cache_.first_block_of(job.high, job.whole_from))};
  for (int64_t n = kept.first_block; n <= full; ++n) {
    kept.keys.push_back(n == 0 ? job.submission->root : job.keys[static_cast<size_t>(n - 1)]);
  }
  kept.tokens.assign(job.tokens.begin() + kept.first_block * kBlockTokens, job.tokens.begin() + position);
  if (position % kBlockTokens != 0) {
    kept.tail_block = job.blocks[static_cast<size_t>(full)];
    cache_.blocks().add_ref(*kept.tail_block);
  }
  return kept;
}

// To answers that split off later.
int64_t EngineLoop::promised_states() const {
  int64_t promised = 0;
  for (const Job* job : running_) promised += job->answers() - 1;
  return promised;
}

void EngineLoop::keep_copy(Job& job, int64_t position, Step& step) {
  if (!keeps_states(job) || cache_.num_available_states() <= promised_states()) return;
  const StateId state = *cache_.allocate_state();
  step.batch.after.push_back({.kind = StateOp::Kind::kCopyState,
                              .from = static_cast<int32_t>(*job.state),
                              .to = static_cast<int32_t>(state)});
  step.keeps.push_back({&job, job.epoch, state, describe_state(job, position)});
}

}  // namespace deepinfer
