// Lookup, load and scrub. A load borrows one queue of the drive for its whole duration, reads with neighbours
// merged, and believes nothing it has not checked. When the deadline passes with reads in flight, the queue
// with its memory goes into quarantine until the drive has answered; the caller goes on at once.
#include <algorithm>

#include "base/log.h"
#include "base/little_endian.h"
#include "store/log/store_impl.h"

namespace deepinfer::store {
namespace {

// Long enough to stream, short enough that checking one run overlaps with reading the next.
constexpr uint64_t kMaxRunBytes = 1ull << 20;
constexpr int kFailuresToTrip = 3;
constexpr std::chrono::seconds kFirstCoolDown(5), kLongestCoolDown(300);
constexpr uint64_t kCorruptADay = 3;

}  // namespace

RecordPlace StoreImpl::place_of(const Segment& segment, uint32_t slot) const {
  return {segment.header.segment_id, segment.header.generation, slot,
          drive_tag(drives_[segment.drive]->meta.id), geometry_.payload_bytes};
}

bool StoreImpl::is_down(const Drive& drive) const {
  return drive.health == Health::kFailed || clock_.now() < drive.down_until;
}

void StoreImpl::unpin(std::span<Segment* const> pinned) {
  const std::lock_guard lock(mu_);
  for (Segment* segment : pinned) --segment->pins;
}

// One use of a block: its hour, its count, and with the hour the promise moves. Called with mu_ held.
void StoreImpl::count_use(uint32_t domain, const Digest& key, IndexEntry entry) {
  const uint64_t hour = now_hour();
  const uint64_t before = use_hour_of(entry, hour);
  entry.hits = static_cast<uint8_t>(std::min(3, entry.hits + 1));
  Segment& segment = segments_[entry.at.segment];
  if (before != hour) {
    if (entry.retention != RetentionClass::kBestEffort)
      promises_.move(domain, geometry_.slot_bytes, expiry_of(domain, entry.retention, before),
                     expiry_of(domain, entry.retention, hour));
    entry.use_hour = static_cast<uint16_t>(hour % kUseHours);
    segment.newest_expiry = std::max(segment.newest_expiry, expiry_of(domain, entry.retention, hour));
  }
  if (segment.last_hit_hour < hour) {
    segment.last_hit_hour = hour;
    drives_[segment.drive]->touched_changed = true;
  }
  index_.update(key, entry);
}

void StoreImpl::touch(uint32_t domain, std::span<const Digest> keys) {
  const std::lock_guard lock(mu_);
  for (const Digest& key : keys)
    if (const auto entry = index_.find(key)) count_use(domain, key, *entry);
}

void StoreImpl::forget(Segment& segment, const Digest& key, Location at) {
  if (index_.erase(key, at)) --segment.live;
}

Hit StoreImpl::lookup(uint32_t domain, std::span<const Digest> keys, Lineage accept, uint32_t first_index) {
  const std::lock_guard lock(mu_);
  Hit hit = pin(RecordKind::kBlock, domain, keys, accept, first_index);
  ++stats_.lookups;
  stats_.hit_blocks += hit.blocks_.size();
  ++stats_.misses[static_cast<size_t>(hit.reason_)];
  return hit;
}

// Called with mu_ held.
Hit StoreImpl::pin(RecordKind kind, uint32_t domain, std::span<const Digest> keys, Lineage accept,
                   uint32_t first_index) {
  constexpr size_t kAhead = 8;
  Hit hit;
  hit.store_ = this;
  hit.kind_ = kind;
  hit.domain_ = domain;
  hit.first_index_ = first_index;
  hit.blocks_.reserve(keys.size());
  const uint64_t hour = now_hour();
  if (!domains_.live(domain)) hit.reason_ = MissReason::kDomainGone;
  const Segment* pinned = nullptr;
  for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) index_.prefetch(keys[i]);
  for (size_t i = 0; i < keys.size() && hit.reason_ == MissReason::kNone; ++i) {
    if (i + kAhead < keys.size()) index_.prefetch(keys[i + kAhead]);
    const auto entry = index_.find(keys[i]);
    if (!entry) {
      hit.reason_ = MissReason::kAbsent;
      break;
    }
    Segment& segment = segments_[entry->at.segment];
    if (segment.use == SegmentUse::kFree || segment.use == SegmentUse::kGone) {
      forget(segment, keys[i], entry->at);
      hit.reason_ = MissReason::kAbsent;
    } else if (has_expired(domain, entry->retention, use_hour_of(*entry, hour))) {
      forget(segment, keys[i], entry->at);
      ++stats_.expired;
      hit.reason_ = MissReason::kExpired;
    } else if (accept == Lineage::kExact && entry->lineage == Lineage::kDerived) {
      hit.reason_ = MissReason::kLineage;
    } else if (is_down(*drives_[segment.drive])) {
      hit.reason_ = MissReason::kDriveDown;
    } else {
      hit.blocks_.push_back({keys[i], &segment, entry->at.slot, entry->lineage});
      if (&segment != pinned) {
        pinned = &segment;
        ++segment.pins;
        hit.pinned_.push_back(&segment);
      }
    }
  }
  return hit;
}

