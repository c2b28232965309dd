// The inside of the store. One mutex guards the index, the segment table and all accounting; it is never held
// across I/O. Each drive has one writer (a thread, or the caller of step()), which alone opens, fills, seals
// and reclaims its segments; readers pin segments and read beside it.
//
//   recovery.cc  finding what is on a drive
//   writer.cc    group commit, open and sealed segments
//   reclaim.cc   who is dropped, who is copied forward
//   reader.cc    lookup, load, scrub
//   objects.cc   objects of several records
//   store.cc     opening, put, domains, stats
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "store/log/index.h"
#include "store/log/store_time.h"
#include "store/tenants/promises.h"
#include "store/store.h"

namespace deepinfer::store {

enum class SegmentUse { kFree, kOpen, kSealed, kReclaiming, kGone };

// A segment file in one of its lives. Fields are guarded by StoreImpl::mu_ unless said.
struct Segment {
  uint32_t ordinal = 0;
  size_t drive = 0;
  SegmentUse use = SegmentUse::kFree;
  SegmentHeader header;              // fixed while in use
  std::shared_ptr<IoFile> file;      // shared with reads in flight
  uint32_t next_slot = 1;            // writer only
  uint64_t opened_ms = 0;            // writer only
  uint64_t last_sequence = 0;        // writer only
  std::vector<FooterEntry> entries;  // of an open one; writer only
  bool broken = false;               // a write failed: nothing more is appended; writer only
  bool foreign = false;              // of another fingerprint: kept for its time, never read
  uint32_t live = 0;                 // index entries that point here
  uint32_t pins = 0;
  uint64_t used_bytes = 0;
  uint64_t newest_expiry = 0;  // hour; no promise in it lasts longer
  uint64_t last_hit_hour = 0;
};

// A block on its way to a drive: what put() staged, or a record that reclaim copies forward.
struct Item {
  RecordHeader header;
  std::span<std::byte> slot;  // payload in place, in the clear
  uint64_t use_hour = 0;
  uint8_t hits = 0;
  std::optional<Location> moved_from;
  // Set by commit().
  Segment* segment = nullptr;
  enum class State { kWaiting, kPersisted, kNoRoom, kFailed } state = State::kWaiting;
};

struct Staged {
  RecordKind kind = RecordKind::kBlock;
  BlockInfo info;
  RetentionClass retention = RetentionClass::kBestEffort;
  uint64_t expiry_hour = 0;
  uint64_t created_ms = 0;
  Clock::time_point since;
  bool ready = false;
};

struct Drive;

// Room in a drive's ring for one record.
struct StagedSlot {
  Drive* drive = nullptr;
  Staged* staged = nullptr;
  std::span<std::byte> payload;
};

// What a record must say of itself to be the one that was asked for.
struct ExpectedRecord {
  RecordKind kind = RecordKind::kBlock;
  Digest key{};
  uint32_t domain = 0;
  std::optional<uint32_t> block_index = {};
};

// A queue for loads. Owned by one load at a time, or quarantined while a drive still owes it answers.
struct ReadQueue {
  std::unique_ptr<IoQueue> queue;
};

enum class Health { kRecovering, kOk, kReadOnly, kFailed };

struct Drive {
  size_t number = 0;
  std::string path;
  DriveMeta meta;
  std::unique_ptr<IoLock> lock;
  std::atomic<Health> health = Health::kRecovering;  // changed with mu_ held
  std::string why;
  uint64_t capacity = 0;
  uint64_t room_limit = UINT64_MAX;  // what the file system turned out to hold
  Clock::time_point room_limit_until;
  std::optional<Clock::time_point> full_said_at;  // in the log
  uint64_t used = 0;

  // Writer only.
  uint64_t next_sequence = 0;
  uint64_t next_generation = 0;
  uint64_t next_segment_id = 0;
  std::array<Segment*, kNumClasses> open{};
  std::vector<Segment*> full;            // no slot left; sealed once what was written to them is published
  std::unique_ptr<IoQueue> write_queue;  // its memory is the staging ring
  std::unique_ptr<IoQueue> meta_queue;   // segment headers and footers that are written
  std::unique_ptr<IoQueue> copy_queue;   // recovery, and what reclaim reads and copies forward
  Clock::time_point touched_at;
  bool touched_changed = false;  // guarded by mu_
  double mean_score = 0;

