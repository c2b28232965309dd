// What is left of earlier requests, and how much of it a new one may use: the prefix index (block_cache.h), the pool of
// kept window states, and the hit function. Numbers only. docs/context-modes.md proves why no hit changes a bit in the
// exact and stable modes; docs/scheduling.md has the rest.
//
// Two pools with two lifetimes. Blocks are long-lived and shared. A state (the windows and rings of one sequence at one
// position) is short-lived: it is kept where inputs and outputs end and where prompts parted, and goes when a running
// sequence or a younger state needs its place. A replay of rows stands in for a lost one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_cache.h"
#include "cache/context.h"
#include "cache/miss_reason.h"

namespace deepinfer {

enum class StateId : int32_t {};

// A state after `position` tokens, and what it knows of the rows before.
struct KeptState {
  int64_t position = 0;
  int64_t high = 0;            // rings were written up to here: more than `position` behind drafts that were refused
  int64_t step_first = 0;      // no step back goes further: short rings hold nothing below
  int64_t encoder_first = 0;   // rings of encoder layers hold nothing below; 0: whole as far as they reach
  int64_t decoder_first = 0;   // the stretch of decoder rows it belongs to begins here; 0: every row ran
  // Its prefix: keys[i] names the first (first_block + i) blocks, up to all full ones; the root key names none. Tokens
  // from 128 * first_block on. They reach back as far as the rings do (PrefixCache::first_block_of).
  int64_t first_block = 0;
  std::vector<PrefixKey> keys = {};
  std::vector<int32_t> tokens = {};
  std::optional<BlockId> tail_block = {};  // rows behind the full blocks; the state owns one reference
};

struct HitQuery {
  std::span<const int32_t> tokens;    // the prompt, and what was drawn behind it when it was pre-empted
  PrefixKey root = {};                // key of the empty prefix
  std::span<const PrefixKey> keys;    // of its full blocks, first one first
  ContextMode mode = ContextMode::kStable;
  int64_t decoder_first = 0;          // first_decoder_row() of the prompt
};

// Where a request begins and what its rows see; the numbers of model/kv_arena.h's SequenceCut.
struct Hit {
  int64_t tokens = 0;                  // reported to the client
  int64_t start = 0;                   // first position to compute
  int64_t encoder_first = 0, decoder_first = 0, write_first = 0;
  std::vector<BlockId> blocks;         // shared; not yet referenced
  std::optional<BlockId> tail_block;   // to be copied, not yet referenced: rows of the positions between the blocks and `start`
  std::optional<StateId> state;        // to be copied
  int64_t high = 0, step_first = 0, whole_from = 0;  // what its rings then hold: KeptState's, the last as encoder_first
  bool derived = false;                // bounded mode without its windows: the bits are not those of a cold run
  MissReason reason = MissReason::kNone;

  int64_t replayed() const { return std::max<int64_t>(0, write_first - start); }
};

// Owned by the engine thread.
class PrefixCache {
 public:
  struct Options {
    int64_t num_blocks = 0;
    int64_t num_states = 0;
    WindowGeometry windows;
  };
  explicit PrefixCache(const Options& options);

  BlockCache& blocks() { return blocks_; }
  const BlockCache& blocks() const { return blocks_; }
  // Blocks that could be had now, those that only kept states hold included.
  int64_t num_available_blocks() const;
  // Is it one of them? Whoever refers to it takes it from them.
  bool is_available(BlockId block) const;
  // BlockCache::allocate; drops kept states for their tail blocks when nothing else is left.
  Result<BlockId> allocate_block();

  int64_t num_states() const { return std::ssize(states_); }
  int64_t num_free_states() const { return std::ssize(free_states_); }
  int64_t num_kept_states() const { return num_kept_; }
  int64_t num_available_states() const { return num_free_states() + num_kept_; }
  // A state for a sequence: a free one, else that of the kept state used least recently. kResourceExhausted else.
  Result<StateId> allocate_state();
  void release_state(StateId state);  // requires an allocated state
  // Makes an allocated state findable; takes over its reference to the tail block. One that serves the same goes.
  void keep_state(StateId state, KeptState kept);
  void drop_kept_states();
  // Null when the state is not kept. Every keeping has a number of its own; 0: not kept.
  const KeptState* kept(StateId state) const {
    return at(state).status == State::Status::kKept ? &at(state).kept : nullptr;
  }
  uint64_t keep_number(StateId state) const { return kept(state) == nullptr ? 0 : at(state).keep_number; }
  // The first row that the encoder's rings of such a state hold, and the fewest blocks of a prefix that it serves.
  int64_t first_encoder_row(int64_t high, int64_t encoder_first) const;
  int64_t first_block_of(int64_t high, int64_t encoder_first) const;

  // The hit function. Always leaves one token to compute. Changes nothing; see use().
  Hit find(const HitQuery& query) const;
  // Refers to the blocks of a hit and touches its state.
  void use(const Hit& hit);
  // Where a run of the encoder begins whose rows are those of a cold run from `needed` on; in bounded mode: about so.
  // At or below 0: at the beginning.
  int64_t replay_start(const HitQuery& query, int64_t stored) const;
  uint64_t version() const { return blocks_.version() + version_; }

 private:
  struct State {
    enum class Status : uint8_t { kFree, kRunning, kKept } status = Status::kFree;
    KeptState kept;
    uint64_t use_number = 0, keep_number = 0;
  };
  struct Resume {
    StateId state;
    int64_t position;
  };
  State& at(StateId state) { return states_[static_cast<size_t>(state)]; }
  const State& at(StateId state) const { return states_[static_cast<size_t>(state)]; }
  std::optional<StateId> least_recent(bool with_tail_block) const;
  void drop(StateId state);  // kept -> free
  // The latest position at which a state serves the query, with so many blocks stored.
  std::optional<Resume> find_state(const HitQuery& query, int64_t stored_blocks) const;
  std::optional<BlockId> tail_of(const KeptState& kept, int64_t blocks) const;
  int64_t nearest_of(const KeptState& kept) const;  // where a step back ends
  int64_t serves_at(const HitQuery& query, const KeptState& kept, int64_t blocks, int64_t stored_blocks) const;

  BlockCache blocks_;
  const WindowGeometry windows_;
  std::vector<State> states_;
  std::vector<StateId> free_states_;
  std::unordered_multimap<PrefixKey, StateId, PrefixKeyHash> kept_;  // each under all of its keys
  std::unordered_map<BlockId, int32_t> tails_;  // tail blocks, and how many kept states refer to each
  int64_t num_kept_ = 0;
  uint64_t uses_ = 0, version_ = 0;
};

}  // namespace deepinfer
