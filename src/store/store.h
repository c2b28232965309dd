// The KV store: blocks of one fixed size under 32-byte digests, on drives, with promises that are written
// down.
//
// What is promised (docs/spec/kv.md 2):
//   P1  A block is used only if place, key, domain, block index, fingerprint, lengths and every crc are
//   right; else it is
//       a miss.
//   P2  No call fails or waits past its deadline because of a drive: it stores or finds less.
//   P3  Persisted means data and header are on stable media; kill, crash and power loss keep it.
//   P4  A block admitted as guaranteed is found for its time to live after the last write or use.
//   P5  Nothing is shared between domains.
//
// The store knows neither tokens nor tensors. cache/keys.h makes digests; the format is docs/formats/kv-segment.md.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/miss_reason.h"
#include "store/tenants/domains.h"
#include "store/log/format.h"
#include "store/io/io_backend.h"

namespace deepinfer::store {

enum class StoreMode { kReadWrite, kReadOnly };  // read-only: beside a writer in another process

struct StoreOptions {
  std::vector<std::string> drives;      // one directory each, made when missing
  uint64_t capacity_bytes = 0;          // a drive; 0: nine tenths of what is free at opening
  uint64_t segment_bytes = 1ull << 30;  // made smaller when the capacity would hold fewer than 16
  Digest fingerprint{};
  uint32_t payload_bytes = 0;
  std::array<uint32_t, kMaxGroups> group_bytes{};  // their sum is payload_bytes
  Key master_key{};
  bool encrypt = false;
  bool shared_domains = false;  // new domains get the secret that other stores under this master key give them
  StoreMode mode = StoreMode::kReadWrite;

  // Without threads nothing moves except in step(); for tests and simulations.
  bool threads = true;
  uint64_t staging_bytes = 32ull << 20;        // a drive: blocks that wait to be written; more are refused
  uint64_t commit_bytes = 8ull << 20;          // a group commit: this many bytes,
  std::chrono::milliseconds commit_delay{50};  // or when the oldest has waited that long
  std::chrono::minutes seal_after{15};
  std::chrono::milliseconds write_limit{10'000};  // a write or sync that takes longer: the drive is given up
  size_t read_queues = 4;                         // a drive: loads at once
  uint64_t read_bytes = 8ull << 20;               // memory of each
  size_t read_depth = 64;                         // reads in flight of each
  double promised_share = 0.85;                   // of the capacity
  double reinsertion_share = 0.30;                // of bytes written, for blocks without a promise
  uint64_t write_budget_bytes_per_day =
      0;  // a drive, from its endurance; 0: none. Over it best effort is dropped first
  std::chrono::hours scrub_every{14 * 24};  // each record is read and checked that often; 0: never
};

// One block to store. Everything but the payload.
struct BlockInfo {
  uint32_t domain = 0;
  Digest key{}, parent{};
  uint32_t block_index = 0;
  Lineage lineage = Lineage::kExact;
  std::optional<RetentionClass> retention = {};  // none: the domain's own class
  uint32_t cost_us = 0;                     // what computing it took
  bool one_shot = false;  // short and without a session: the first to go when the write budget is spent
};

// One object to store beside the blocks: a thing of any size up to kMaxObjectBytes that belongs to a position of a chain,
// as the window state of a sequence after so many full blocks. Best effort: the first to go when room is needed.
struct ObjectInfo {
  RecordKind kind = RecordKind::kWindowState;
  uint32_t domain = 0;
  Digest key{};  // chain key of the full blocks before the position (the root key at position 0)
  Lineage lineage = Lineage::kExact;
  // Chain keys of earlier positions of this chain whose objects of this kind nobody needs once this one is there. A window
  // state names those of the last 2,048 tokens: the keys of the 16 blocks before it.
  std::span<const Digest> replaces = {};
};
inline constexpr size_t kMaxObjectBytes = 16u << 20;

enum class PutResult {
  kQueued,
  kPresent,     // stored or on its way: nothing to do
  kFull,        // staging is full; drop the tail of the unit
  kOverBudget,  // the drive's write budget for today is spent
  kRefused,     // read-only, every drive failed, or the domain is unknown; an object that is empty or too large
};

class StoreImpl;
struct Segment;

// The stored prefix of a chain, pinned: what it names cannot be reclaimed while it lives. Movable.
// Thread-compatible.
class Hit {
 public:
  Hit() = default;
  ~Hit();
  Hit(Hit&&) noexcept;
  Hit& operator=(Hit&&) noexcept;