  std::vector<Segment*> segments;  // all lives but kGone
  std::vector<Staged> ring;        // slot i of the ring is at i * slot_bytes of write_queue's memory
  size_t ring_tail = 0, ring_count = 0;
  size_t num_ready = 0;

  // Reads.
  std::vector<std::unique_ptr<IoQueue>> idle_queues, quarantine;
  size_t queues_in_use = 0;
  int failures = 0;
  std::chrono::seconds cool_down{5};
  Clock::time_point down_until;

  uint64_t day = 0, day_bytes = 0, corrupt_today = 0;
  size_t scrub_segment = 0;
  uint32_t scrub_entry = 0;
  double scrub_debt = 0;
  Clock::time_point scrubbed_at;
  DriveStats stats;
  std::condition_variable wake;
  std::thread thread;
};

struct DigestHash {
  size_t operator()(const Digest& digest) const {
    size_t hash;
    std::memcpy(&hash, digest.data(), sizeof hash);
    return hash;
  }
};

class StoreImpl {
 public:
  StoreImpl(const StoreOptions& options, IoBackend& backend, const Clock& clock, Geometry geometry,
            Index index);
  ~StoreImpl();

  Status open();
  Result<uint32_t> domain(std::string_view name);
  std::optional<uint32_t> find_domain(std::string_view name) const;
  Result<Key> chain_key(uint32_t domain) const;
  Status set_quota(uint32_t domain, uint64_t quota_bytes, RetentionClass retention, uint32_t ttl_hours);
  Status delete_domain(uint32_t domain);
  std::vector<DomainInfo> domains() const;
  PutResult put(const BlockInfo& block, std::span<const std::byte> payload);
  PutResult put_object(const ObjectInfo& object, std::span<const std::byte> bytes);
  std::optional<ObjectHit> find_newest(RecordKind kind, uint32_t domain, std::span<const Digest> keys, Lineage accept);
  LoadedObject load_object(const ObjectHit& found, Clock::time_point deadline);
  Status flush(Clock::time_point deadline);
  Hit lookup(uint32_t domain, std::span<const Digest> keys, Lineage accept, uint32_t first_index);
  LoadResult load(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink);
  void touch(uint32_t domain, std::span<const Digest> keys);
  size_t scrub(size_t max_records, Clock::time_point deadline);
  Status refresh();
  Status wait_ready(Clock::time_point deadline);
  StoreStats stats() const;
  const Geometry& geometry() const { return geometry_; }
  const Digest& fingerprint() const { return options_.fingerprint; }
  bool step();
  void unpin(std::span<Segment* const> segments);

 private:
  // Time.
  uint64_t now_ms() const { return time_.now_ms(); }
  uint64_t now_hour() const { return now_ms() / 3'600'000; }
  uint64_t expiry_hour() const { return time_.earliest_now_ms() / 3'600'000; }  // what ended before it has ended
  uint64_t use_hour_of(const IndexEntry& entry, uint64_t hour) const;
  uint64_t expiry_of(uint32_t domain, RetentionClass retention, uint64_t use_hour) const;
  bool has_expired(uint32_t domain, RetentionClass retention, uint64_t use_hour) const;

  // store.cc
  Status open_drive(Drive& drive);
  Status load_domains();
  Status write_domains();
  Status save_domains();
  std::optional<DriveMeta> rebuild_meta(const Drive& drive);
  void count(Drive& drive, uint64_t DriveStats::* counter);
  Drive* choose_drive(const Digest& parent);
  bool is_present(const BlockInfo& block);
  PutResult stage(RecordKind kind, const BlockInfo& block, Drive* drive, StagedSlot& slot);
  void make_ready(const StagedSlot& slot);
  void forget(Segment& segment, const Digest& key, Location at);  // index entry and count
  void drive_loop(Drive& drive, std::stop_token stop);
  bool writable(const Drive& drive) const { return drive.health == Health::kOk; }
  void degrade(Drive& drive, Health health, const std::string& why);

  // recovery.cc
  void recover(Drive& drive);
  Status recover_drive(Drive& drive);
  Status take_in_segment(Drive& drive, Segment& segment, uint64_t last_hit_hour);
  Status take_in_footer(Drive& drive, Segment& segment, uint64_t last_hit_hour);
  Status scan_slots(Drive& drive, Segment& segment, uint64_t last_hit_hour);
  void take_in(Drive& drive, Segment& segment, std::span<const FooterEntry> entries, uint64_t last_hit_hour);
  std::optional<uint64_t> sequence_at(Drive& drive, Location at);
  Status move_to_lost(Drive& drive, const std::string& name);
  Status write_touched(Drive& drive);
  Segment& new_segment(Drive& drive);