// ---- queues
// -----------------------------------------------------------------------------------------------------------

std::unique_ptr<IoQueue> StoreImpl::acquire_queue(Drive& drive, Clock::time_point deadline, MissReason& why) {
  std::unique_lock lock(mu_);
  while (true) {
    for (size_t i = 0; i < drive.quarantine.size();) {
      std::array<IoCompletion, 16> late;
      IoQueue& queue = *drive.quarantine[i];
      while (queue.in_flight() > 0 && queue.wait(late, Clock::time_point{}) > 0) {
      }
      if (queue.in_flight() > 0) {
        ++i;
        continue;
      }
      drive.idle_queues.push_back(std::move(drive.quarantine[i]));
      drive.quarantine.erase(drive.quarantine.begin() + static_cast<ptrdiff_t>(i));
    }
    if (!drive.idle_queues.empty()) {
      auto queue = std::move(drive.idle_queues.back());
      drive.idle_queues.pop_back();
      ++drive.queues_in_use;
      return queue;
    }
    if (drive.queues_in_use == 0) {
      why = MissReason::kDriveDown;  // all of them wait for a drive that does not answer
      return nullptr;
    }
    if (queue_free_.wait_until(lock, deadline) == std::cv_status::timeout) {
      why = MissReason::kBusy;
      return nullptr;
    }
  }
}

void StoreImpl::return_queue(Drive& drive, std::unique_ptr<IoQueue> queue) {
  const std::lock_guard lock(mu_);
  --drive.queues_in_use;
  (queue->in_flight() > 0 ? drive.quarantine : drive.idle_queues).push_back(std::move(queue));
  queue_free_.notify_all();
}

void StoreImpl::note_read(Drive& drive, bool good) {
  const std::lock_guard lock(mu_);
  if (good) {
    drive.failures = 0;
    drive.cool_down = kFirstCoolDown;
    return;
  }
  ++drive.stats.read_errors;
  if (++drive.failures < kFailuresToTrip) return;
  drive.failures = 0;
  drive.down_until = clock_.now() + drive.cool_down;
  drive.cool_down = std::min(drive.cool_down * 2, kLongestCoolDown);
  log::warn("kv store: {}: reads fail; left alone for a while", drive.path);
}

void StoreImpl::note_corrupt(Drive& drive, const Digest& key, Location at, uint32_t domain,
                             const Error& error) {
  bool bad_drive = false;
  {
    const std::lock_guard lock(mu_);
    Segment& segment = segments_[at.segment];
    log::warn("kv store: {}: segment {} slot {}: {}", drive.path, segment.header.segment_id, at.slot,
              error.message());
    const auto entry = index_.find(key);
    if (entry && entry->at == at) {
      if (entry->retention != RetentionClass::kBestEffort)
        promises_.release(domain, geometry_.slot_bytes,
                          expiry_of(domain, entry->retention, use_hour_of(*entry, now_hour())));
      forget(segment, key, at);
    }
    ++drive.stats.corrupt;
    const uint64_t day = now_hour() / 24;
    if (drive.day != day) {
      drive.day = day;
      drive.day_bytes = 0;
      drive.corrupt_today = 0;
    }
    bad_drive = ++drive.corrupt_today > kCorruptADay;
  }
  if (bad_drive && writable(drive))
    degrade(drive, Health::kReadOnly, fmt::format("more than {} damaged records in a day", kCorruptADay));
}