  size_t num_blocks() const { return blocks_.size(); }
  MissReason reason() const { return reason_; }  // why it ends where it ends; kNone: all keys were found
  Lineage lineage(size_t i) const { return blocks_[i].lineage; }
  // Forgets the blocks behind the first `num_blocks`.
  void shorten(size_t num_blocks) { blocks_.resize(std::min(num_blocks, blocks_.size())); }

 private:
  friend class StoreImpl;
  struct Block {
    Digest key;
    Segment* segment;  // of the store, which never lets one go
    uint32_t slot;
    Lineage lineage;
  };
  StoreImpl* store_ = nullptr;  // Borrowed; outlives every Hit.
  RecordKind kind_ = RecordKind::kBlock;
  uint32_t domain_ = 0;
  uint32_t first_index_ = 0;  // block index of blocks_[0]
  std::vector<Block> blocks_;
  std::vector<Segment*> pinned_;
  MissReason reason_ = MissReason::kNone;
};

// An object that was found. Its beginning is pinned; the rest may go before it is loaded. Movable.
struct ObjectHit {
  size_t index = 0;  // in the keys that were asked for
  Lineage lineage = Lineage::kExact;
  RecordKind kind = RecordKind::kWindowState;
  uint32_t domain = 0;
  Digest key{};
  Hit first;  // its first piece
};

struct LoadedObject {
  std::vector<std::byte> bytes;  // those that were put; empty when there is a reason
  MissReason reason = MissReason::kNone;
};

struct LoadResult {
  size_t num_blocks = 0;  // leading blocks that were delivered right
  MissReason reason = MissReason::kNone;
};

// Called with verified payload, in any order, on the caller's thread; the span is valid during the call.
using BlockSink = std::function<void(size_t block, std::span<const std::byte> payload)>;

// How long something took: counts by upper bound, as Prometheus wants them summed up.
struct LatencyHistogram {
  static constexpr std::array<double, 9> kBounds = {0.0005, 0.002, 0.008, 0.03, 0.1, 0.4, 1.5, 6, 25};  // s
  std::array<uint64_t, kBounds.size() + 1> counts{};  // the last one: longer
  double sum_s = 0;

  void observe(double seconds) {
    ++counts[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin())];
    sum_s += seconds;
  }
};

struct DriveStats {
  std::string path;
  std::string state;  // "recovering", "ok", "read-only: ...", "failed: ..."
  uint64_t capacity_bytes = 0, used_bytes = 0;
  uint64_t segments = 0, records = 0, free_segments = 0;
  uint64_t written_bytes = 0;  // records for callers
  uint64_t reinserted_bytes = 0;
  uint64_t device_bytes = 0;  // all writes, footers and headers included
  uint64_t corrupt = 0, read_errors = 0, lost_files = 0, reclaims = 0;
  uint64_t quarantined_queues = 0;
};

struct StoreStats {
  std::string backend;
  uint64_t records = 0;
  uint64_t index_bytes = 0;
  uint64_t queued_bytes = 0;
  uint64_t promised_bytes = 0, promised_limit_bytes = 0;
  uint64_t puts = 0, present = 0, persisted = 0, demoted = 0;
  uint64_t dropped_full = 0, dropped_budget = 0, dropped_no_room = 0, dropped_error = 0;
  uint64_t evicted = 0, expired = 0, broken_promises = 0;  // the last one stays 0
  uint64_t clock_steps_back = 0, clock_steps_forward = 0;  // of the machine's clock
  uint64_t lookups = 0, hit_blocks = 0, loaded_blocks = 0, verified_bytes = 0;
  // Objects: taken, made useless by a newer one, found, loaded right.
  uint64_t objects_put = 0, objects_replaced = 0, objects_found = 0, objects_loaded = 0;
  std::array<uint64_t, kNumStoreMissReasons> misses{};
  LatencyHistogram load_latency;     // of load(), whatever came of it
  LatencyHistogram persist_latency;  // of a record from put() until it is persisted
  double oldest_queued_s = 0;        // how long the record waits that waits longest
  std::array<double, kNumClasses> oldest_s{};  // age of the oldest segment of each class in which something is left
  double projected_retention_s = 0;  // promisable bytes / rate of promised writes over the last hours
  std::vector<DriveStats> drives;
};

// Thread-safe, except where said.
class Store {
 public:
  // kInvalidArgument (options), kUnavailable (another writer), kDataLoss (domain table), kIo. Backend and
  // clock are borrowed and outlive the store. Finding what is on the drives goes on behind this call; until
  // then it is a miss.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options, IoBackend& backend,
                                             const Clock& clock);
  // Writes what is queued (for at most write_limit), seals nothing: the next opening recovers open segments.
  ~Store();

