// The KV store behind the prefix cache: full blocks go to it while answers run, and come back as cached blocks before a
// request is admitted (the rest of EngineLoop is in loop.cc and planning.cc). docs/kv-store.md, "In the engine".
//
// A load only fills the cache: what a request then uses is for the hit function alone to say. So a fault of the store can
// make a hit shorter and nothing else.
#include <algorithm>

#include "base/checked_math.h"
#include "base/log.h"
#include "engine/loop.h"

namespace deepinfer {
namespace {

constexpr int64_t kUnitBlocks = 16;    // handed over at a time: 2,048 tokens
constexpr int64_t kMostAsked = 8;      // finds and loads on their way
constexpr int64_t kHeldShare = 8;      // one part in so many of the blocks may be held for writes
constexpr int64_t kLeastHeld = 2 * kUnitBlocks;
constexpr int64_t kOneShotTokens = 1024;  // a shorter prompt that continues nothing is the first to go over a write budget
constexpr int64_t kMostStates = 4;     // window states on their way to the store

}  // namespace

// ---- loads -----------------------------------------------------------------------------------------------------------

// Is this one to be passed over until the store has answered? Asks it when nobody did.
bool EngineLoop::waits_for_store(Job& job) {
  if (store_ == nullptr || job.at_store == Job::AtStore::kDone) return false;
  if (job.at_store == Job::AtStore::kNotAsked) ask_store(job);
  if (job.at_store != Job::AtStore::kDone && clock_.now() >= job.store_until) {  // whatever becomes of it: it goes on without
    job.at_store = Job::AtStore::kDone;
    job.store_reason = MissReason::kDeadline;
  }
  return job.at_store != Job::AtStore::kDone;
}

int64_t EngineLoop::blocks_in_memory(const Job& job, int64_t most) const {
  int64_t count = 0;
  for (; count < most; ++count) {
    const auto tokens = std::span<const int32_t>(job.tokens)
                            .subspan(static_cast<size_t>(count * kBlockTokens), static_cast<size_t>(kBlockTokens));
    if (!cache_.blocks().find(job.keys[static_cast<size_t>(count)], tokens)) break;
  }
  return count;
}

// From now on one limit holds for everything that the store and its tiers do for this job: waiting for others, finding, loading.
void EngineLoop::ask_store(Job& job) {
  const int64_t full = std::min((job.prompt - 1) / kBlockTokens, std::ssize(job.keys));
  if (!job.submission->domain || job.request().prompt_logprobs || job.started || job.swapped || full == 0) {
    job.at_store = Job::AtStore::kDone;
    return;
  }
  if (job.store_until == Clock::time_point()) {
    if (const double row = cost_.prefill_row_seconds(); row > 0) load_cost_.prefill_tokens_per_s = 1 / row;
    job.store_until = clock_.now() + store::load_limit(load_cost_, static_cast<uint64_t>(full * kBlockTokens),
                                                       options_.store_load_limit);
  }
  if (num_asked_ >= kMostAsked) return;  // somebody before it will be answered soon
  const int64_t first = blocks_in_memory(job, full);
  const int64_t helpful = helpful_states(job, full);
  if (first == full && helpful == 0) {
    job.at_store = Job::AtStore::kDone;
    return;
  }
  auto task = std::make_unique<StoreTask>();
  task->kind = StoreTask::Kind::kFind;
  task->request = job.id;
  task->domain = *job.submission->domain;
  task->lineage = Lineage::kExact;
  task->first_block = first;
  task->keys.assign(job.keys.begin() + first, job.keys.begin() + full);
  task->state_keys.assign(job.keys.begin(), job.keys.begin() + helpful);
  task->deadline = job.store_until;
  store_->submit(std::move(task));
  ++num_asked_;
  job.at_store = Job::AtStore::kFinding;
}

void EngineLoop::take_answer(StoreTaskPtr task) {
  switch (task->kind) {
    case StoreTask::Kind::kFind:
      --num_asked_;
      return plan_load(std::move(task));
    case StoreTask::Kind::kLoad:
      --num_asked_;
      return finish_load(std::move(task));
    case StoreTask::Kind::kWrite:
      cache_.blocks().release_all(task->blocks);
      store_held_ -= std::ssize(task->blocks);
      stats_.store_written += static_cast<int64_t>(task->done);
      stats_.store_dropped += std::ssize(task->blocks) - static_cast<int64_t>(task->done);
      return;
    case StoreTask::Kind::kWriteState:
      --num_states_writing_;
      ++(task->done > 0 ? stats_.store_states_written : stats_.store_states_dropped);
      free_state_bytes_.push_back(std::move(task->state_bytes));
      return;
    case StoreTask::Kind::kTouch:
      return;
  }
}

// Leading blocks of the prompt behind which a stored window state would help: the encoder goes on from there, and the
// decoder half begins anew at the request's own first row. Exact requests need whole states.
int64_t EngineLoop::helpful_states(Job& job, int64_t blocks) {
  if (!options_.store_windows || job.submission->mode == ContextMode::kExact) return 0;
  look_up(job);
  const int64_t most = std::min(blocks, job.submission->decoder_first / kBlockTokens);
  return most * kBlockTokens >= job.hit->start + kBlockTokens ? most : 0;
}

// Blocks that nobody has a claim on.
int64_t EngineLoop::blocks_to_spare() const {
  int64_t spare = cache_.num_available_blocks();
  for (const Job* job : running_) spare -= std::max<int64_t>(0, reserve_of(*job) - std::ssize(job->blocks));
  return spare;
}

void EngineLoop::plan_load(StoreTaskPtr task) {
  const auto found = jobs_.find(task->request);
  if (found == jobs_.end() || found->second->at_store != Job::AtStore::kFinding) return;
  Job& job = *found->second;
  job.at_store = Job::AtStore::kDone;
  job.store_reason.reset();
  if (task->reason != MissReason::kNone) job.store_reason = task->reason;
  const int64_t local_end = task->first_block + static_cast<int64_t>(task->done);
  const int64_t end = local_end + static_cast<int64_t>(task->num_remote);
  const int64_t memory = blocks_in_memory(job, end);
  const int64_t state_at = task->state ? (static_cast<int64_t>(task->state->index) + 1) * kBlockTokens : 0;
  // The prefix went meanwhile, or all of it is here.
  if (memory < task->first_block || (memory == end && state_at == 0)) return;

  task->name = memory < end ? job.keys[static_cast<size_t>(memory)] : task->state_keys[task->state->index];
  if (const auto same = loading_.find(task->name); same != loading_.end()) {
    same->second->others.push_back(job.id);
    job.at_store = Job::AtStore::kLoading;
    return;
  }
  look_up(job);
  std::vector<BlockId> held;
  for (int64_t i = 0; i < memory; ++i) {
    const auto tokens = std::span<const int32_t>(job.tokens)
                            .subspan(static_cast<size_t>(i * kBlockTokens), static_cast<size_t>(kBlockTokens));
    held.push_back(*cache_.blocks().find(job.keys[static_cast<size_t>(i)], tokens));
  }
  int64_t spare = blocks_to_spare();
  for (const BlockId block : held) spare -= cache_.is_available(block) ? 1 : 0;
  if (const double row = cost_.prefill_row_seconds(); row > 0) load_cost_.prefill_tokens_per_s = 1 / row;
  const auto replay_behind = [&](int64_t blocks) { return cache_.replay_start(query_of(job), blocks * kBlockTokens); };
  const auto uses_state = [&](int64_t count) {
    return state_at <= (memory + count) * kBlockTokens && state_at > replay_behind(memory + count);
  };
  const auto saved_by = [&](int64_t count) {
    return (uses_state(count) ? state_at : replay_behind(memory + count)) - job.hit->start;
  };
  const auto pays = [&](int64_t count) {
    const int64_t local = std::clamp<int64_t>(local_end - memory, 0, count);
    const auto state_blocks =
        uses_state(count) ? ceil_div(state_bytes_.window_bytes, static_cast<int64_t>(store_->block_bytes())) : 0;
    const double seconds = store::load_seconds(load_cost_, static_cast<uint64_t>(local) + state_blocks, store_->block_bytes()) +
                           store::load_seconds(tier_cost_, static_cast<uint64_t>(count - local), store_->block_bytes());
    return saved_by(count) > 0 && store::load_pays(seconds, load_cost_, static_cast<uint64_t>(saved_by(count)));
  };
  int64_t count = std::max<int64_t>(0, std::min(end - memory, spare));
  if (count > local_end - memory && !pays(count)) count = local_end - memory;  // without the tier, then
  const int64_t saved = saved_by(count);
  if (memory == end && !uses_state(0)) return;  // a state behind blocks that are nowhere; the reason stays
  if ((count == 0 && !uses_state(0)) || !pays(count)) {
    const bool no_windows = state_at == 0 && replay_behind(end) <= 0;
    job.store_reason = no_windows ? MissReason::kWindowLost : MissReason::kNotWorthIt;
    return;
  }

  if (!uses_state(count)) task->state.reset();
  for (const BlockId block : held) cache_.blocks().add_ref(block);
  task->kind = StoreTask::Kind::kLoad;
  for (int64_t i = 0; i < count; ++i) {
    const auto block = cache_.allocate_block();
    CHECK(block.ok());  // they were counted
    task->blocks.push_back(*block);
  }
  const int64_t local = std::clamp<int64_t>(local_end - memory, 0, count);
  task->num_remote = static_cast<size_t>(count - local);
  task->hit.shorten(static_cast<size_t>(memory - task->first_block + local));
  task->skip = static_cast<size_t>(memory - task->first_block);
  task->parent = memory == 0 ? job.submission->root : job.keys[static_cast<size_t>(memory - 1)];
  task->first_block = memory;
  task->keys.assign(job.keys.begin() + memory, job.keys.begin() + memory + count);
  task->tokens.assign(job.tokens.begin() + memory * kBlockTokens, job.tokens.begin() + (memory + count) * kBlockTokens);
  task->held = std::move(held);
  task->done = 0;
  task->reason = MissReason::kNone;
  const auto pays_until =
      clock_.now() + store::load_limit(load_cost_, static_cast<uint64_t>(saved), options_.store_load_limit);
  job.store_until = task->deadline = std::min(job.store_until, pays_until);
  job.at_store = Job::AtStore::kLoading;
  store_held_ += std::ssize(task->blocks) + std::ssize(task->held);
  ++num_asked_;
  loading_[task->name] = task.get();
  planned_loads_.push_back(std::move(task));
}

// Called when no step runs: at depth 1 the step in flight may still read what blocks and states held before. Is there
// something new to plan?
bool EngineLoop::use_quiet() {
  for (StoreTaskPtr& task : planned_loads_) store_->submit(std::move(task));
  planned_loads_.clear();
  write_states();
  return read_states();
}

void EngineLoop::finish_load(StoreTaskPtr loaded) {
  StoreTask& task = *loaded;
  ++stats_.store_loads;
  stats_.store_loaded += static_cast<int64_t>(task.done);
  stats_.store_load_ns += static_cast<int64_t>((task.seconds + task.remote_seconds) * 1e9);
  const size_t local = std::min(task.done, task.blocks.size() - task.num_remote);
  load_cost_.observe(local, store_->block_bytes(), task.seconds);
  tier_cost_.observe(task.done - local, store_->block_bytes(), task.remote_seconds);
  loading_.erase(task.name);
  for (size_t i = 0; i < task.done; ++i) {
    cache_.blocks().publish(task.blocks[i], task.keys[i],
                            std::span<const int32_t>(task.tokens).subspan(i * kBlockTokens, kBlockTokens));
  }
  cache_.blocks().release_all(task.blocks);
  cache_.blocks().release_all(task.held);
  store_held_ -= std::ssize(task.blocks) + std::ssize(task.held);
  if (const auto found = jobs_.find(task.request); found != jobs_.end()) {
    Job& job = *found->second;
    job.loaded_first = task.first_block;
    job.loaded_end = task.first_block + static_cast<int64_t>(task.done);
    if (job.at_store == Job::AtStore::kLoading && task.done < task.blocks.size()) job.store_reason = task.reason;
  }
  if (!task.state_bytes.empty()) {
    loaded_states_.push_back(std::move(loaded));  // when no step runs
  } else {
    wake_waiting(task);
  }
}

void EngineLoop::wake_waiting(const StoreTask& task) {
  const auto found = jobs_.find(task.request);
  if (found != jobs_.end() && found->second->at_store == Job::AtStore::kLoading) {
    found->second->at_store = Job::AtStore::kDone;
  }
  for (const uint64_t id : task.others) {  // they look again: it may be less or more than they need
    const auto other = jobs_.find(id);
    if (other == jobs_.end() || other->second->at_store != Job::AtStore::kLoading) continue;
    other->second->at_store = Job::AtStore::kNotAsked;
  }
}

// ---- window states ---------------------------------------------------------------------------------------------------

StateExtent EngineLoop::window_extent(int64_t position) const {
  return {.position = position, .encoder_rows = shape_.windows.window - 1};
}

// What was loaded becomes kept states; the hit function decides who uses them.
bool EngineLoop::read_states() {
  const bool any = !loaded_states_.empty();
  for (const StoreTaskPtr& task : loaded_states_) {
    const size_t index = task->state->index;
    const int64_t position = (static_cast<int64_t>(index) + 1) * kBlockTokens;
    if (cache_.num_available_states() > promised_states()) {
      const StateId state = *cache_.allocate_state();
      const auto extent = state_bytes_.read(task->state_bytes, state);
      if (extent.ok() && extent->position == position && extent->encoder_rows >= shape_.windows.window - 1) {
        // No row of the decoder half: its stretch begins here.
        cache_.keep_state(state, {.position = position,
                                  .high = position,
                                  .step_first = position,
                                  .encoder_first = position - (shape_.windows.window - 1),
                                  .decoder_first = position,
                                  .first_block = static_cast<int64_t>(index) + 1,
                                  .keys = {task->state_keys[index]}});
        ++stats_.store_states_loaded;
      } else {
        if (!extent.ok()) log::warn("kv store: {}", extent.error().message());
        cache_.release_state(state);
      }
    }
    wake_waiting(*task);
  }
  loaded_states_.clear();
  return any;
}

// The store may have the encoder's windows at the last block border up to `most` that the kept state reaches.
void EngineLoop::offer_state(const Job& job, StateId state, int64_t most) {
  if (store_ == nullptr || !options_.store_windows || !job.submission->domain) return;
  if (job.submission->mode == ContextMode::kExact) return;
  const KeptState& kept = *cache_.kept(state);
  const int64_t blocks = most / kBlockTokens, position = blocks * kBlockTokens;
  if (blocks == 0) return;
  const int64_t first = cache_.first_encoder_row(kept.high, kept.encoder_first);
  if (first > 0 && position - (shape_.windows.window - 1) < first) return;
  OfferedState offered{.state = state,
                       .position = position,
                       .key = job.keys[static_cast<size_t>(blocks - 1)],
                       .domain = *job.submission->domain,
                       .keep_number = cache_.keep_number(state)};
  // The newest of a chain stands in for those of the last blocks, but for the one where this prompt's decoder rows begin.
  const int64_t own = job.submission->decoder_first / kBlockTokens;
  for (int64_t n = std::max<int64_t>(1, blocks - kUnitBlocks); n < blocks; ++n) {
    if (n != own) offered.replaces.push_back(job.keys[static_cast<size_t>(n - 1)]);
  }
  offered_states_.push_back(std::move(offered));
}

void EngineLoop::write_states() {
  for (OfferedState& offered : offered_states_) {
    if (cache_.keep_number(offered.state) != offered.keep_number || num_states_writing_ == kMostStates) {
      ++stats_.store_states_dropped;  // its place went to another, or the drive is behind: nobody waits
      continue;
    }
    auto task = std::make_unique<StoreTask>();
    task->kind = StoreTask::Kind::kWriteState;
    task->domain = offered.domain;
    task->keys = {offered.key};
    task->replaces = std::move(offered.replaces);
    if (!free_state_bytes_.empty()) {
      task->state_bytes = std::move(free_state_bytes_.back());
      free_state_bytes_.pop_back();
    }
    state_bytes_.write(offered.state, window_extent(offered.position), task->state_bytes);
    ++num_states_writing_;
    store_->submit(std::move(task));
  }
  offered_states_.clear();
}

// ---- write-behind ----------------------------------------------------------------------------------------------------

// What is published and not yet on its way goes to the store: always at the end of a unit (the input, the answer), else in
// whole pieces, so that the blocks of a unit lie side by side on the drive.
void EngineLoop::hand_over(Job& job, bool whole_pieces_only) {
  if (store_ == nullptr || !job.submission->domain) return;
  int64_t count = job.published - job.handed_over;
  if (whole_pieces_only) count = count / kUnitBlocks * kUnitBlocks;
  if (count == 0) return;
  const int64_t first = job.handed_over;
  job.handed_over += count;
  const int64_t room = std::max(kLeastHeld, shape_.num_blocks / kHeldShare) - store_held_;
  if (count > room) {  // the drive is behind: the tail is dropped, nobody waits
    stats_.store_dropped += count - std::max<int64_t>(0, room);
    count = room;
  }
  if (count <= 0) return;
  auto task = std::make_unique<StoreTask>();
  task->kind = StoreTask::Kind::kWrite;
  task->domain = *job.submission->domain;
  task->lineage = Lineage::kExact;
  task->first_block = first;
  task->parent = first == 0 ? job.submission->root : job.keys[static_cast<size_t>(first - 1)];
  task->keys.assign(job.keys.begin() + first, job.keys.begin() + first + count);
  task->blocks.assign(job.blocks.begin() + first, job.blocks.begin() + first + count);
  task->cost_us = static_cast<uint32_t>(std::min(4e9, kBlockTokens * cost_.prefill_row_seconds() * 1e6));
  task->one_shot = job.hit_tokens == 0 && job.prompt < kOneShotTokens;
  for (const BlockId block : task->blocks) cache_.blocks().add_ref(block);
  store_held_ += count;
  store_->submit(std::move(task));
}

// Blocks that memory served are used all the same: their time in the store begins anew.
void EngineLoop::touch_stored(const Job& job, int64_t blocks) {
  if (job.loaded_end > job.loaded_first) blocks = std::min(blocks, job.loaded_first);
  if (store_ == nullptr || !job.submission->domain || blocks == 0) return;
  auto task = std::make_unique<StoreTask>();
  task->kind = StoreTask::Kind::kTouch;
  task->domain = *job.submission->domain;
  task->keys.assign(job.keys.begin(), job.keys.begin() + blocks);
  store_->submit(std::move(task));
}

}  // namespace deepinfer
