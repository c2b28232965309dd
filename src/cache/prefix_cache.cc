#include "cache/prefix_cache.h"

#include <algorithm>

namespace deepinfer {

PrefixCache::PrefixCache(const Options& options)
    : blocks_(options.num_blocks), windows_(options.windows), states_(static_cast<size_t>(options.num_states)) {
  for (int64_t id = options.num_states - 1; id >= 0; --id) free_states_.push_back(static_cast<StateId>(id));
}

// ---- blocks ----------------------------------------------------------------------------------------------------------

int64_t PrefixCache::num_available_blocks() const {
  const auto held = std::count_if(tails_.begin(), tails_.end(), [this](const auto& tail) {
    return blocks_.references(tail.first) == tail.second;
  });
  return blocks_.num_available() + held;
}

bool PrefixCache::is_available(BlockId block) const {
  const auto tail = tails_.find(block);
  return blocks_.references(block) == (tail == tails_.end() ? 0 : tail->second);
}

Result<BlockId> PrefixCache::allocate_block() {
  while (blocks_.num_available() == 0) {
    const auto victim = least_recent(true);
    if (!victim) break;
    drop(*victim);
  }
  return blocks_.allocate();
}

// ---- states ----------------------------------------------------------------------------------------------------------

std::optional<StateId> PrefixCache::least_recent(bool with_tail_block) const {
  std::optional<StateId> found;
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    if (state.status != State::Status::kKept || (with_tail_block && !state.kept.tail_block)) continue;
    if (!found || state.use_number < at(*found).use_number) found = static_cast<StateId>(i);
  }
  return found;
}

Result<StateId> PrefixCache::allocate_state() {
  if (free_states_.empty()) {
    const auto victim = least_recent(false);
    if (!victim) return Error(Code::kResourceExhausted, "all {} sequence states are in use", num_states());
    drop(*victim);
  }
  const StateId state = free_states_.back();
  free_states_.pop_back();
  at(state).status = State::Status::kRunning;
  return state;
}

void PrefixCache::release_state(StateId state) {
  CHECK(at(state).status == State::Status::kRunning);
  at(state).status = State::Status::kFree;
  free_states_.push_back(state);
}

// The rings hold rows from high - (window + encoder_back) on, and position q needs window - 1 of them.
int64_t PrefixCache::first_encoder_row(int64_t high, int64_t encoder_first) const {
  return std::max<int64_t>({0, encoder_first, high - windows_.window - windows_.encoder_back});
}

int64_t PrefixCache::first_block_of(int64_t high, int64_t encoder_first) const {
  const int64_t first = first_encoder_row(high, encoder_first);
  return first == 0 ? 0 : (first + windows_.window - 1) / kBlockTokens;
}

int64_t PrefixCache::nearest_of(const KeptState& kept) const {
  return std::max(kept.high - windows_.step_back, kept.step_first);
}

void PrefixCache::keep_state(StateId state, KeptState kept) {
  CHECK(at(state).status == State::Status::kRunning);
  CHECK(std::ssize(kept.keys) == kept.position / kBlockTokens - kept.first_block + 1);
  const auto [first, last] = kept_.equal_range(kept.keys.back());
  for (auto other = first; other != last; ++other) {
    const KeptState& old = at(other->second).kept;
    const bool same = old.position == kept.position && old.decoder_first == kept.decoder_first &&
                      old.keys.back() == kept.keys.back() &&
                      std::equal(old.tokens.rbegin(), old.tokens.rbegin() + old.position % kBlockTokens,
                                 kept.tokens.rbegin());
    if (!same) continue;
    drop(other->second);
    break;
  }
  State& entry = at(state);
  entry.status = State::Status::kKept;
  entry.use_number = entry.keep_number = ++uses_;
  for (const PrefixKey& key : kept.keys) kept_.emplace(key, state);
  if (kept.tail_block) ++tails_[*kept.tail_block];
  entry.kept = std::move(kept);
  ++num_kept_;
  ++version_;
}

void PrefixCache::drop(StateId state) {
  State& entry = at(state);
  CHECK(entry.status == State::Status::kKept);
  for (const PrefixKey& key : entry.kept.keys) {
    const auto [first, last] = kept_.equal_range(key);
    kept_.erase(std::find_if(first, last, [&](const auto& item) { return item.second == state; }));
  }
  if (const auto tail = entry.kept.tail_block) {
    if (--tails_[*tail] == 0) tails_.erase(*tail);
    blocks_.release(*tail);
  }
  entry.kept = {};
  entry.status = State::Status::kFree;
  free_states_.push_back(state);
  --num_kept_;
  ++version_;
}

void PrefixCache::drop_kept_states() {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].status == State::Status::kKept) drop(static_cast<StateId>(i));
  }
}

// ---- the hit function ------------------------------------------------------------------------------------------------

// The block behind the state's first `blocks` ones: its own, or what is cached of its prefix.
std::optional<BlockId> PrefixCache::tail_of(const KeptState& kept, int64_t blocks) const {
  if (blocks == kept.position / kBlockTokens) return kept.tail_block;
  const int64_t index = blocks - kept.first_block;
  return blocks_.find(kept.keys[static_cast<size_t>(index + 1)],
                      std::span(kept.tokens).subspan(static_cast<size_t>(index * kBlockTokens), kBlockTokens));
}

