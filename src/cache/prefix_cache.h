// What is left of earlier requests, and how much of it a new one may use: the prefix index (block_cache.h), the pool of
// kept window states, and the hit function (docs/spec/kv.md 8, docs/spec/decisions.md 2 and 3). Numbers only.
//
// Two pools with two lifetimes. Blocks are long-lived and shared. A state (the windows and rings of one sequence at one
// position) is short-lived: it is kept where inputs and outputs end, for a time to live after its last use, and goes
// when a running sequence needs its place; a replay of rows stands in for a lost one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cache/block_cache.h"
#include "cache/miss_reason.h"

namespace deepinfer {

enum class StateId : int32_t {};

// A state after `position` tokens.
struct KeptState {
  PrefixKey key = {};                      // of the full blocks before it; the root key when there are none
  int64_t position = 0;
  std::vector<int32_t> tail;               // the position % 128 tokens behind the full blocks
  std::optional<BlockId> tail_block = {};  // holds their rows; the state owns one reference
  Lineage lineage = Lineage::kExact;       // of the encoder windows and of every block before
  int64_t decoder_first = 0;               // decoder windows begin here; 0: they are whole
};

struct HitQuery {
  std::span<const int32_t> tokens;    // the prompt
  PrefixKey root = {};                // key of the empty prefix
  std::span<const PrefixKey> keys;    // of its full blocks, first one first
  bool exact = false;                 // the mode (docs/spec/decisions.md 1)
  int64_t window = 0;                 // rows an encoder replay runs before the hit
  int64_t reach = 0;                  // rows after which a replay through all layers is exact: layers x (window - 1)
  int64_t decoder_tail = 0;           // K: rows of the prompt that run the decoder half in bounded mode
};

// Where a request begins and what its rows see; the numbers of model/kv_arena.h's SequenceCut.
struct Hit {
  int64_t tokens = 0;                  // reported to the client
  int64_t start = 0;                   // first position to compute
  int64_t encoder_first = 0, decoder_first = 0, write_first = 0;
  std::vector<BlockId> blocks;         // shared; not yet referenced
  std::optional<BlockId> tail_block;   // to be copied: rows of the positions between the blocks and `start`
  std::optional<StateId> state;        // to be copied
  Lineage lineage = Lineage::kExact;   // of the rows to be computed
  bool same_as_cold = true;            // every bit is that of a run without the cache
  MissReason reason = MissReason::kNone;

  int64_t replayed() const { return std::max<int64_t>(0, write_first - start); }
};

// Owned by the engine thread.
class PrefixCache {
 public:
  struct Options {
    int64_t num_blocks = 0;
    int64_t num_states = 0;
    Clock::duration state_ttl = std::chrono::seconds(180);
  };
  explicit PrefixCache(const Options& options);

  BlockCache& blocks() { return blocks_; }
  const BlockCache& blocks() const { return blocks_; }
  // Blocks that could be had now, those that only kept states hold included.
  int64_t num_available_blocks() const;
  // BlockCache::allocate; drops kept states for their tail blocks when nothing else is left.
  Result<BlockId> allocate_block();

  int64_t num_states() const { return std::ssize(states_); }
  int64_t num_free_states() const { return std::ssize(free_states_); }
  int64_t num_kept_states() const { return num_kept_; }
  int64_t num_available_states() const { return num_free_states() + num_kept_; }
  // A state for a sequence: a free one, else that of the kept state used least recently. kResourceExhausted else.
  Result<StateId> allocate_state();
  void release_state(StateId state);  // requires an allocated state
  // Makes an allocated state findable; takes over its reference to the tail block. A state of the same prefix goes.
  void keep_state(StateId state, KeptState kept, Clock::time_point now);
  void expire_states(Clock::time_point now);
  void drop_kept_states();

  // The hit function. Always leaves one token to compute. Changes nothing; see use().
  Hit find(const HitQuery& query) const;
  // Refers to the blocks of a hit and touches its state.
  void use(const Hit& hit, Clock::time_point now);
  uint64_t version() const { return blocks_.version() + version_; }

 private:
  struct State {
    enum class Status : uint8_t { kFree, kRunning, kKept } status = Status::kFree;
    KeptState kept;
    Clock::time_point last_use;
    uint64_t use_number = 0;
  };
  State& at(StateId state) { return states_[static_cast<size_t>(state)]; }
  const State& at(StateId state) const { return states_[static_cast<size_t>(state)]; }
  std::optional<StateId> least_recent(bool with_tail_block) const;
  void drop(StateId state);  // kept -> free
  // The latest usable state, not after `last` and not behind the stored blocks.
  std::optional<StateId> find_state(const HitQuery& query, int64_t stored_blocks, int64_t last) const;
  bool usable(const HitQuery& query, const KeptState& kept) const;

  BlockCache blocks_;
  const Clock::duration ttl_;
  std::vector<State> states_;
  std::vector<StateId> free_states_;
  std::unordered_multimap<PrefixKey, StateId, PrefixKeyHash> kept_;
  int64_t num_kept_ = 0;
  uint64_t uses_ = 0, version_ = 0;
};

}  // namespace deepinfer