bool StoreImpl::read_keys_of(uint32_t domain, Key& record_key) const {
  const std::lock_guard lock(mu_);
  const DomainInfo* info = domains_.get(domain);
  if (info == nullptr) return false;
  record_key = DomainTable::record_key(*info);
  return true;
}

// Everything that P1 asks of a record before it is used; decrypts in place.
Result<std::span<const std::byte>> StoreImpl::open_record(std::span<std::byte> slot, const RecordPlace& place,
                                                          const ExpectedRecord& expected,
                                                          RecordHeader* header_out) {
  ASSIGN_OR_RETURN(const RecordHeader header, parse_record(slot));
  RETURN_IF_ERROR(check_place(header, place));
  if (header.key != expected.key) return Error(Code::kDataLoss, "record: it holds another key");
  if (header.kind != expected.kind)
    return Error(Code::kDataLoss, "record: a {}, expected a {}", kind_name(header.kind), kind_name(expected.kind));
  if (header.domain != expected.domain)
    return Error(Code::kDataLoss, "record: domain {}, expected {}", header.domain, expected.domain);
  if (expected.block_index && header.block_index != *expected.block_index)
    return Error(Code::kDataLoss, "record: block index {}, expected {}", header.block_index, *expected.block_index);
  if (!std::equal(header.fingerprint.begin(), header.fingerprint.end(), options_.fingerprint.begin()))
    return Error(Code::kDataLoss, "record: another fingerprint");
  if (header.group_bytes != options_.group_bytes)
    return Error(Code::kDataLoss, "record: other group lengths");
  const auto payload = slot_payload(slot, header.payload_bytes);
  if (header.encrypted) {
    Key record_key;
    if (!read_keys_of(expected.domain, record_key)) return Error(Code::kNotFound, "record: its domain was deleted");
    GcmNonce nonce;
    put_le(std::span<std::byte>(nonce), 0, header.drive);
    put_le(std::span<std::byte>(nonce), 4, header.sequence);
    RETURN_IF_ERROR(gcm_decrypt(record_key, nonce, authenticated_bytes(header), payload, header.tag));
  }
  if (header_out != nullptr) *header_out = header;
  return std::span<const std::byte>(payload);
}

// ---- load
// -------------------------------------------------------------------------------------------------------------

LoadResult StoreImpl::load(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink) {
  const auto begin = clock_.now();
  const LoadResult result = read(hit, first, deadline, sink);
  const std::lock_guard lock(mu_);
  stats_.load_latency.observe(std::chrono::duration<double>(clock_.now() - begin).count());
  stats_.loaded_blocks += result.num_blocks;
  if (result.reason != MissReason::kNone) ++stats_.misses[static_cast<size_t>(result.reason)];
  return result;
}

LoadResult StoreImpl::read(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink) {
  LoadResult result;
  CHECK(first <= hit.blocks_.size());
  size_t begin = first;
  while (begin < hit.blocks_.size() && result.reason == MissReason::kNone) {
    const auto drive_of = [&](size_t i) { return hit.blocks_[i].segment->drive; };
    size_t end = begin + 1;
    if (drives_.size() == 1) end = hit.blocks_.size();
    while (end < hit.blocks_.size() && drive_of(end) == drive_of(begin)) ++end;
    size_t delivered = 0;
    result.reason = load_span(hit, begin, end, deadline, sink, delivered);
    result.num_blocks += delivered;
    begin = end;
  }
  const std::lock_guard lock(mu_);
  stats_.verified_bytes += result.num_blocks * geometry_.payload_bytes;
  for (size_t i = first; i < first + result.num_blocks; ++i) {
    const Hit::Block& block = hit.blocks_[i];
    const auto entry = index_.find(block.key);
    if (entry && entry->at == Location{block.segment->ordinal, block.slot}) count_use(hit.domain_, block.key, *entry);
  }
  return result;
}