  // writer.cc
  bool step_drive(Drive& drive, bool force);
  size_t collect_batch(Drive& drive, std::vector<Item>& items);
  void finish_batch(Drive& drive, std::span<Item> items);
  void commit(Drive& drive, IoQueue& queue, std::span<Item> items, bool may_use_reserve);
  Status write_items(Drive& drive, IoQueue& queue, std::span<Item> items);
  Segment* open_for(Drive& drive, RetentionClass retention, bool may_use_reserve);
  Status start_segment(Drive& drive, Segment& segment, RetentionClass retention);
  Status write_header(Drive& drive, Segment& segment);
  Status seal(Drive& drive, Segment& segment);
  void seal_full(Drive& drive);
  void publish(std::span<Item> items);
  bool maintain(Drive& drive);
  Status check_epoch(Drive& drive);
  Status do_io(Drive& drive, IoQueue& queue, const IoRequest& request);
  uint64_t room(const Drive& drive) const;  // segments that still fit
  bool is_full(const Drive& drive) const { return clock_.now() < drive.room_limit_until; }
  void note_full(Drive& drive);
  void set_used(Drive& drive, Segment& segment, uint64_t bytes);

  // reclaim.cc
  void make_room(Drive& drive, uint64_t segments);
  bool reclaim_one(Drive& drive, bool forced);
  Segment* pick_victim(Drive& drive, bool forced, std::span<Segment* const> passed_over, bool& drop_all);
  bool reclaim(Drive& drive, Segment& victim, bool drop_all);
  Status read_entries(Drive& drive, Segment& segment, std::vector<FooterEntry>& entries);
  Status set_free(Drive& drive, Segment& segment);
  bool worth_keeping(Drive& drive, const IndexEntry& entry, const FooterEntry& footer);
  size_t copy_forward(Drive& drive, Segment& victim, std::span<const FooterEntry> keep);

  // reader.cc
  Hit pin(RecordKind kind, uint32_t domain, std::span<const Digest> keys, Lineage accept, uint32_t first_index);
  LoadResult read(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink);
  std::unique_ptr<IoQueue> acquire_queue(Drive& drive, Clock::time_point deadline, MissReason& why);
  void return_queue(Drive& drive, std::unique_ptr<IoQueue> queue);
  MissReason load_span(const Hit& hit, size_t begin, size_t end, Clock::time_point deadline,
                       const BlockSink& sink, size_t& delivered);
  Result<std::span<const std::byte>> open_record(std::span<std::byte> slot, const RecordPlace& place,
                                                 const ExpectedRecord& expected, RecordHeader* header_out);
  void note_read(Drive& drive, bool good);
  void note_corrupt(Drive& drive, const Digest& key, Location at, uint32_t domain, const Error& error);
  bool is_down(const Drive& drive) const;
  void count_use(uint32_t domain, const Digest& key, IndexEntry entry);
  RecordPlace place_of(const Segment& segment, uint32_t slot) const;
  bool read_keys_of(uint32_t domain, Key& record_key) const;

  // objects.cc
  void forget_object(RecordKind kind, const Digest& key);

  const StoreOptions options_;
  IoBackend& backend_;  // Borrowed from the caller of Store::open.
  const Clock& clock_;  // Borrowed from the caller of Store::open.
  mutable StoreTime time_;
  const Geometry geometry_;

  mutable std::mutex mu_;
  std::condition_variable progress_;  // flush(), wait_ready(), loads that wait for a queue
  std::condition_variable queue_free_;
  DomainTable domains_;
  Index index_;
  Promises promises_;
  std::deque<Segment> segments_;  // by ordinal; never shrinks while open
  std::unordered_map<Digest, std::pair<Lineage, size_t>, DigestHash>
      pending_;                         // lineage and drive of staged blocks
  uint64_t queued_ = 0, finished_ = 0;  // blocks ever staged; ever persisted or dropped
  int flushing_ = 0;
  double promised_rate_ = 0;  // bytes a second, decaying over two hours
  uint64_t promised_rate_ms_ = 0;
  StoreStats stats_;
  std::vector<std::unique_ptr<Drive>> drives_;
  std::stop_source stop_;
};

}  // namespace deepinfer::store
