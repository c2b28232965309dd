#include "simulator/worker.h"

#include <algorithm>
#include <cmath>

#include "cache/block_pool.h"
#include "store/load_cost.h"

namespace deepinfer::simulator {
namespace {

constexpr size_t kWaitingLookedAt = 5;  // as the engine does
constexpr double kBlockBytes = 112 * 1024;

int64_t blocks_for(int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

Clock::time_point at_time(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

std::array<int32_t, kBlockTokens> tokens_of(const PrefixKey& key) {
  std::array<int32_t, kBlockTokens> tokens;
  tokens.fill(block_token(key));
  return tokens;
}

}  // namespace

void keys_of(const Traffic& traffic, const Request& request, std::vector<PrefixKey>& keys) {
  keys.clear();
  const int64_t parts = traffic.id_tokens / kBlockTokens;
  const int64_t full = std::min(request.input / kBlockTokens, request.num_ids * parts);
  for (int64_t i = 0; i < full; ++i)
    keys.push_back(block_key(traffic.ids[static_cast<size_t>(request.first_id + i / parts)], i % parts));
}

Worker::Worker(const WorkerOptions& options, const StepTimes& times, const Traffic& traffic, SharedStore& store,
               Tally& tally)
    : options_(options),
      times_(times),
      traffic_(traffic),
      store_(store),
      tally_(tally),
      cache_({.num_blocks = options.num_blocks,
              .num_states = options.max_running + options.kept_states,
              .windows = options.windows}) {
  limits_.max_rows = options.max_rows;
  limits_.prefill_rows = options.prefill_rows;
  limits_.max_context_sum = INT64_MAX / 4;
  limits_.max_running = options.max_running;
}

// ---- arrival
// ---------------------------------------------------------------------------------------------------------

Worker::Reach Worker::reach(std::span<const PrefixKey> keys) const {
  Reach reach;
  const auto is_cached = [&](const PrefixKey& key) { return cache_.blocks().find(key, tokens_of(key)).has_value(); };
  while (reach.cached < std::ssize(keys) && is_cached(keys[static_cast<size_t>(reach.cached)])) ++reach.cached;
  if (!store_.exists()) return reach;
  int64_t end = reach.cached;
  while (end < std::ssize(keys) && store_.age(keys[static_cast<size_t>(end)], 0)) ++end;
  reach.stored = end - reach.cached;
  return reach;
}

WorkerView Worker::view(const Request& request, std::span<const PrefixKey> keys) const {
  const Reach found = reach(keys);
  const store::LoadCost cost{times_.load_first_s, times_.load_bytes_per_s, 1 / times_.prefill_row_s};
  const auto blocks = static_cast<uint64_t>(found.stored);
  const bool loads = store::load_pays(cost, blocks, static_cast<uint64_t>(kBlockBytes), blocks * kBlockTokens);
  const int64_t hit = std::min((found.cached + (loads ? found.stored : 0)) * kBlockTokens, request.input - 1);
  return {.queued_s = static_cast<double>(queued_tokens_) * times_.prefill_row_s,
          .hit_tokens = hit,
          .load_s = loads ? store::load_seconds(cost, blocks, static_cast<uint64_t>(kBlockBytes)) : 0,
          .running = std::ssize(running_),
          .max_running = options_.max_running,
          .kv_use = static_cast<double>(cache_.blocks().num_used()) / static_cast<double>(options_.num_blocks),
          .waiting = waiting()};
}

void Worker::count_queued(Job& job, int64_t tokens) {
  queued_tokens_ += tokens - job.queued_tokens;
  job.queued_tokens = tokens;
}

double Worker::arrive(const Request& request, uint64_t number, double now_s) {
  auto job = std::make_unique<Job>();
  job->request = &request;
  job->number = number;
  job->arrival_s = request.arrival_s;
  job->known = request.input;
  job->place = place_of(at_time(now_s), 1, {}, number);
  keys_of(traffic_, request, job->keys);
  const Reach found = reach(job->keys);
  double ready_s = now_s;
  const store::LoadCost cost{times_.load_first_s, times_.load_bytes_per_s, 1 / times_.prefill_row_s};
  const auto blocks = static_cast<uint64_t>(found.stored);
  int64_t reached = found.cached;
  if (store::load_pays(cost, blocks, static_cast<uint64_t>(kBlockBytes), blocks * kBlockTokens)) {
    load_free_s_ =
        std::max(load_free_s_, now_s) + store::load_seconds(cost, blocks, static_cast<uint64_t>(kBlockBytes));
    ready_s = load_free_s_;
    job->loaded_first = found.cached;
    job->loaded_end = found.cached + found.stored;
    reached += found.stored;
  }
  count_queued(*job, std::max<int64_t>(1, request.input - reached * kBlockTokens));
  loading_.push_back(std::move(job));
  return ready_s;
}

void Worker::load(Job& job, double now_s) {
  std::vector<BlockId> held;
  int64_t i = job.loaded_first;
  for (; i < job.loaded_end; ++i) {
    const PrefixKey& key = job.keys[static_cast<size_t>(i)];
    if (cache_.blocks().find(key, tokens_of(key))) continue;
    const auto age = store_.age(key, now_s);
    if (!age) break;  // dropped meanwhile
    const auto block = cache_.allocate_block();
    if (!block.ok()) break;
    tally_.store_age.add(*age);
    cache_.blocks().publish(*block, key, tokens_of(key));
    held.push_back(*block);
  }
  job.loaded_end = i;
  cache_.blocks().release_all(held);
}

void Worker::enter(uint64_t number, double now_s) {
  const auto found =
      std::find_if(loading_.begin(), loading_.end(), [&](const JobPtr& job) { return job->number == number; });
  CHECK(found != loading_.end());
  JobPtr job = std::move(*found);
  loading_.erase(found);
  load(*job, now_s);
  const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), job->place,
                                      [](const Place& a, const JobPtr& b) { return a < b->place; });
  waiting_.insert(place, std::move(job));
}

// ---- planning
// --------------------------------------------------------------------------------------------------------

void Worker::look_up(Job& job) {
  if (job.hit && job.hit_version == cache_.version()) return;
  job.hit_version = cache_.version();
  tokens_.clear();
  for (const PrefixKey& key : job.keys) tokens_.insert(tokens_.end(), kBlockTokens, block_token(key));
  // What no id covers is like nothing else.
  tokens_.resize(static_cast<size_t>(job.known), -static_cast<int32_t>(job.number & 0x7fffffff) - 1);
  // Without turns, the decoder half runs the prompt's last rows (first_decoder_row).
  const int64_t tail = options_.mode == ContextMode::kExact ? job.request->input : options_.windows.decoder_tail;
  job.decoder_first = std::max<int64_t>(0, job.request->input - tail);
  job.hit =
      cache_.find({.tokens = tokens_, .keys = job.keys, .mode = options_.mode, .decoder_first = job.decoder_first});
}

void Worker::view_running() {
  const bool short_of_blocks = cache_.blocks().num_available() < 2 * std::ssize(running_) +
                                                                     blocks_for(limits_.max_rows) +
                                                                     (waiting_.empty() ? 0 : options_.num_blocks);
  running_views_.clear();
  for (const JobPtr& job : running_) {
    int64_t freeable = 0;
    if (short_of_blocks)
      for (const BlockId block : job->blocks) freeable += cache_.blocks().references(block) == 1 ? 1 : 0;
    running_views_.push_back(
        {.place = job->place,
         .priority = 1,
         .known = job->known,
         .done = job->done,
         .blocks = std::ssize(job->blocks),
         .reserve = blocks_for(job->request->input + std::min(job->request->output, options_.reserve_tokens)),
         .freeable = freeable,
         .decoder_first = job->decoder_first});
  }
}

void Worker::view_waiting() {
  waiting_views_.clear();
  if (std::ssize(running_) >= options_.max_running) return;  // nobody can come in
  for (const JobPtr& job : waiting_) {
    if (waiting_views_.size() == kWaitingLookedAt) break;
    look_up(*job);
    const Hit& hit = *job->hit;
    WaitingView view = {
        .place = job->place, .priority = 1, .start = hit.start, .known = job->known, .bypassed = job->bypassed};
    view.blocks_shared = std::ssize(hit.blocks);
    view.blocks_needed = blocks_for(job->known) - std::ssize(hit.blocks);
    for (const BlockId block : hit.blocks) view.blocks_needed += cache_.is_available(block) ? 1 : 0;
    view.decoder_first = hit.decoder_first;
    const int64_t parting = std::ssize(hit.blocks) * kBlockTokens;
    const int64_t back = options_.mode == ContextMode::kExact ? 0 : options_.windows.encoder_back;
    const bool is_far = parting > hit.start + (hit.state ? back : 0) && parting < job->request->input - back;
    job->checkpoint = is_far && !hit.derived ? parting : 0;
    view.checkpoint = job->checkpoint;
    view.reserve =
        std::max<int64_t>(0, blocks_for(job->request->input + std::min(job->request->output, options_.reserve_tokens)) -
                                 blocks_for(job->known));
    waiting_views_.push_back(view);
  }
}

void Worker::admit(Job& job) {
  const Hit& hit = *job.hit;
  cache_.use(hit);
  job.blocks = hit.blocks;
  job.done = hit.start;
  job.decoder_first = hit.decoder_first;
  job.high = std::max(hit.high, hit.start);
  job.whole_from = hit.whole_from;
  job.derived = hit.derived;
  job.published = std::ssize(hit.blocks);
  job.state = *cache_.allocate_state();
  if (!job.started) {
    job.started = true;
    tally_.input_tokens += job.request->input;
    tally_.hit_tokens += hit.tokens;
    const int64_t from_store =
        std::clamp<int64_t>(std::min(job.loaded_end, std::ssize(hit.blocks)) - job.loaded_first, 0, INT64_MAX);
    tally_.store_hit_tokens += from_store * kBlockTokens;
    ++tally_.misses[static_cast<size_t>(hit.reason)];
  }
  job.hit.reset();
  count_queued(job, job.known - job.done);
}

void Worker::preempt(Job& job) {
  cache_.blocks().release_all(job.blocks);
  cache_.release_state(*job.state);
  job.state.reset();
  job.blocks.clear();
  job.hit.reset();
  job.done = 0;
  count_queued(job, job.known);
  ++tally_.preempted;
}

std::optional<double> Worker::begin_step(double now_s) {
  if (is_running() || (running_.empty() && waiting_.empty())) return std::nullopt;
  view_running();
  view_waiting();
  const auto decoding =
      std::count_if(running_.begin(), running_.end(), [](const JobPtr& job) { return job->known - job->done == 1; });
  limits_.prefill_rows = cost_.prefill_slice(decoding, options_.decode_slowdown, options_.prefill_rows);
  plan_step(limits_, running_views_, waiting_views_, cache_.num_available_blocks(), cache_.num_available_states(),
            plan_);

  order_.clear();
  for (const JobPtr& job : running_) order_.push_back(job.get());
  for (const int32_t index : plan_.admitted) order_.push_back(waiting_[static_cast<size_t>(index)].get());
  if (plan_.bypassed) ++waiting_[static_cast<size_t>(*plan_.bypassed)]->bypassed;
  std::vector<JobPtr> back;
  for (const int32_t index : plan_.preempted) {
    preempt(*running_[static_cast<size_t>(index)]);
    back.push_back(std::move(running_[static_cast<size_t>(index)]));
  }
  std::erase(running_, nullptr);
  std::vector<JobPtr> admitted;
  for (const int32_t index : plan_.admitted) admitted.push_back(std::move(waiting_[static_cast<size_t>(index)]));
  std::erase(waiting_, nullptr);
  for (JobPtr& job : back) {
    const auto place = std::upper_bound(waiting_.begin(), waiting_.end(), job->place,
                                        [](const Place& a, const JobPtr& b) { return a < b->place; });
    waiting_.insert(place, std::move(job));
  }
  for (JobPtr& job : admitted) {
    admit(*job);
    running_.push_back(std::move(job));
  }
  int64_t encoder_rows = 0, full_rows = 0;
  for (const Span& span : plan_.spans) {
    Job& job = *order_[static_cast<size_t>(span.sequence)];
    for (int64_t i = 0; i < span.new_blocks; ++i) {
      const auto block = cache_.allocate_block();
      CHECK(block.ok());
      job.blocks.push_back(*block);
    }
    const bool decodes = span.count == 1 && job.known - job.done == 1;
    encoder_rows += span.encoder_rows;
    full_rows += decodes ? 0 : span.count - span.encoder_rows;
  }
  if (plan_.spans.empty()) return std::nullopt;
  one_step_s_ = times_.step_seconds(plan_.decode_rows, encoder_rows, full_rows);
  repeats_ = options_.coalesce && plan_.prefill_rows == 0 && plan_.admitted.empty() ? coalesced_steps() : 1;
  step_begin_s_ = now_s;
  step_end_s_ = now_s + one_step_s_ * static_cast<double>(repeats_);
  ++tally_.events;
  return step_end_s_;
}

// Steps until a sequence ends or needs a block.
int64_t Worker::coalesced_steps() const {
  int64_t steps = INT64_MAX;
  for (const Span& span : plan_.spans) {
    const Job& job = *order_[static_cast<size_t>(span.sequence)];
    steps = std::min({steps, job.request->output - job.emitted, std::ssize(job.blocks) * kBlockTokens - job.done});
  }
  return std::max<int64_t>(1, steps);
}

double Worker::cut(double now_s) {
  if (repeats_ > 1 && one_step_s_ > 0) {
    const double begun = std::floor((now_s - step_begin_s_) / one_step_s_ + 1e-9) + 1;  // at an end, the next has begun
    repeats_ = std::clamp<int64_t>(static_cast<int64_t>(begun), 1, repeats_);
    step_end_s_ = step_begin_s_ + one_step_s_ * static_cast<double>(repeats_);
  }
  return step_end_s_;
}

// ---- results
// ---------------------------------------------------------------------------------------------------------

void Worker::publish(Job& job, double now_s) {
  if (job.derived) return;
  const int64_t full = std::min(job.done / kBlockTokens, std::ssize(job.keys));
  for (; job.published < full; ++job.published) {
    const PrefixKey& key = job.keys[static_cast<size_t>(job.published)];
    cache_.blocks().publish(job.blocks[static_cast<size_t>(job.published)], key, tokens_of(key));
    store_.put(key, now_s);
  }
}

// `tokens` at intervals of a step, the first one at the end of the first step.
void Worker::emit(Job& job, double now_s, double step_s, int64_t tokens) {
  const double first_s = now_s - step_s * static_cast<double>(tokens - 1);
  if (job.emitted == 0) {
    tally_.ttft.add(first_s - job.arrival_s);
  } else {
    tally_.tbt.add(first_s - job.last_token_s);
  }
  if (tokens > 1) tally_.tbt.add(step_s, tokens - 1);
  job.emitted += tokens;
  job.known += tokens;
  job.last_token_s = now_s;
}

KeptState Worker::describe_state(const Job& job, int64_t blocks) const {
  KeptState kept;
  kept.position = kept.high = blocks * kBlockTokens;
  kept.encoder_first = std::min(job.whole_from, kept.position);
  kept.decoder_first = job.decoder_first;
  kept.first_block = std::min(blocks, cache_.first_block_of(kept.high, kept.encoder_first));
  for (int64_t n = kept.first_block; n <= blocks; ++n) {
    kept.keys.push_back(n == 0 ? PrefixKey{} : job.keys[static_cast<size_t>(n - 1)]);
    if (n < blocks) kept.tokens.insert(kept.tokens.end(), kBlockTokens, block_token(job.keys[static_cast<size_t>(n)]));
  }
  return kept;
}

void Worker::keep_copy(const Job& job, int64_t blocks) {
  if (job.derived || cache_.num_available_states() == 0) return;
  const StateId state = *cache_.allocate_state();
  cache_.keep_state(state, describe_state(job, blocks));
}

// Windows are kept where the ids of the prompt end: a trace does not say what the next turn shares beyond.
bool Worker::finish(Job& job, double now_s) {
  if (job.emitted < job.request->output) return false;
  ++tally_.finished;
  tally_.output_tokens += job.emitted;
  tally_.answer.add(now_s - job.arrival_s);
  if (!job.keys.empty() && !job.derived) {
    cache_.keep_state(*job.state, describe_state(job, std::ssize(job.keys)));
  } else {
    cache_.release_state(*job.state);
  }
  cache_.blocks().release_all(job.blocks);
  return true;
}

void Worker::end_step(double now_s) {
  CHECK(is_running());
  busy_s_ += step_end_s_ - step_begin_s_;
  for (int64_t i = 0; i < repeats_; ++i) cost_.observe(plan_.decode_rows, plan_.prefill_rows, one_step_s_);
  tally_.steps += repeats_;
  tally_.prefill_rows += plan_.prefill_rows;
  for (const Span& span : plan_.spans) {
    Job& job = *order_[static_cast<size_t>(span.sequence)];
    job.done += repeats_ > 1 ? repeats_ : span.count;
    if (job.emitted == 0) publish(job, now_s);
    if (job.checkpoint > 0 && job.done >= job.checkpoint) {
      if (job.done == job.checkpoint) keep_copy(job, job.checkpoint / kBlockTokens);
      job.checkpoint = 0;
    }
    count_queued(job, job.emitted == 0 ? std::max<int64_t>(0, job.known - job.done) : 0);
    if (job.done >= job.known) emit(job, now_s, one_step_s_, repeats_);
  }
  step_end_s_ = -1;
  for (JobPtr& job : running_)
    if (finish(*job, now_s)) job.reset();
  std::erase(running_, nullptr);
}

}  // namespace deepinfer::simulator
