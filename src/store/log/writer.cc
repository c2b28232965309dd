// The writer of a drive: group commit into open segments, sealing, and what it does when there is nothing to
// write.
#include <algorithm>

#include "base/log.h"
#include "base/little_endian.h"
#include "store/log/store_impl.h"

namespace deepinfer::store {
namespace {

constexpr uint64_t kMaxRunBytes = 4ull << 20;

GcmNonce nonce_of(const RecordHeader& header) {
  GcmNonce nonce;
  put_le(std::span<std::byte>(nonce), 0, header.drive);
  put_le(std::span<std::byte>(nonce), 4, header.sequence);
  return nonce;
}

}  // namespace

bool StoreImpl::step_drive(Drive& drive, bool force) {
  if (drive.health == Health::kRecovering || drive.health == Health::kFailed ||
      options_.mode == StoreMode::kReadOnly)
    return false;
  std::vector<Item> items;
  bool due = force;
  {
    const std::lock_guard lock(mu_);
    promises_.advance(expiry_hour());
    const size_t full = std::max<size_t>(1, options_.commit_bytes / geometry_.slot_bytes);
    due = due || flushing_ > 0 || drive.num_ready >= full ||
          (drive.num_ready > 0 && clock_.now() - drive.ring[drive.ring_tail].since >= options_.commit_delay);
    if (due) collect_batch(drive, items);
  }
  if (items.empty()) return maintain(drive);
  if (writable(drive)) {
    std::array<uint64_t, kNumClasses> count{};
    for (const Item& item : items) ++count[static_cast<size_t>(item.header.retention)];
    uint64_t segments = 0;
    for (size_t c = 0; c < kNumClasses; ++c) {
      const Segment* open = drive.open[c];
      const uint64_t left = open != nullptr && !open->broken ? geometry_.num_slots + 1 - open->next_slot : 0;
      if (count[c] > left) segments += (count[c] - left + geometry_.num_slots - 1) / geometry_.num_slots;
    }
    make_room(drive, segments);
    commit(drive, *drive.write_queue, items, false);
  }
  finish_batch(drive, items);
  return true;
}

// Ready blocks from the tail of the ring, up to a commit's worth. Called with mu_ held.
size_t StoreImpl::collect_batch(Drive& drive, std::vector<Item>& items) {
  const size_t most = std::max<size_t>(1, options_.commit_bytes / geometry_.slot_bytes);
  for (size_t i = 0; i < drive.ring_count && items.size() < most; ++i) {
    const size_t at = (drive.ring_tail + i) % drive.ring.size();
    const Staged& staged = drive.ring[at];
    if (!staged.ready) break;
    Item item;
    RecordHeader& header = item.header;
    header.kind = staged.kind;
    header.retention = staged.retention;
    header.lineage = staged.info.lineage;
    header.encrypted = options_.encrypt;
    header.domain = staged.info.domain;
    header.key = staged.info.key;
    header.parent = staged.info.parent;
    std::copy_n(options_.fingerprint.begin(), header.fingerprint.size(), header.fingerprint.begin());
    header.block_index = staged.info.block_index;
    header.payload_bytes = geometry_.payload_bytes;
    header.created_ms = staged.created_ms;
    header.cost_us = staged.info.cost_us;
    header.group_bytes = options_.group_bytes;
    item.slot = drive.write_queue->memory().subspan(at * geometry_.slot_bytes, geometry_.slot_bytes);
    item.use_hour = staged.created_ms / 3'600'000;
    items.push_back(item);
  }
  return items.size();
}

void StoreImpl::finish_batch(Drive& drive, std::span<Item> items) {
  const std::lock_guard lock(mu_);
  for (const Item& item : items) {
    const Staged& staged = drive.ring[drive.ring_tail];
    if (item.state != Item::State::kPersisted) {
      if (staged.expiry_hour != 0)
        promises_.release(staged.info.domain, geometry_.slot_bytes, staged.expiry_hour);
      ++(item.state == Item::State::kNoRoom ? stats_.dropped_no_room : stats_.dropped_error);
    } else {
      ++stats_.persisted;
      stats_.persist_latency.observe(std::chrono::duration<double>(clock_.now() - staged.since).count());
      drive.stats.written_bytes += geometry_.slot_bytes;
    }
    pending_.erase(item.header.key);
    drive.ring[drive.ring_tail].ready = false;
    drive.ring_tail = (drive.ring_tail + 1) % drive.ring.size();
  }
  drive.ring_count -= items.size();
  drive.num_ready -= items.size();
  finished_ += items.size();
  progress_.notify_all();
}

// Writes, syncs, publishes. Every item leaves with a state.
void StoreImpl::commit(Drive& drive, IoQueue& queue, std::span<Item> items, bool may_use_reserve) {
  size_t placed = 0;
  std::vector<Segment*> touched;
  for (Item& item : items) {
    Segment* segment = open_for(drive, item.header.retention, may_use_reserve);
    if (segment == nullptr) {
      item.state = writable(drive) ? Item::State::kNoRoom : Item::State::kFailed;
      continue;
    }
    RecordHeader& header = item.header;
    header.segment_id = segment->header.segment_id;
    header.generation = segment->header.generation;
    header.slot = segment->next_slot++;
    header.sequence = drive.next_sequence++;
    header.drive = drive_tag(drive.meta.id);
    segment->last_sequence = header.sequence;
    item.segment = segment;
    header.tag = {};
    const auto payload = slot_payload(item.slot, header.payload_bytes);
    if (header.encrypted) {
      Key key;
      if (!read_keys_of(header.domain, key)) {
        item.state = Item::State::kFailed;  // its domain was deleted meanwhile
        continue;
      }
      header.tag = gcm_encrypt(key, nonce_of(header), authenticated_bytes(header), payload);
    }
    set_group_crcs(header, payload);
    write_record(item.slot, header);
    if (std::find(touched.begin(), touched.end(), segment) == touched.end()) touched.push_back(segment);
    ++placed;
  }
  if (placed == 0) {
    seal_full(drive);
    return;
  }
  if (const Status written = write_items(drive, queue, items); !written.ok()) {
    for (Segment* segment : touched) segment->broken = true;
    if (written.error().code() == Code::kResourceExhausted) {
      note_full(drive);
    } else {
      degrade(drive, written.error().code() == Code::kDeadlineExceeded ? Health::kFailed : Health::kReadOnly,
              written.error().message());
    }
  }
  if (drive.health == Health::kFailed) {
    for (Item& item : items)
      if (item.state == Item::State::kWaiting) item.state = Item::State::kFailed;
    return;
  }
  for (Segment* segment : touched) {
    const IoRequest sync{IoRequest::Op::kSync, segment->file.get(), 0, {}, 0};
    if (const Status synced = do_io(drive, queue, sync); !synced.ok()) {
      // What the device holds is unknown now: nothing of this commit is believed, nothing more is written.
      degrade(drive, synced.error().code() == Code::kDeadlineExceeded ? Health::kFailed : Health::kReadOnly,
              synced.error().message());
      for (Item& item : items)
        if (item.state == Item::State::kWaiting) item.state = Item::State::kFailed;
      return;
    }
  }
  publish(items);
  seal_full(drive);
}

void StoreImpl::seal_full(Drive& drive) {
  for (Segment* segment : std::exchange(drive.full, {})) {
    if (!writable(drive)) return;
    if (const Status sealed = seal(drive, *segment); !sealed.ok())
      degrade(drive, Health::kReadOnly, sealed.error().message());
  }
}

// All waiting items to their slots: neighbours in memory and in the segment go as one request. Items of a
// failed request get their state; the first failure is returned.
Status StoreImpl::write_items(Drive& drive, IoQueue& queue, std::span<Item> items) {
  struct Run {
    size_t first, count;
  };
  std::vector<Run> runs;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].state != Item::State::kWaiting) continue;
    if (!runs.empty()) {
      Run& run = runs.back();
      const Item& last = items[run.first + run.count - 1];
      if (run.first + run.count == i && last.segment == items[i].segment &&
          last.header.slot + 1 == items[i].header.slot &&
          last.slot.data() + last.slot.size() == items[i].slot.data() &&
          (run.count + 1) * geometry_.slot_bytes <= kMaxRunBytes) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({i, 1});
  }
  Status failure;
  const auto deadline = clock_.now() + options_.write_limit;
  size_t next = 0, open = 0;
  std::array<IoCompletion, 16> done;
  while (next < runs.size() || open > 0) {
    while (next < runs.size() && queue.in_flight() < queue.depth()) {
      const Item& first = items[runs[next].first];
      const IoRequest request{IoRequest::Op::kWrite, first.segment->file.get(),
                              geometry_.slot_offset(first.header.slot),
                              std::span(first.slot.data(), runs[next].count * geometry_.slot_bytes), next};
      queue.submit(std::span(&request, 1));
      ++next;
      ++open;
    }
    const size_t count = queue.wait(done, deadline);
    if (count == 0)
      return Error(Code::kDeadlineExceeded, "a write takes longer than {} ms", options_.write_limit.count());
    open -= count;
    for (size_t i = 0; i < count; ++i) {
      const Run& run = runs[done[i].tag];
      const uint64_t bytes = run.count * geometry_.slot_bytes;
      const Status status = to_status(done[i], bytes, "write");
      {
        const std::lock_guard lock(mu_);
        drive.stats.device_bytes += bytes;
      }
      if (status.ok()) continue;
      const bool full = status.error().code() == Code::kResourceExhausted;
      for (size_t k = run.first; k < run.first + run.count; ++k)
        items[k].state = full ? Item::State::kNoRoom : Item::State::kFailed;
      if (failure.ok() || !full) failure = status;
    }
  }
  return failure;
}