MissReason StoreImpl::load_span(const Hit& hit, size_t begin, size_t end, Clock::time_point deadline,
                                const BlockSink& sink, size_t& delivered) {
  struct Run {
    size_t first, count;  // blocks
    size_t at;            // first slot of the queue's memory
    bool done = false;
  };
  Drive& drive = *drives_[hit.blocks_[begin].segment->drive];
  MissReason reason = MissReason::kNone;
  std::unique_ptr<IoQueue> queue = acquire_queue(drive, deadline, reason);
  if (queue == nullptr) return reason;

  const size_t memory_slots = queue->memory().size() / geometry_.slot_bytes;
  const size_t longest_run =
      std::max<size_t>(1, std::min(memory_slots / 2, kMaxRunBytes / geometry_.slot_bytes));
  std::vector<bool> good(end - begin, false);
  std::deque<Run> runs;    // in order of their memory; the front is the oldest
  uint64_t front_run = 0;  // number of the run at the front: its tag
  size_t next = begin, head = 0, stop_at = end;
  const auto find_memory = [&](size_t count) -> std::optional<size_t> {
    if (runs.empty()) return 0;
    const size_t tail = runs.front().at;
    if (head > tail)
      return head + count <= memory_slots ? std::optional(head)
             : count <= tail              ? std::optional<size_t>(0)
                                          : std::nullopt;
    return head + count <= tail ? std::optional(head) : std::nullopt;
  };
  const auto fail_from = [&](size_t block, MissReason why) {
    if (block >= stop_at) return;
    stop_at = block;
    reason = why;
  };

  while (true) {
    std::vector<IoRequest> requests;
    while (next < stop_at && queue->in_flight() + requests.size() < queue->depth()) {
      const Hit::Block& block = hit.blocks_[next];
      size_t count = 1;
      while (next + count < stop_at && count < longest_run &&
             hit.blocks_[next + count].segment == block.segment &&
             hit.blocks_[next + count].slot == block.slot + count)
        ++count;
      const auto at = find_memory(count);
      if (!at) break;
      // The file may be read without the mutex: the hit pins the segment.
      requests.push_back({IoRequest::Op::kRead, block.segment->file.get(),
                          geometry_.slot_offset(block.slot),
                          queue->memory().subspan(*at * geometry_.slot_bytes, count * geometry_.slot_bytes),
                          front_run + runs.size()});
      runs.push_back({next, count, *at});
      head = *at + count;
      next += count;
    }
    queue->submit(requests);
    if (queue->in_flight() == 0) break;
    std::array<IoCompletion, 16> done;
    const size_t count = queue->wait(done, deadline);
    if (count == 0) {
      for (const Run& run : runs)
        if (!run.done) fail_from(run.first, MissReason::kDeadline);
      note_read(drive, false);
      break;
    }
    for (size_t c = 0; c < count; ++c) {
      Run& run = runs[done[c].tag - front_run];
      run.done = true;
      const Status status = to_status(done[c], run.count * geometry_.slot_bytes, "read");
      note_read(drive, status.ok());
      if (!status.ok()) {
        log::warn("kv store: {}: {}", drive.path, status.error().message());
        fail_from(run.first, MissReason::kIo);
        continue;
      }
      for (size_t k = 0; k < run.count && run.first + k < stop_at; ++k) {
        const Hit::Block& block = hit.blocks_[run.first + k];
        const auto slot = queue->memory().subspan((run.at + k) * geometry_.slot_bytes, geometry_.slot_bytes);
        const auto index = static_cast<uint32_t>(hit.first_index_ + run.first + k);
        RecordHeader header;
        auto payload = open_record(slot, place_of(*block.segment, block.slot),
                                   {hit.kind_, block.key, hit.domain_, index}, &header);
        if (payload.ok() && header.lineage != block.lineage)
          payload = Error(Code::kDataLoss, "record: another lineage than the index says");
        if (!payload.ok()) {
          if (payload.error().code() == Code::kDataLoss)
            note_corrupt(drive, block.key, {block.segment->ordinal, block.slot}, hit.domain_, payload.error());
          fail_from(run.first + k, payload.error().code() == Code::kDataLoss ? MissReason::kCorrupt
                                                                             : MissReason::kDomainGone);
          break;
        }
        sink(run.first + k, *payload);
        good[run.first + k - begin] = true;
      }
    }
    while (!runs.empty() && runs.front().done) {
      runs.pop_front();
      ++front_run;
    }
  }
  return_queue(drive, std::move(queue));
  while (delivered < good.size() && begin + delivered < stop_at && good[delivered]) ++delivered;
  return reason;
}

