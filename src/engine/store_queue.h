// What the engine asks of the KV store, on threads of its own: neither a step nor an admission ever waits for a drive
// (private to the room). docs/kv-store.md, "In the engine".
//
// Reads (find, load) and writes (write-behind, uses, new domains) have a thread each, and a remote tier has two more,
// so that a slow one holds up nothing else. Answers come back as messages. A block that a task names is held by a
// reference that the engine thread gave; the engine thread takes it back with the answer. So a write copies out of the
// arena what nobody changes, and a load fills blocks that nobody reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cache/prefix_cache.h"
#include "store/store.h"
#include "store/tiers/tier.h"

namespace deepinfer {

struct StoreTask {
  enum class Kind { kFind, kLoad, kWrite, kWriteState, kTouch } kind = Kind::kFind;
  uint64_t request = 0;          // find, load: who waits
  uint32_t domain = 0;
  Lineage lineage = Lineage::kExact;  // find: what may be used; write: of the blocks
  int64_t first_block = 0;       // block index of keys[0]
  PrefixKey parent = {};         // write: the key before keys[0]
  std::vector<PrefixKey> keys;
  std::vector<BlockId> blocks;   // load: where they go; write: where they lie; keys[i] each
  uint32_t cost_us = 0;          // write: what computing one block took
  bool one_shot = false;         // write: of a short prompt that continues nothing

  // Of a load.
  size_t skip = 0;               // blocks of the hit that are in memory already
  std::vector<BlockId> held;     // the blocks before, so that they stay
  std::vector<int32_t> tokens;   // of the blocks
  std::vector<uint64_t> others;  // requests that wait for the same blocks
  Clock::time_point deadline;    // of a find: for asking the tier

  // Window states. Find: keys of all leading blocks behind which one would help; the answer: the last of them that has one.
  // Load: it comes behind the blocks into state_bytes. WriteState: keys[0] names it, `replaces` those it stands in for.
  std::vector<PrefixKey> state_keys, replaces;
  std::optional<store::ObjectHit> state;
  std::vector<std::byte> state_bytes;
  PrefixKey name = {};           // of a load: what others wait for

  // Blocks of the tier. An answered find: those it has behind the hit; a load: the last ones of `blocks`.
  size_t num_remote = 0;

  // The answer. Find: `hit`, which a load then reads. Write: blocks that the store took.
  store::Hit hit;
  size_t done = 0;
  MissReason reason = MissReason::kNone;
  double seconds = 0, remote_seconds = 0;  // what the load took of each
};
using StoreTaskPtr = std::unique_ptr<StoreTask>;

// Runs what is posted, one after another, on a thread of its own. Thread-safe.
class Lane {
 public:
  Lane() : thread_([this] { run(); }) {}
  ~Lane() { stop(); }
  void post(std::function<void()> work);
  size_t num_waiting() const;
  bool stopping() const;
  // What was posted before is run; what comes later is not.
  void stop();

 private:
  void run();
  mutable std::mutex mu_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;  // guarded by mu_
  bool stopping_ = false;                   // guarded by mu_
  std::thread thread_;                      // last member: joined before the rest goes
};

class StoreQueue {
 public:
  using BlockBytes = std::function<std::span<std::byte>(BlockId)>;
  using Answer = std::function<void(StoreTaskPtr)>;

  // Borrows store and tier (null: none). `answer` is called on this queue's threads, once for every task but kTouch.
  StoreQueue(store::Store& store, store::GuardedTier* tier, const Clock& clock, BlockBytes block_bytes, Answer answer);
  // Writes what is waiting into the store, for a limited time; loads in flight end at their deadlines.
  ~StoreQueue();

  void submit(StoreTaskPtr task);
  uint64_t block_bytes() const { return store_.geometry().payload_bytes; }

  // Whose blocks: the number and the chain key of a tenant's domain. Waits a moment for a new one to be written down;
  // null when that takes longer, and until it is done: that tenant's requests are not kept meanwhile. Thread-safe.
  struct Tenant {
    uint32_t domain = 0;
    Key chain_key = {};
  };
  std::optional<Tenant> tenant(const std::string& name);

 private:
  void post(Lane& lane, StoreTaskPtr task, std::function<void(StoreTaskPtr)> work);
  void find(StoreTask& task);
  void find_in_tier(StoreTask& task);
  void load(StoreTask& task);
  void load_from_tier(StoreTask& task);
  void write(StoreTask& task);
  void replicate(const StoreTask& task, size_t first);

  store::Store& store_;
  store::GuardedTier* const tier_;
  const Clock& clock_;
  const BlockBytes block_bytes_;
  const Answer answer_;

  std::mutex mu_;
  std::condition_variable made_;
  std::unordered_map<std::string, uint32_t> domains_;             // guarded by mu_
  struct Making {
    bool waited = false;  // somebody did, long enough
    std::optional<Clock::time_point> retry_at = {};  // it failed
  };
  std::unordered_map<std::string, Making> being_made_;            // guarded by mu_
  Clock::time_point write_until_ = Clock::time_point::max();      // guarded by mu_; set when stopping

  std::atomic<size_t> replicating_bytes_{0};  // copies that wait for the tier

  Lane reads_, writes_, tier_reads_, tier_writes_;  // last members: they end before the rest goes
};

}  // namespace deepinfer