// The persisted items become findable.
void StoreImpl::publish(std::span<Item> items) {
  const std::lock_guard lock(mu_);
  for (Item& item : items) {
    if (item.state != Item::State::kWaiting) continue;
    const RecordHeader& header = item.header;
    Segment& segment = *item.segment;
    segment.entries.push_back(summary_of(header, segment.header.first_sequence));
    item.state = Item::State::kPersisted;
    const auto existing = index_.find(header.key);
    if (item.moved_from && (!existing || existing->at != *item.moved_from))
      continue;  // gone or newer meanwhile
    if (header.kind == RecordKind::kBlock && existing && existing->lineage == Lineage::kExact &&
        header.lineage == Lineage::kDerived)
      continue;
    if (!domains_.live(header.domain)) continue;
    IndexEntry entry;
    entry.at = {segment.ordinal, header.slot};
    entry.retention = header.retention;
    entry.lineage = header.lineage;
    entry.hits = item.moved_from ? existing->hits / 2 : item.hits;
    uint64_t use_hour = item.use_hour;
    if (item.moved_from) use_hour = use_hour_of(*existing, now_hour());
    entry.use_hour = static_cast<uint16_t>(use_hour % kUseHours);
    if (!index_.insert(header.key, entry)) {
      item.state = Item::State::kNoRoom;
      continue;
    }
    if (existing) --segments_[existing->at.segment].live;
    ++segment.live;
    segment.newest_expiry =
        std::max(segment.newest_expiry, expiry_of(header.domain, header.retention, use_hour));
    segment.last_hit_hour = std::max(segment.last_hit_hour, item.moved_from ? use_hour : 0);
  }
}

