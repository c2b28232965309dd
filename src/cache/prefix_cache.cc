#include "cache/prefix_cache.h"

#include <algorithm>

namespace deepinfer {

PrefixCache::PrefixCache(const Options& options)
    : blocks_(options.num_blocks), ttl_(options.state_ttl), states_(static_cast<size_t>(options.num_states)) {
  for (int64_t id = options.num_states - 1; id >= 0; --id) free_states_.push_back(static_cast<StateId>(id));
}

// ---- blocks ----------------------------------------------------------------------------------------------------------

int64_t PrefixCache::num_available_blocks() const {
  int64_t held = 0;
  if (num_kept_ > 0) {
    for (const State& state : states_) {
      if (state.status != State::Status::kKept || !state.kept.tail_block) continue;
      held += blocks_.references(*state.kept.tail_block) == 1 ? 1 : 0;
    }
  }
  return blocks_.num_available() + held;
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

void PrefixCache::keep_state(StateId state, KeptState kept, Clock::time_point now) {
  CHECK(at(state).status == State::Status::kRunning);
  const auto [first, last] = kept_.equal_range(kept.key);
  for (auto other = first; other != last; ++other) {
    const KeptState& old = at(other->second).kept;
    if (old.position != kept.position || old.tail != kept.tail) continue;
    drop(other->second);
    break;
  }
  State& entry = at(state);
  entry.status = State::Status::kKept;
  entry.last_use = now;
  entry.use_number = ++uses_;
  kept_.emplace(kept.key, state);
  entry.kept = std::move(kept);
  ++num_kept_;
  ++version_;
}

void PrefixCache::drop(StateId state) {
  State& entry = at(state);
  CHECK(entry.status == State::Status::kKept);
  const auto [first, last] = kept_.equal_range(entry.kept.key);
  kept_.erase(std::find_if(first, last, [&](const auto& item) { return item.second == state; }));
  if (entry.kept.tail_block) blocks_.release(*entry.kept.tail_block);
  entry.kept = {};
  entry.status = State::Status::kFree;
  free_states_.push_back(state);
  --num_kept_;
  ++version_;
}

void PrefixCache::expire_states(Clock::time_point now) {
  for (size_t i = 0; i < states_.size() && num_kept_ > 0; ++i) {
    if (states_[i].status == State::Status::kKept && now - states_[i].last_use >= ttl_) drop(static_cast<StateId>(i));
  }
}

void PrefixCache::drop_kept_states() {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].status == State::Status::kKept) drop(static_cast<StateId>(i));
  }
}

// ---- the hit function ------------------------------------------------------------------------------------------------

// Exact mode needs every window exact. In bounded mode the encoder windows serve any continuation, the decoder windows
// only one whose own tail begins no earlier than theirs (or that does not look at them at all).
bool PrefixCache::usable(const HitQuery& query, const KeptState& kept) const {
  if (query.exact) return kept.lineage == Lineage::kExact && kept.decoder_first == 0;
  const int64_t decoder_first = std::max<int64_t>(0, std::ssize(query.tokens) - query.decoder_tail);
  return kept.position <= decoder_first || kept.decoder_first <= decoder_first;
}

std::optional<StateId> PrefixCache::find_state(const HitQuery& query, int64_t stored_blocks, int64_t last) const {
  for (int64_t blocks = stored_blocks; blocks >= 0; --blocks) {
    const PrefixKey& key = blocks == 0 ? query.root : query.keys[blocks - 1];
    std::optional<StateId> best;
    const auto [first, end] = kept_.equal_range(key);
    for (auto item = first; item != end; ++item) {
      const KeptState& kept = at(item->second).kept;
      const bool same_tail = kept.position <= last && kept.position / kBlockTokens == blocks &&
                             std::equal(kept.tail.begin(), kept.tail.end(),
                                        query.tokens.begin() + blocks * kBlockTokens);
      if (!same_tail || !usable(query, kept)) continue;
      if (!best || kept.position > at(*best).kept.position) best = item->second;
    }
    if (best) return best;
  }
  return std::nullopt;
}

Hit PrefixCache::find(const HitQuery& query) const {
  const auto prompt = std::ssize(query.tokens);
  const int64_t last = prompt - 1;  // at least one token is computed
  const int64_t full_blocks = std::min(last / kBlockTokens, std::ssize(query.keys));
  Hit hit;
  hit.decoder_first = query.exact ? 0 : std::max<int64_t>(0, prompt - query.decoder_tail);
  if (full_blocks == 0) hit.reason = MissReason::kTooShort;

  for (int64_t i = 0; i < full_blocks; ++i) {
    const auto found = blocks_.find(query.keys[i], query.tokens.subspan(i * kBlockTokens, kBlockTokens));
    if (!found || (query.exact && found->lineage == Lineage::kDerived)) {
      hit.reason = found                                  ? MissReason::kLineage
                   : blocks_.was_evicted(query.keys[i]) ? MissReason::kEvicted
                                                          : MissReason::kAbsent;
      break;
    }
    hit.blocks.push_back(found->block);
    if (found->lineage == Lineage::kDerived) hit.lineage = Lineage::kDerived;
  }
  const int64_t stored = std::ssize(hit.blocks) * kBlockTokens;

  // Where a replay would begin; without stored blocks there is nothing to replay for.
  int64_t replay = query.exact ? stored - query.reach : std::min(stored, hit.decoder_first) - query.window;
  replay = std::max<int64_t>(0, replay);

  const auto state = find_state(query, std::ssize(hit.blocks), last);
  if (state && at(*state).kept.position >= std::max<int64_t>(replay, 1)) {
    const KeptState& kept = at(*state).kept;
    hit.state = state;
    hit.start = kept.position;
    hit.write_first = std::max(stored, kept.position);
    hit.tokens = hit.write_first;
    if (kept.position > stored) hit.tail_block = kept.tail_block;
    if (kept.lineage == Lineage::kDerived) hit.lineage = Lineage::kDerived;
    hit.same_as_cold = hit.lineage == Lineage::kExact &&
                       (query.exact || kept.position <= hit.decoder_first || kept.decoder_first == hit.decoder_first);
    // The encoder windows are whole as far as anybody can tell: a replay behind them shows in their lineage.
    return hit;
  }
  if (query.exact && stored > 0 && replay == 0) {  // recomputing everything is no hit
    Hit miss;
    miss.reason = MissReason::kWindowLost;
    return miss;
  }
  hit.tokens = hit.write_first = stored;
  hit.start = hit.encoder_first = replay;
  if (query.exact) {
    hit.decoder_first = replay;  // behind the reach, rows see what a cold run sees
  } else if (replay > 0) {
    hit.lineage = Lineage::kDerived;
  }
  hit.same_as_cold = query.exact || (replay == 0 && hit.lineage == Lineage::kExact);
  return hit;
}

void PrefixCache::use(const Hit& hit, Clock::time_point now) {
  for (const BlockId block : hit.blocks) blocks_.add_ref(block);
  if (!hit.state) return;
  at(*hit.state).last_use = now;
  at(*hit.state).use_number = ++uses_;
}

}  // namespace deepinfer