// The latest position at which this state, of the same first `blocks` blocks, stands in for a run of the query's own
// rows; 0: nowhere. Below stored_blocks blocks a state needs no rows of its own: they stand in shared blocks.
int64_t PrefixCache::serves_at(const HitQuery& query, const KeptState& kept, int64_t blocks, int64_t stored_blocks) const {
  const int64_t begin = blocks * kBlockTokens, stored = stored_blocks * kBlockTokens;
  const int64_t last = std::min(std::ssize(query.tokens) - 1, kept.position);  // one token at least is computed
  if (last < begin) return 0;
  const auto own = kept.tokens.begin() + (begin - kept.first_block * kBlockTokens);
  int64_t position = std::mismatch(own, own + (last - begin), query.tokens.begin() + begin).first - own + begin;
  if (position > stored && !(blocks == stored_blocks && tail_of(kept, blocks))) position = stored;

  // Near its position the whole state serves, as after a step back. The stretch of decoder rows must be the query's.
  const int64_t nearest = nearest_of(kept);
  const bool same_rows = kept.decoder_first == query.decoder_first ||
                         position - std::max(kept.decoder_first, query.decoder_first) >= windows_.decoder_reach();
  if (position > query.decoder_first && !(same_rows && position >= nearest)) position = query.decoder_first;
  // Further back only encoder rings are whole; a pair that is half done can't be gone on with.
  if (position < nearest) position -= position % 2;
  const int64_t first = first_encoder_row(kept.high, kept.encoder_first);
  return first == 0 || position - (windows_.window - 1) >= first ? position : 0;
}

std::optional<PrefixCache::Resume> PrefixCache::find_state(const HitQuery& query, int64_t stored_blocks) const {
  std::optional<Resume> best;
  // States of fewer common blocks serve earlier positions only.
  for (int64_t blocks = stored_blocks; blocks >= 0; --blocks) {
    if (best && best->position >= (blocks + 1) * kBlockTokens) break;
    const auto [first, end] = kept_.equal_range(blocks == 0 ? query.root : query.keys[blocks - 1]);
    for (auto item = first; item != end; ++item) {
      const int64_t position = serves_at(query, at(item->second).kept, blocks, stored_blocks);
      if (position > (best ? best->position : 0)) best = {item->second, position};
    }
  }
  return best;
}

int64_t PrefixCache::replay_start(const HitQuery& query, int64_t stored) const {
  if (query.mode == ContextMode::kExact) return stored - windows_.reach();
  const int64_t needed = std::min(stored, query.decoder_first);
  if (query.mode == ContextMode::kBounded) return needed - windows_.window;
  return needed - needed % 2 - windows_.encoder_reach();
}

Hit PrefixCache::find(const HitQuery& query) const {
  const int64_t last = std::ssize(query.tokens) - 1;  // at least one token is computed
  const int64_t full_blocks = std::min(last / kBlockTokens, std::ssize(query.keys));
  Hit hit;
  hit.decoder_first = query.decoder_first;
  if (full_blocks == 0) hit.reason = MissReason::kTooShort;

  for (int64_t i = 0; i < full_blocks; ++i) {
    const auto found = blocks_.find(query.keys[i], query.tokens.subspan(i * kBlockTokens, kBlockTokens));
    if (!found) {
      hit.reason = blocks_.was_evicted(query.keys[i]) ? MissReason::kEvicted : MissReason::kAbsent;
      break;
    }
    hit.blocks.push_back(*found);
  }
  const int64_t stored = std::ssize(hit.blocks) * kBlockTokens;
  const int64_t replay = std::max<int64_t>(0, replay_start(query, stored));

  const auto resume = find_state(query, std::ssize(hit.blocks));
  if (resume && resume->position >= replay) {
    const KeptState& kept = at(resume->state).kept;
    hit.state = resume->state;
    hit.start = resume->position;
    // Further back than a step the short rings begin anew, and the long ones lack what was overwritten.
    const bool is_step = hit.start >= nearest_of(kept);
    hit.high = is_step ? kept.high : hit.start;
    hit.step_first = is_step ? kept.step_first : hit.start;
    hit.whole_from = first_encoder_row(kept.high, kept.encoder_first);
    hit.tokens = hit.write_first = std::max(stored, hit.start);
    if (hit.start > stored) hit.tail_block = tail_of(kept, std::ssize(hit.blocks));
    return hit;
  }
  hit.write_first = stored;
  hit.start = hit.high = hit.step_first = hit.encoder_first = replay;
  if (replay == 0 && query.mode != ContextMode::kBounded) {  // every row is computed, which is no hit
    if (stored > 0) hit.reason = MissReason::kWindowLost;
    return hit;
  }
  hit.tokens = stored;
  if (query.mode == ContextMode::kExact) hit.decoder_first = replay;  // behind the reach rows are those of a cold run
  hit.derived = query.mode == ContextMode::kBounded && replay > 0;
  hit.whole_from = replay == 0 ? 0 : stored - (windows_.window - 1);
  return hit;
}

void PrefixCache::use(const Hit& hit) {
  for (const BlockId block : hit.blocks) blocks_.add_ref(block);
  if (hit.state) at(*hit.state).use_number = ++uses_;
}

}  // namespace deepinfer