// ---- scrub
// ------------------------------------------------------------------------------------------------------------

size_t StoreImpl::scrub(size_t max_records, Clock::time_point deadline) {
  size_t damaged = 0, checked = 0;
  for (auto& drive : drives_) {
    if (drive->health == Health::kFailed || drive->health == Health::kRecovering) continue;
    MissReason why;
    std::unique_ptr<IoQueue> queue = acquire_queue(*drive, deadline, why);
    if (queue == nullptr) continue;
    size_t visited = 0;
    const auto read = [&](Segment& segment, uint64_t offset, uint64_t bytes) -> Result<std::span<std::byte>> {
      const auto buffer = queue->memory().first(bytes);
      RETURN_IF_ERROR(run_one(*queue, {IoRequest::Op::kRead, segment.file.get(), offset, buffer, 0}, clock_,
                              options_.write_limit));
      return buffer;
    };
    while (checked < max_records && clock_.now() < deadline && queue->in_flight() == 0) {
      Segment* segment = nullptr;
      {
        const std::lock_guard lock(mu_);
        if (drive->segments.empty() || visited > drive->segments.size()) break;
        drive->scrub_segment %= drive->segments.size();
        Segment* candidate = drive->segments[drive->scrub_segment];
        if (candidate->use == SegmentUse::kSealed && !candidate->foreign) {
          segment = candidate;
          ++segment->pins;
        }
      }
      bool finished = true;
      if (segment != nullptr) {
        const uint64_t most =
            std::min<uint64_t>(queue->memory().size(), geometry_.footer_bytes(geometry_.num_slots));
        std::vector<FooterEntry> entries;
        const auto footer = read(*segment, geometry_.footer_offset(), kPageBytes);
        if (footer.ok()) {
          const auto header = parse_footer_header(*footer, segment->header);
          if (header.ok() && geometry_.footer_bytes(header->num_entries) <= most) {
            const auto whole =
                read(*segment, geometry_.footer_offset(), geometry_.footer_bytes(header->num_entries));
            if (whole.ok() && check_footer_entries(*whole, *header, segment->header).ok())
              for (uint32_t i = 0; i < header->num_entries; ++i) entries.push_back(footer_entry(*whole, i));
          }
        }
        uint32_t i = drive->scrub_entry;
        for (; i < entries.size() && checked < max_records && clock_.now() < deadline; ++i) {
          const Location at{segment->ordinal, entries[i].slot};
          {
            const std::lock_guard lock(mu_);
            const auto entry = index_.find(entries[i].key);
            if (!entry || entry->at != at || !domains_.live(entries[i].domain)) continue;
          }
          const auto slot = read(*segment, geometry_.slot_offset(at.slot), geometry_.slot_bytes);
          if (!slot.ok()) break;
          ++checked;
          const ExpectedRecord expected{.kind = entries[i].kind, .key = entries[i].key, .domain = entries[i].domain};
          const auto payload = open_record(*slot, place_of(*segment, at.slot), expected, nullptr);
          if (payload.ok() || payload.error().code() != Code::kDataLoss) continue;
          ++damaged;
          note_corrupt(*drive, entries[i].key, at, entries[i].domain, payload.error());
        }
        finished = i >= entries.size();
        drive->scrub_entry = finished ? 0 : i;
        const std::lock_guard lock(mu_);
        --segment->pins;
      }
      if (finished) {
        ++visited;
        drive->scrub_entry = 0;
        ++drive->scrub_segment;
      }
    }
    return_queue(*drive, std::move(queue));
  }
  return damaged;
}

}  // namespace deepinfer::store