// ---- segments
// -----------------------------------------------------------------------------------------------------------

uint64_t StoreImpl::room(const Drive& drive) const {
  uint64_t limit = drive.capacity;
  if (is_full(drive)) limit = std::min(limit, drive.room_limit);
  return limit <= drive.used ? 0 : (limit - drive.used) / geometry_.file_bytes();
}

// The file system holds less than the capacity; looked at again after a minute.
void StoreImpl::note_full(Drive& drive) {
  const std::lock_guard lock(mu_);
  if (!drive.full_said_at || clock_.now() - *drive.full_said_at >= std::chrono::hours(1)) {
    log::warn("kv store: {}: the file system is full at {} MiB of the {} MiB that the store may use; new blocks are dropped",
              drive.path, drive.used >> 20, drive.capacity >> 20);
    drive.full_said_at = clock_.now();
  }
  drive.room_limit = drive.used;
  drive.room_limit_until = clock_.now() + std::chrono::seconds(60);
}

void StoreImpl::set_used(Drive& drive, Segment& segment, uint64_t bytes) {
  const std::lock_guard lock(mu_);
  drive.used = drive.used - segment.used_bytes + bytes;
  segment.used_bytes = bytes;
}

Status StoreImpl::do_io(Drive& drive, IoQueue& queue, const IoRequest& request) {
  if (request.op == IoRequest::Op::kWrite) {
    const std::lock_guard lock(mu_);
    drive.stats.device_bytes += request.buffer.size();
  }
  return run_one(queue, request, clock_, options_.write_limit);
}

