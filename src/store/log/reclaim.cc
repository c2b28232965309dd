// Who is dropped when room is needed, and who is copied forward. Source: docs/spec/kv.md 5.
//
// Victims, in this order: segments in which nothing is left or every promise has run out; the oldest of best
// effort; the oldest with promises, whose unexpired records are all copied forward. A promise is never broken
// for room: when only promised blocks are left, new blocks are refused.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "store/log/store_impl.h"

namespace deepinfer::store {
namespace {

constexpr double kMostKept = 0.85;  // copying more than that of a segment forward frees too little

}  // namespace

void StoreImpl::make_room(Drive& drive, uint64_t segments) {
  while (room(drive) < segments + 1) {
    if (!reclaim_one(drive, true)) return;
  }
}

bool StoreImpl::reclaim_one(Drive& drive, bool forced) {
  std::vector<Segment*> passed_over;
  while (writable(drive)) {
    bool drop_all = false;
    Segment* victim = pick_victim(drive, forced, passed_over, drop_all);
    if (victim == nullptr) return false;
    if (reclaim(drive, *victim, drop_all)) return true;
    passed_over.push_back(victim);
  }
  return false;
}

Segment* StoreImpl::pick_victim(Drive& drive, bool forced, std::span<Segment* const> passed_over,
                                bool& drop_all) {
  const std::lock_guard lock(mu_);
  const uint64_t hour = expiry_hour();
  Segment* best = nullptr;
  int best_rank = 4;
  for (Segment* segment : drive.segments) {
    if (segment->use != SegmentUse::kSealed || segment->pins > 0) continue;
    if (std::find(passed_over.begin(), passed_over.end(), segment) != passed_over.end()) continue;
    const bool promised = segment->header.retention != RetentionClass::kBestEffort;
    int rank = promised ? 3 : 2;
    if (segment->foreign) {
      if (promised && segment->newest_expiry >= hour) continue;
      rank = promised || forced ? 1 : 4;
    } else if (segment->live == 0) {
      rank = 0;
    } else if (promised && segment->newest_expiry < hour) {
      rank = 1;
    }
    if (rank > 1 && !forced) continue;
    if (rank < best_rank || (rank == best_rank && best != nullptr &&
                             segment->header.first_sequence < best->header.first_sequence)) {
      best = segment;
      best_rank = rank;
    }
  }
  drop_all = best_rank <= 1;
  return best;
}

// False when the segment stays: too much of it would have to be copied, or somebody began to read it.
bool StoreImpl::reclaim(Drive& drive, Segment& victim, bool drop_all) {
  std::vector<FooterEntry> entries;
  if (!victim.foreign) {
    if (const Status read = read_entries(drive, victim, entries); !read.ok()) {
      // What is in it can't be named any more. Its index entries end when they are met.
      log::warn("kv store: {}: segment {}: {}", drive.path, victim.header.segment_id, read.error().message());
      count(drive, &DriveStats::read_errors);
    }
  }
  std::vector<FooterEntry> keep;
  {
    const std::lock_guard lock(mu_);
    victim.use = SegmentUse::kReclaiming;
    const uint64_t hour = now_hour();
    if (!drop_all) {
      for (const FooterEntry& footer : entries) {
        const auto entry = index_.find(footer.key);
        if (!entry || entry->at != Location{victim.ordinal, footer.slot} || !domains_.live(footer.domain))
          continue;
        const bool promised = entry->retention != RetentionClass::kBestEffort;
        if (promised ? !has_expired(footer.domain, entry->retention, use_hour_of(*entry, hour))
                     : worth_keeping(drive, *entry, footer))
          keep.push_back(footer);
      }
      if (static_cast<double>(keep.size()) > kMostKept * geometry_.num_slots) {
        victim.use = SegmentUse::kSealed;
        return false;
      }
    }
  }
  if (copy_forward(drive, victim, keep) < keep.size() && writable(drive)) {
    // Some could not be copied (no room, or damaged); those that are promised and sound must stay.
    const std::lock_guard lock(mu_);
    const uint64_t hour = now_hour();
    for (const FooterEntry& footer : keep) {
      const auto entry = index_.find(footer.key);
      if (entry && entry->at == Location{victim.ordinal, footer.slot} &&
          entry->retention != RetentionClass::kBestEffort &&
          !has_expired(footer.domain, entry->retention, use_hour_of(*entry, hour))) {
        victim.use = SegmentUse::kSealed;
        return false;
      }
    }
  }
  if (!writable(drive)) return false;
  {
    const std::lock_guard lock(mu_);
    if (victim.pins > 0) {
      victim.use = SegmentUse::kSealed;
      return false;
    }
    const uint64_t hour = now_hour();
    for (const FooterEntry& footer : entries) {
      const auto entry = index_.find(footer.key);
      if (!entry || entry->at != Location{victim.ordinal, footer.slot}) continue;
      const bool promised = entry->retention != RetentionClass::kBestEffort && domains_.live(footer.domain);
      if (promised && !has_expired(footer.domain, entry->retention, use_hour_of(*entry, hour)))
        ++stats_.broken_promises;
      ++(promised ? stats_.expired : stats_.evicted);
      index_.erase(footer.key, entry->at);
      --victim.live;
    }
    ++drive.stats.reclaims;
    victim.use = SegmentUse::kFree;
  }
  if (const Status freed = set_free(drive, victim); !freed.ok()) {
    degrade(drive, Health::kReadOnly, freed.error().message());
    return false;
  }
  return true;
}

Status StoreImpl::read_entries(Drive& drive, Segment& segment, std::vector<FooterEntry>& entries) {
  IoQueue& queue = *drive.copy_queue;
  const auto head = queue.memory().first(kPageBytes);
  RETURN_IF_ERROR(
      do_io(drive, queue, {IoRequest::Op::kRead, segment.file.get(), geometry_.footer_offset(), head, 0}));
  ASSIGN_OR_RETURN(const FooterHeader header, parse_footer_header(head, segment.header));
  const auto whole = queue.memory().first(geometry_.footer_bytes(header.num_entries));
  RETURN_IF_ERROR(
      do_io(drive, queue, {IoRequest::Op::kRead, segment.file.get(), geometry_.footer_offset(), whole, 0}));
  RETURN_IF_ERROR(check_footer_entries(whole, header, segment.header));
  for (uint32_t i = 0; i < header.num_entries; ++i) entries.push_back(footer_entry(whole, i));
  return {};
}

// A new generation on disk first: from then on neither the old footer nor an old record is believed.
Status StoreImpl::set_free(Drive& drive, Segment& segment) {
  SegmentHeader header = segment.header;
  header.generation = drive.next_generation++;
  header.drive = drive.meta.id;
  header.fingerprint = options_.fingerprint;
  header.geometry = geometry_;
  header.state = SegmentState::kFree;
  {
    const std::lock_guard lock(mu_);
    segment.use = SegmentUse::kFree;
    segment.header = header;
    segment.foreign = false;
    segment.entries.clear();
    for (Segment*& open : drive.open)
      if (open == &segment) open = nullptr;
  }
  RETURN_IF_ERROR(write_header(drive, segment));
  RETURN_IF_ERROR(backend_.truncate(*segment.file, kPageBytes));
  set_used(drive, segment, 0);
  if (segment.live == 0) return {};
  // Entries that could not be named still point here: the next life gets another ordinal, they end when they
  // are met.
  Segment& next = new_segment(drive);
  const std::lock_guard lock(mu_);
  next.header = segment.header;
  next.file = segment.file;
  segment.use = SegmentUse::kGone;
  std::erase(drive.segments, &segment);
  return {};
}

// Blocks without a promise earn a second life by use: (hits, halved every six hours, + 1) x recompute time /
// bytes above the running mean, inside the reinsertion budget. Called with mu_ held.
bool StoreImpl::worth_keeping(Drive& drive, const IndexEntry& entry, const FooterEntry& footer) {
  const uint64_t hour = now_hour();
  const double age_h = static_cast<double>(hour - use_hour_of(entry, hour));
  const double score =
      (entry.hits * std::exp2(-age_h / 6) + 1) * std::max(1u, footer.cost_us) / geometry_.slot_bytes;
  const bool above = score >= 0.99 * drive.mean_score;
  drive.mean_score = drive.mean_score == 0 ? score : 0.995 * drive.mean_score + 0.005 * score;
  const double budget = options_.reinsertion_share * static_cast<double>(drive.stats.written_bytes);
  return entry.hits > 0 && above && static_cast<double>(drive.stats.reinserted_bytes) < budget;
}

// Reads, checks and writes anew; returns how many are persisted elsewhere.
size_t StoreImpl::copy_forward(Drive& drive, Segment& victim, std::span<const FooterEntry> keep) {
  IoQueue& queue = *drive.copy_queue;
  const size_t chunk = std::min(queue.memory().size() / geometry_.slot_bytes, queue.depth());
  size_t copied = 0;
  for (size_t begin = 0; begin < keep.size() && writable(drive); begin += chunk) {
    std::vector<Item> items;
    for (size_t i = begin; i < std::min(keep.size(), begin + chunk); ++i) {
      const auto slot = queue.memory().subspan(items.size() * geometry_.slot_bytes, geometry_.slot_bytes);
      const Location at{victim.ordinal, keep[i].slot};
      const IoRequest read{IoRequest::Op::kRead, victim.file.get(), geometry_.slot_offset(at.slot), slot, 0};
      if (!do_io(drive, queue, read).ok()) continue;
      RecordHeader header;
      const auto payload = open_record(slot, place_of(victim, at.slot),
                                       {.kind = keep[i].kind, .key = keep[i].key, .domain = keep[i].domain}, &header);
      if (!payload.ok()) {
        note_corrupt(drive, keep[i].key, at, keep[i].domain, payload.error());
        continue;
      }
      Item item;
      item.header = header;
      item.header.encrypted = options_.encrypt;
      item.slot = slot;
      item.moved_from = at;
      {
        // A block whose parent is gone can never be reached, nor a piece whose first one is; without a promise it is not
        // worth a copy.
        const std::lock_guard lock(mu_);
        const auto entry = index_.find(header.key);
        if (!entry || entry->at != at) continue;
        if (entry->retention == RetentionClass::kBestEffort && header.block_index > 0 &&
            !index_.find(header.parent))
          continue;
        item.header.retention = entry->retention;
      }
      items.push_back(item);
    }
    commit(drive, queue, items, true);
    const std::lock_guard lock(mu_);
    for (const Item& item : items) {
      if (item.state != Item::State::kPersisted) continue;
      ++copied;
      drive.stats.reinserted_bytes += geometry_.slot_bytes;
    }
  }
  return copied;
}

}  // namespace deepinfer::store