  // The domain of that name, made when it is new. kUnavailable in read-only mode for a new one.
  Result<uint32_t> domain(std::string_view name);
  std::optional<uint32_t> find_domain(std::string_view name) const;  // makes none
  // kNotFound for unknown or deleted numbers.
  Result<Key> chain_key(uint32_t domain) const;
  // Quota of promised bytes, class and time to live. kResourceExhausted when the sum of quotas would exceed
  // what the store may promise; kInvalidArgument.
  Status set_quota(uint32_t domain, uint64_t quota_bytes, RetentionClass retention, uint32_t ttl_hours);
  // Its blocks are not found from now on; its secret is gone from the table. Space returns with reclaim.
  Status delete_domain(uint32_t domain);
  std::vector<DomainInfo> domains() const;  // without secrets

  PutResult put(const BlockInfo& block, std::span<const std::byte> payload);
  // Waits until everything put so far is persisted or dropped. kDeadlineExceeded.
  Status flush(Clock::time_point deadline);

  // The longest stored prefix of `keys`, whose first has the block index `first_index`. With Lineage::kExact
  // derived blocks end it.
  Hit lookup(uint32_t domain, std::span<const Digest> keys, Lineage accept, uint32_t first_index = 0);
  // Reads blocks [first, num_blocks) of the hit; at most one attempt a block. Ends at the deadline whatever a
  // drive does.
  LoadResult load(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink);
  // Counts as use of blocks that a nearer tier served.
  void touch(uint32_t domain, std::span<const Digest> keys);

  // Objects. All that is promised of blocks holds, but their retention: they are checked as a whole too, so an object that
  // comes back is one that was put under this kind, domain and key. How a window state is kept:
  //
  //   put_object({.kind = RecordKind::kWindowState, .domain = domain, .key = keys[n - 1], .lineage = lineage,
  //               .replaces = last 16 of keys[0 .. n - 1)}, state);            // after n full blocks
  //   if (const auto found = find_newest(RecordKind::kWindowState, domain, keys, accept))   // keys of the prompt's blocks
  //     LoadedObject state = load_object(*found, deadline);                    // of position 128 (found->index + 1)
  //
  // put_object copies `bytes` into staging and waits for no drive; kPresent when the key has an object of this lineage or
  // a better one. It is found once it is persisted. find_newest gives the last of `keys` that has an object and reads
  // nothing; load_object reads and takes a reason for no bytes: go on without, or ask find_newest with the keys before.
  // A remote tier keeps objects through objects.h.
  PutResult put_object(const ObjectInfo& object, std::span<const std::byte> bytes);
  std::optional<ObjectHit> find_newest(RecordKind kind, uint32_t domain, std::span<const Digest> keys, Lineage accept);
  LoadedObject load_object(const ObjectHit& found, Clock::time_point deadline);

  // Reads and checks up to `max_records` sealed records, going on where the last call stopped; returns the
  // damaged ones.
  size_t scrub(size_t max_records, Clock::time_point deadline);
  // Read-only mode: takes in what the writer did since. Writers: nothing.
  Status refresh();
  // Waits until all drives are recovered.
  Status wait_ready(Clock::time_point deadline);

  StoreStats stats() const;
  const Geometry& geometry() const;
  const Digest& fingerprint() const;

  // Without threads: writes what is queued, seals, reclaims, scrubs. Not thread-safe. True when something was
  // done.
  bool step();

 private:
  explicit Store(std::unique_ptr<StoreImpl> impl);
  std::unique_ptr<StoreImpl> impl_;
};

}  // namespace deepinfer::store