Segment& StoreImpl::new_segment(Drive& drive) {
  const std::lock_guard lock(mu_);
  Segment& segment = segments_.emplace_back();
  segment.ordinal = static_cast<uint32_t>(segments_.size() - 1);
  segment.drive = drive.number;
  drive.segments.push_back(&segment);
  return segment;
}

// The open segment of the class, or a new one when the drive has room; one segment's room stays in reserve
// for reclaim.
Segment* StoreImpl::open_for(Drive& drive, RetentionClass retention, bool may_use_reserve) {
  Segment*& open = drive.open[static_cast<size_t>(retention)];
  if (open != nullptr && !open->broken && open->next_slot <= geometry_.num_slots) return open;
  if (open != nullptr) {
    drive.full.push_back(open);
    open = nullptr;
  }
  if (!writable(drive) || room(drive) < (may_use_reserve ? 1u : 2u)) return nullptr;
  if (const Status ours = check_epoch(drive); !ours.ok()) {
    degrade(drive, Health::kReadOnly, ours.error().message());
    return nullptr;
  }
  Segment* segment = nullptr;
  {
    const std::lock_guard lock(mu_);
    const auto is_free = [](const Segment* s) { return s->use == SegmentUse::kFree && s->pins == 0; };
    const auto free = std::find_if(drive.segments.begin(), drive.segments.end(), is_free);
    if (free != drive.segments.end()) segment = *free;
    if (segment == nullptr && segments_.size() >= kMaxSegments) return nullptr;
  }
  if (segment == nullptr) segment = &new_segment(drive);
  const Status started = start_segment(drive, *segment, retention);
  if (started.ok()) {
    open = segment;
    return segment;
  }
  set_used(drive, *segment, 0);
  if (started.error().code() == Code::kResourceExhausted) {
    note_full(drive);
  } else {
    degrade(drive, Health::kReadOnly, started.error().message());
  }
  return nullptr;
}

Status StoreImpl::start_segment(Drive& drive, Segment& segment, RetentionClass retention) {
  const bool created = segment.file == nullptr;
  SegmentHeader header;
  header.retention = retention;
  header.segment_id = created ? drive.next_segment_id++ : segment.header.segment_id;
  header.generation = drive.next_generation++;
  header.drive = drive.meta.id;
  header.fingerprint = options_.fingerprint;
  header.geometry = geometry_;
  header.state = SegmentState::kUsed;
  header.created_ms = now_ms();
  header.first_sequence = drive.next_sequence;
  if (created) {
    const std::string path = drive.path + "/" + segment_file_name(header.segment_id);
    ASSIGN_OR_RETURN(segment.file, backend_.open(path, OpenMode::kCreate));
  }
  set_used(drive, segment, geometry_.file_bytes());
  {
    const std::lock_guard lock(mu_);
    segment.header = header;
  }
  RETURN_IF_ERROR(backend_.allocate(*segment.file, geometry_.file_bytes()));
  RETURN_IF_ERROR(write_header(drive, segment));
  if (created) RETURN_IF_ERROR(backend_.sync_directory(drive.path));
  const std::lock_guard lock(mu_);
  segment.use = SegmentUse::kOpen;
  segment.next_slot = 1;
  segment.opened_ms = header.created_ms;
  segment.last_sequence = 0;
  segment.entries.clear();
  segment.broken = false;
  segment.foreign = false;
  segment.newest_expiry = 0;
  segment.last_hit_hour = 0;
  return {};
}

