// Finding what is on a drive: footers of sealed segments, slots of the others. Counters come from what is
// found.
#include <algorithm>

#include "base/log.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "store/log/store_impl.h"

namespace deepinfer::store {
namespace {

constexpr std::array<char, 8> kTouchedMagic = {'D', 'I', 'K', 'V', 'U', 'S', 'E', 1};
constexpr size_t kTouchedHead = 16, kTouchedEntry = 24;

using Touched = std::unordered_map<uint64_t, std::pair<uint64_t, uint64_t>>;  // segment id: generation, hour

std::optional<Touched> parse_touched(std::span<const std::byte> bytes) {
  if (bytes.size() < kTouchedHead || std::memcmp(bytes.data(), kTouchedMagic.data(), 8) != 0)
    return std::nullopt;
  const auto count = get_le<uint32_t>(bytes, 8);
  if (bytes.size() < kTouchedHead + count * kTouchedEntry) return std::nullopt;
  if (crc32c(bytes.subspan(kTouchedHead, count * kTouchedEntry)) != get_le<uint32_t>(bytes, 12))
    return std::nullopt;
  Touched touched;
  for (uint32_t i = 0; i < count; ++i) {
    const auto entry = bytes.subspan(kTouchedHead + i * kTouchedEntry, kTouchedEntry);
    touched[get_le<uint64_t>(entry, 0)] = {get_le<uint64_t>(entry, 8), get_le<uint64_t>(entry, 16)};
  }
  return touched;
}

}  // namespace

void StoreImpl::recover(Drive& drive) {
  const Status status = recover_drive(drive);
  if (!status.ok()) {
    degrade(drive, Health::kFailed, status.error().message());
    return;
  }
  const std::lock_guard lock(mu_);
  if (drive.health == Health::kRecovering)
    drive.health = options_.mode == StoreMode::kReadWrite ? Health::kOk : Health::kReadOnly;
  if (options_.mode == StoreMode::kReadOnly) drive.why = "opened for reading";
  progress_.notify_all();
}

// Who the drive is and how often it was opened follow from the headers of its segments: each names the drive, and its
// generation the epoch. An opening that wrote no header wrote no record.
std::optional<DriveMeta> StoreImpl::rebuild_meta(const Drive& drive) {
  const auto names = backend_.list(drive.path);
  if (!names.ok()) return std::nullopt;
  std::optional<DriveMeta> meta;
  for (const std::string& name : *names) {
    if (!segment_id_of(name)) continue;
    const auto file = backend_.open(drive.path + "/" + name, OpenMode::kReadOnly);
    auto queue = backend_.make_queue(1, kPageBytes);
    if (!file.ok() || !queue.ok()) continue;
    const auto page = (*queue)->memory().first(kPageBytes);
    if (!run_one(**queue, {IoRequest::Op::kRead, file->get(), 0, page, 0}, clock_, options_.write_limit).ok()) continue;
    const auto header = parse_segment_header(page);
    if (!header.ok()) continue;
    if (!meta) meta = DriveMeta{header->drive, 0, header->created_ms};
    if (meta->id != header->drive) return std::nullopt;  // of several drives: none of them is believed
    meta->epoch = std::max(meta->epoch, header->generation >> 24);
    meta->created_ms = std::min(meta->created_ms, header->created_ms);
  }
  return meta;
}

Status StoreImpl::move_to_lost(Drive& drive, const std::string& name) {
  log::warn("kv store: {}/{}: not ours, moved to lost/", drive.path, name);
  count(drive, &DriveStats::lost_files);
  return backend_.rename(drive.path + "/" + name,
                         fmt::format("{}/lost/{}.{}", drive.path, name, drive.meta.epoch));
}

Status StoreImpl::recover_drive(Drive& drive) {
  const bool writing = options_.mode == StoreMode::kReadWrite;
  ASSIGN_OR_RETURN(std::vector<std::string> names, backend_.list(drive.path));
  std::sort(names.begin(), names.end());
  std::optional<Touched> touched;
  if (const auto bytes = read_file(backend_, drive.path + "/touched"); bytes.ok())
    touched = parse_touched(*bytes);

  std::vector<Segment*> used;
  for (const std::string& name : names) {
    const auto id = segment_id_of(name);
    if (!id) {
      constexpr std::array<std::string_view, 5> ours = {"LOCK", "drive.meta", "touched", "domains", "lost"};
      const bool known = std::find(ours.begin(), ours.end(), name) != ours.end() || name == "master.key";
      if (known || !writing) continue;
      if (!name.ends_with(".new"))
        RETURN_IF_ERROR(move_to_lost(drive, name));  // a table being replaced right now
      continue;
    }
    drive.next_segment_id = std::max(drive.next_segment_id, *id + 1);
    const OpenMode mode = writing ? OpenMode::kReadWrite : OpenMode::kReadOnly;
    auto file = backend_.open(drive.path + "/" + name, mode);
    if (!file.ok()) {
      log::warn("kv store: {}", file.error().message());
      count(drive, &DriveStats::read_errors);
      continue;
    }
    Segment& segment = new_segment(drive);
    segment.file = std::move(file).value();
    segment.header.segment_id = *id;
    const auto page = drive.copy_queue->memory().first(kPageBytes);
    std::fill(page.begin(), page.end(), std::byte{0});
    const IoRequest read{IoRequest::Op::kRead, segment.file.get(), 0, page, 0};
    const Status status = do_io(drive, *drive.copy_queue, read);
    if (!status.ok() && status.error().code() == Code::kDeadlineExceeded) return status;
    ASSIGN_OR_RETURN(const uint64_t size, backend_.size(*segment.file));
    if (size == 0 ||
        (status.ok() && std::all_of(page.begin(), page.end(), [](std::byte b) { return b == std::byte{0}; })))
      continue;  // made just before the power went: no header was ever written
    const auto header = status.ok() ? parse_segment_header(page) : Result<SegmentHeader>(status.error());
    if (!header.ok() && header.error().code() == Code::kUnimplemented) {  // of another version: not ours to give back
      log::warn("kv store: {}/{}: {}; left alone", drive.path, name, header.error().message());
      segment.foreign = true;
      segment.use = SegmentUse::kSealed;
      segment.header.retention = RetentionClass::kPublic;
      segment.newest_expiry = kNever;
      set_used(drive, segment, size);
      continue;
    }
    if (!header.ok() || header->segment_id != *id || header->drive != drive.meta.id) {
      log::warn("kv store: {}/{}: {}; its records are lost, the file is used anew", drive.path, name,
                header.ok() ? "of another drive" : header.error().message());
      count(drive, &DriveStats::corrupt);
      segment.use = SegmentUse::kFree;
      continue;
    }
    segment.header = *header;
    if (header->state == SegmentState::kFree) continue;
    if (header->fingerprint != options_.fingerprint || header->geometry != geometry_) {
      segment.foreign = true;
      segment.use = SegmentUse::kSealed;
      const uint64_t hours = header->retention == RetentionClass::kBestEffort   ? 0
                             : header->retention == RetentionClass::kGuaranteed ? 72
                             : header->retention == RetentionClass::kAgent      ? 168
                                                                                : kMaxTtlHours;
      segment.newest_expiry = std::min(header->created_ms / 3'600'000, now_hour()) + hours + 1;
      set_used(drive, segment, size);
      continue;
    }
    used.push_back(&segment);
  }
  // In the order in which they were written, so that of two records with one key the later is met later.
  std::sort(used.begin(), used.end(), [](const Segment* a, const Segment* b) {
    return a->header.first_sequence < b->header.first_sequence;
  });
  for (Segment* segment : used) {
    uint64_t last_hit = touched ? 0 : now_hour();
    if (touched) {
      const auto it = touched->find(segment->header.segment_id);
      if (it != touched->end() && it->second.first == segment->header.generation)
        last_hit = it->second.second;
    }
    const Status status = take_in_segment(drive, *segment, std::min(last_hit, now_hour()));
    if (status.ok()) continue;
    if (status.error().code() == Code::kDeadlineExceeded) return status;
    log::warn("kv store: {}/{}: {}", drive.path, segment_file_name(segment->header.segment_id),
              status.error().message());
    count(drive, &DriveStats::read_errors);
  }
  return {};
}

Status StoreImpl::take_in_segment(Drive& drive, Segment& segment, uint64_t last_hit_hour) {
  segment.last_hit_hour = last_hit_hour;
  const Status footer = take_in_footer(drive, segment, last_hit_hour);
  if (footer.ok() || footer.error().code() == Code::kDeadlineExceeded) return footer;
  RETURN_IF_ERROR(scan_slots(drive, segment, last_hit_hour));
  if (options_.mode == StoreMode::kReadOnly) return {};
  set_used(drive, segment, geometry_.file_bytes());
  return seal(drive, segment);
}

Status StoreImpl::take_in_footer(Drive& drive, Segment& segment, uint64_t last_hit_hour) {
  IoQueue& queue = *drive.copy_queue;
  const auto head = queue.memory().first(kPageBytes);
  RETURN_IF_ERROR(
      do_io(drive, queue, {IoRequest::Op::kRead, segment.file.get(), geometry_.footer_offset(), head, 0}));
  ASSIGN_OR_RETURN(const FooterHeader header, parse_footer_header(head, segment.header));
  const uint64_t bytes = geometry_.footer_bytes(header.num_entries);
  const auto whole = queue.memory().first(bytes);
  if (bytes > kPageBytes)
    RETURN_IF_ERROR(
        do_io(drive, queue, {IoRequest::Op::kRead, segment.file.get(), geometry_.footer_offset(), whole, 0}));
  RETURN_IF_ERROR(check_footer_entries(whole, header, segment.header));
  std::vector<FooterEntry> entries(header.num_entries);
  for (uint32_t i = 0; i < header.num_entries; ++i) entries[i] = footer_entry(whole, i);
  segment.last_sequence = header.last_sequence;
  segment.next_slot = entries.empty() ? 1 : entries.back().slot + 1u;
  set_used(drive, segment, geometry_.slot_offset(segment.next_slot) + bytes);
  {
    const std::lock_guard lock(mu_);
    segment.use = SegmentUse::kSealed;
  }
  take_in(drive, segment, entries, last_hit_hour);
  return {};
}

// Reads slot after slot while there are headers of this life of the segment; each record is checked as a
// whole.
Status StoreImpl::scan_slots(Drive& drive, Segment& segment, uint64_t last_hit_hour) {
  IoQueue& queue = *drive.copy_queue;
  const uint32_t chunk = static_cast<uint32_t>(queue.memory().size() / geometry_.slot_bytes);
  const uint32_t first = segment.next_slot;  // read-only mode goes on where it stopped
  uint64_t before = segment.last_sequence;
  std::vector<FooterEntry> found;
  uint32_t last = first - 1;
  for (uint32_t at = first; at <= geometry_.num_slots; at += chunk) {
    const uint32_t count = std::min(chunk, geometry_.num_slots + 1 - at);
    const auto buffer = queue.memory().first(count * geometry_.slot_bytes);
    RETURN_IF_ERROR(do_io(drive, queue,
                          {IoRequest::Op::kRead, segment.file.get(), geometry_.slot_offset(at), buffer, 0}));
    bool any = false;
    for (uint32_t i = 0; i < count; ++i) {
      const auto slot = buffer.subspan(i * geometry_.slot_bytes, geometry_.slot_bytes);
      const auto header = parse_record_header(slot.first(kHeaderBytes));
      if (!header.ok() || !check_place(*header, place_of(segment, at + i)).ok() ||
          header->sequence <= before || header->sequence < segment.header.first_sequence)
        continue;
      any = true;
      if (!parse_record(slot).ok()) continue;  // written in part when the power went
      before = header->sequence;
      last = at + i;
      found.push_back(summary_of(*header, segment.header.first_sequence));
    }
    if (!any) break;
  }
  segment.entries.insert(segment.entries.end(), found.begin(), found.end());
  segment.last_sequence = before;
  segment.next_slot = last + 1;
  {
    const std::lock_guard lock(mu_);
    segment.use = SegmentUse::kOpen;
  }
  take_in(drive, segment, found, last_hit_hour);
  return {};
}

std::optional<uint64_t> StoreImpl::sequence_at(Drive& drive, Location at) {
  const Segment& segment = [&]() -> const Segment& {
    const std::lock_guard lock(mu_);  // another drive's recovery may add to the table
    return segments_[at.segment];
  }();
  if (segment.drive != drive.number || segment.file == nullptr) return std::nullopt;
  // Behind the footer that is being taken in: entries were copied out of it before.
  const auto page = drive.copy_queue->memory().last(kPageBytes);
  const IoRequest read{IoRequest::Op::kRead, segment.file.get(), segment.header.geometry.slot_offset(at.slot),
                       page, 0};
  if (!do_io(drive, *drive.copy_queue, read).ok()) return std::nullopt;
  const auto header = parse_record_header(page.first(kHeaderBytes));
  if (!header.ok()) return std::nullopt;
  return header->sequence;
}

void StoreImpl::take_in(Drive& drive, Segment& segment, std::span<const FooterEntry> entries,
                        uint64_t last_hit_hour) {
  constexpr size_t kAhead = 8, kBatch = 512;
  std::vector<FooterEntry> doubles;
  for (size_t begin = 0; begin < entries.size(); begin += kBatch) {
    const std::lock_guard lock(mu_);
    const uint64_t hour = now_hour();
    const size_t end = std::min(entries.size(), begin + kBatch);
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < entries.size()) index_.prefetch(entries[i + kAhead].key);
      const FooterEntry& entry = entries[i];
      if (!domains_.live(entry.domain)) continue;
      if (index_.find(entry.key)) {
        doubles.push_back(entry);
        continue;
      }
      const uint64_t use = std::min(hour, std::max(entry.created_ms / 3'600'000, last_hit_hour));
      const uint64_t expiry = expiry_of(entry.domain, entry.retention, use);
      if (has_expired(entry.domain, entry.retention, use)) {
        ++stats_.expired;
        continue;
      }
      IndexEntry fresh{{segment.ordinal, entry.slot},
                       entry.retention,
                       entry.lineage,
                       0,
                       static_cast<uint16_t>(use % kUseHours)};
      if (!index_.insert(entry.key, fresh)) continue;
      ++segment.live;
      segment.newest_expiry = std::max(segment.newest_expiry, expiry);
      if (entry.retention != RetentionClass::kBestEffort)
        promises_.restore(entry.domain, geometry_.slot_bytes, expiry);
    }
  }
  for (const FooterEntry& entry : doubles) {
    std::optional<IndexEntry> existing;
    {
      const std::lock_guard lock(mu_);
      existing = index_.find(entry.key);
    }
    if (!existing || existing->at == Location{segment.ordinal, entry.slot}) continue;
    const uint64_t sequence = segment.header.first_sequence + entry.sequence_offset;
    if (existing->lineage == entry.lineage || entry.kind != RecordKind::kBlock) {
      const auto theirs = sequence_at(drive, existing->at);
      if (theirs && *theirs > sequence) continue;
    } else if (entry.lineage == Lineage::kDerived) {
      continue;
    }
    const std::lock_guard lock(mu_);
    existing = index_.find(entry.key);
    if (!existing) continue;
    const uint64_t hour = now_hour();
    if (existing->retention != RetentionClass::kBestEffort)
      promises_.release(entry.domain, geometry_.slot_bytes,
                        expiry_of(entry.domain, existing->retention, use_hour_of(*existing, hour)));
    const uint64_t use = std::min(hour, std::max(entry.created_ms / 3'600'000, last_hit_hour));
    const uint64_t expiry = expiry_of(entry.domain, entry.retention, use);
    --segments_[existing->at.segment].live;
    index_.insert(entry.key, {{segment.ordinal, entry.slot},
                              entry.retention,
                              entry.lineage,
                              0,
                              static_cast<uint16_t>(use % kUseHours)});
    ++segment.live;
    segment.newest_expiry = std::max(segment.newest_expiry, expiry);
    if (entry.retention != RetentionClass::kBestEffort)
      promises_.restore(entry.domain, geometry_.slot_bytes, expiry);
  }
}

Status StoreImpl::write_touched(Drive& drive) {
  std::vector<std::byte> bytes(kTouchedHead);
  uint32_t count = 0;
  {
    const std::lock_guard lock(mu_);
    if (!drive.touched_changed) return {};
    drive.touched_changed = false;
    for (const Segment* segment : drive.segments) {
      if (segment->last_hit_hour == 0 ||
          (segment->use != SegmentUse::kOpen && segment->use != SegmentUse::kSealed))
        continue;
      bytes.resize(bytes.size() + kTouchedEntry);
      const auto entry = std::span(bytes).last(kTouchedEntry);
      put_le(entry, 0, segment->header.segment_id);
      put_le(entry, 8, segment->header.generation);
      put_le(entry, 16, segment->last_hit_hour);
      ++count;
    }
  }
  put_le(std::span(bytes), 0, kTouchedMagic);
  put_le(std::span(bytes), 8, count);
  put_le(std::span(bytes), 12, crc32c(std::span(bytes).subspan(kTouchedHead)));
  return replace_file(backend_, drive.path, "touched", bytes);
}

// Read-only: segments that began a new life are taken in anew under a new ordinal, open ones are read on.
Status StoreImpl::refresh() {
  if (options_.mode == StoreMode::kReadWrite) return {};
  RETURN_IF_ERROR(load_domains());
  for (auto& drive : drives_) {
    if (drive->health == Health::kFailed) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, backend_.list(drive->path));
    std::unordered_map<uint64_t, Segment*> known;
    for (Segment* segment : drive->segments)
      if (segment->use != SegmentUse::kGone) known[segment->header.segment_id] = segment;
    for (const std::string& name : names) {
      const auto id = segment_id_of(name);
      if (!id) continue;
      const auto it = known.find(*id);
      Segment* segment = it == known.end() ? nullptr : it->second;
      if (segment == nullptr) {
        auto file = backend_.open(drive->path + "/" + name, OpenMode::kReadOnly);
        if (!file.ok()) continue;
        segment = &new_segment(*drive);
        segment->file = std::move(file).value();
        segment->header.segment_id = *id;
      }
      const auto page = drive->copy_queue->memory().first(kPageBytes);
      if (!do_io(*drive, *drive->copy_queue, {IoRequest::Op::kRead, segment->file.get(), 0, page, 0}).ok())
        continue;
      const auto header = parse_segment_header(page);
      if (!header.ok() || header->segment_id != *id || header->drive != drive->meta.id) continue;
      if (header->generation != segment->header.generation && segment->use != SegmentUse::kFree) {
        Segment& next = new_segment(*drive);
        next.file = segment->file;
        {
          const std::lock_guard lock(mu_);
          segment->use = SegmentUse::kGone;  // its index entries end at the next look
          std::erase(drive->segments, segment);
        }
        segment = &next;
      } else if (segment->use == SegmentUse::kSealed) {
        continue;
      }
      segment->header = *header;
      if (header->state == SegmentState::kFree || header->fingerprint != options_.fingerprint ||
          header->geometry != geometry_)
        continue;
      (void)take_in_segment(*drive, *segment, now_hour());
    }
  }
  return {};
}

}  // namespace deepinfer::store