Status StoreImpl::write_header(Drive& drive, Segment& segment) {
  const auto page = drive.meta_queue->memory().first(kPageBytes);
  std::fill(page.begin(), page.end(), std::byte{0});
  write_segment_header(page.first(kHeaderBytes), segment.header);
  const IoRequest write{IoRequest::Op::kWrite, segment.file.get(), 0, page, 0};
  RETURN_IF_ERROR(do_io(drive, *drive.meta_queue, write));
  const IoRequest sync{IoRequest::Op::kSync, segment.file.get(), 0, {}, 0};
  return do_io(drive, *drive.meta_queue, sync);
}

Status StoreImpl::seal(Drive& drive, Segment& segment) {
  if (segment.entries.empty()) return set_free(drive, segment);
  std::sort(segment.entries.begin(), segment.entries.end(),
            [](const FooterEntry& a, const FooterEntry& b) { return a.slot < b.slot; });
  FooterHeader footer;
  footer.segment_id = segment.header.segment_id;
  footer.generation = segment.header.generation;
  footer.first_sequence = segment.header.first_sequence;
  footer.last_sequence = segment.last_sequence;
  footer.sealed_ms = now_ms();
  const uint64_t bytes = geometry_.footer_bytes(static_cast<uint32_t>(segment.entries.size()));
  const auto buffer = drive.meta_queue->memory().first(bytes);
  write_footer(buffer, footer, segment.entries);
  const IoRequest write{IoRequest::Op::kWrite, segment.file.get(), geometry_.footer_offset(), buffer, 0};
  RETURN_IF_ERROR(do_io(drive, *drive.meta_queue, write));
  const IoRequest sync{IoRequest::Op::kSync, segment.file.get(), 0, {}, 0};
  RETURN_IF_ERROR(do_io(drive, *drive.meta_queue, sync));
  const uint64_t end = geometry_.slot_offset(segment.next_slot);
  RETURN_IF_ERROR(backend_.punch(*segment.file, end, geometry_.footer_offset() - end));
  set_used(drive, segment, end + bytes);
  const std::lock_guard lock(mu_);
  segment.use = SegmentUse::kSealed;
  segment.entries = {};
  for (Segment*& open : drive.open)
    if (open == &segment) open = nullptr;
  return {};
}

// A writer whose directory was taken over (the lock lost, a copy restored) must not go on.
Status StoreImpl::check_epoch(Drive& drive) {
  ASSIGN_OR_RETURN(const auto bytes, read_file(backend_, drive.path + "/drive.meta"));
  ASSIGN_OR_RETURN(const DriveMeta meta, parse_drive_meta(bytes));
  if (meta.id == drive.meta.id && meta.epoch == drive.meta.epoch) return {};
  return Error(Code::kUnavailable, "drive.meta has epoch {}, this writer {}: another process took over",
               meta.epoch, drive.meta.epoch);
}

// What is done between commits; one thing a call.
bool StoreImpl::maintain(Drive& drive) {
  if (!writable(drive)) return false;
  const uint64_t ms = now_ms();
  for (Segment* open : drive.open) {
    if (open == nullptr || open->next_slot == 1) continue;
    const auto age = std::chrono::milliseconds(ms - std::min(ms, open->opened_ms));
    if (age < options_.seal_after && !open->broken) continue;
    if (const Status sealed = seal(drive, *open); !sealed.ok())
      degrade(drive, Health::kReadOnly, sealed.error().message());
    return true;
  }
  if (clock_.now() - drive.touched_at >= std::chrono::seconds(60)) {
    drive.touched_at = clock_.now();
    (void)write_touched(drive);  // a hint; without it blocks are kept longer, not shorter
  }
  if (reclaim_one(drive, false)) return true;
  if (options_.scrub_every.count() > 0 && options_.threads) {
    const std::chrono::duration<double> passed = clock_.now() - drive.scrubbed_at;
    drive.scrubbed_at = clock_.now();
    drive.scrub_debt += static_cast<double>(drive.used / geometry_.slot_bytes) * passed.count() /
                        std::chrono::duration<double>(options_.scrub_every).count();
    if (drive.scrub_debt >= 1) {
      const auto count = static_cast<size_t>(drive.scrub_debt);
      drive.scrub_debt -= static_cast<double>(count);
      (void)scrub(std::min<size_t>(count, 64), clock_.now() + std::chrono::seconds(1));
    }
  }
  return false;
}

}  // namespace deepinfer::store
