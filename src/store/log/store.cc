#include "store/store.h"

#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "base/log.h"
#include "store/log/store_impl.h"

namespace deepinfer::store {
namespace {

constexpr size_t kQueueDepth = 64;
constexpr std::string_view kDomainsFile = "domains";

}  // namespace

// ---- Hit
// --------------------------------------------------------------------------------------------------------------

Hit::~Hit() {
  if (store_ != nullptr && !pinned_.empty()) store_->unpin(pinned_);
}

Hit::Hit(Hit&& other) noexcept {
  *this = std::move(other);
}

Hit& Hit::operator=(Hit&& other) noexcept {
  std::swap(store_, other.store_);
  std::swap(kind_, other.kind_);
  std::swap(domain_, other.domain_);
  std::swap(first_index_, other.first_index_);
  std::swap(blocks_, other.blocks_);
  std::swap(pinned_, other.pinned_);
  std::swap(reason_, other.reason_);
  return *this;
}

// ---- time
// -------------------------------------------------------------------------------------------------------------

uint64_t StoreImpl::use_hour_of(const IndexEntry& entry, uint64_t hour) const {
  return hour - ((hour - entry.use_hour) & (kUseHours - 1));
}

uint64_t StoreImpl::expiry_of(uint32_t domain, RetentionClass retention, uint64_t use_hour) const {
  const DomainInfo* info = domains_.get(domain);
  const bool own = info != nullptr && info->retention == retention;
  switch (retention) {
    case RetentionClass::kGuaranteed:
      return use_hour + (own ? info->ttl_hours : 72);
    case RetentionClass::kAgent:
      return use_hour + (own ? info->ttl_hours : 168);
    case RetentionClass::kPublic:
      return kNever;
    case RetentionClass::kBestEffort:
      return 0;
  }
  return 0;
}

bool StoreImpl::has_expired(uint32_t domain, RetentionClass retention, uint64_t use_hour) const {
  return retention != RetentionClass::kBestEffort && expiry_of(domain, retention, use_hour) < expiry_hour();
}

// ---- opening
// ----------------------------------------------------------------------------------------------------------

StoreImpl::StoreImpl(const StoreOptions& options, IoBackend& backend, const Clock& clock, Geometry geometry,
                     Index index)
    : options_(options),
      backend_(backend),
      clock_(clock),
      time_(clock),
      geometry_(geometry),
      domains_(options.master_key),
      index_(std::move(index)) {}

Status StoreImpl::open() {
  const bool writing = options_.mode == StoreMode::kReadWrite;
  uint64_t capacity = 0;
  for (const std::string& path : options_.drives) {
    auto drive = std::make_unique<Drive>();
    drive->number = drives_.size();
    drive->path = path;
    drives_.push_back(std::move(drive));
    const Status opened = open_drive(*drives_.back());
    if (!opened.ok()) {
      // A drive that is gone costs its blocks, not the service.
      if (options_.drives.size() == 1 || opened.error().code() == Code::kUnavailable) return opened;
      degrade(*drives_.back(), Health::kFailed, opened.error().message());
      continue;
    }
    capacity += drives_.back()->capacity;
  }
  promises_.set_limit(static_cast<uint64_t>(static_cast<double>(capacity) * options_.promised_share));

  if (std::ranges::all_of(drives_, [](const auto& drive) { return drive->health == Health::kFailed; }))
    return Error(Code::kIo, "none of {} drives can be used; the first: {}", drives_.size(), drives_[0]->why);
  RETURN_IF_ERROR(load_domains());
  for (const DomainInfo& domain : domains_.all())
    if (domain.live) promises_.set_quota(domain.number, domain.quota_bytes);
  if (const size_t count = domains_.num_private(); options_.shared_domains && count > 0) {
    log::warn(
        "kv store: {}: {} tenants had blocks here before there was a remote tier; they share none with other "
        "machines until their domain is deleted (DELETE /kv/domain/...)",
        options_.drives[0], count);
  }

  for (auto& drive : drives_) {
    if (drive->health == Health::kFailed) continue;
    if (!options_.threads || !writing) {
      recover(*drive);
    } else {
      drive->thread = std::thread([this, d = drive.get()] { drive_loop(*d, stop_.get_token()); });
    }
  }
  return {};
}

Status StoreImpl::open_drive(Drive& drive) {
  const bool writing = options_.mode == StoreMode::kReadWrite;
  if (writing) {
    RETURN_IF_ERROR(backend_.make_directory(drive.path));
    RETURN_IF_ERROR(backend_.make_directory(drive.path + "/lost"));
    ASSIGN_OR_RETURN(drive.lock, backend_.lock(drive.path + "/LOCK"));
    ASSIGN_OR_RETURN(const std::vector<std::string> names, backend_.list(drive.path));
    for (const std::string& name : names)  // half-made tables of a writer that was killed
      if (name.ends_with(".new")) RETURN_IF_ERROR(backend_.remove(drive.path + "/" + name));
  }
  const auto bytes = read_file(backend_, drive.path + "/drive.meta");
  Result<DriveMeta> meta = bytes.ok() ? parse_drive_meta(*bytes) : Result<DriveMeta>(bytes.error());
  if (!meta.ok() && !writing) return meta.error().in(drive.path);
  if (!meta.ok() && meta.error().code() == Code::kUnimplemented) return meta.error().in(drive.path);
  if (meta.ok()) {
    drive.meta = *meta;
  } else if (const auto rebuilt = rebuild_meta(drive); rebuilt) {
    log::warn("kv store: {}: {}; made anew from the segments", drive.path, meta.error().message());
    drive.meta = *rebuilt;
  } else {
    if (meta.error().code() != Code::kNotFound)
      log::warn("kv store: {}: {}; the drive starts empty", drive.path, meta.error().message());
    random_bytes(drive.meta.id);
    drive.meta.created_ms = now_ms();
  }
  if (writing) {
    ++drive.meta.epoch;
    std::array<std::byte, kHeaderBytes> page;
    write_drive_meta(page, drive.meta);
    RETURN_IF_ERROR(replace_file(backend_, drive.path, "drive.meta", page));
  }
  drive.next_sequence = drive.meta.epoch * kSequencesPerEpoch + 1;
  drive.next_generation = (drive.meta.epoch << 24) + 1;

  ASSIGN_OR_RETURN(const Space space, backend_.space(drive.path));
  drive.capacity = options_.capacity_bytes != 0 ? options_.capacity_bytes : space.free_bytes / 10 * 9;
  if (drive.capacity < 4 * geometry_.file_bytes() && writing)
    return Error(Code::kInvalidArgument, "{}: capacity of {} bytes, expected room for 4 segments of {}",
                 drive.path, drive.capacity, geometry_.file_bytes());

  const size_t copy_bytes = std::max({std::min(size_t{4} << 20, size_t{geometry_.slot_bytes} * 36),
                                      size_t{geometry_.slot_bytes} * 2,
                                      static_cast<size_t>(geometry_.footer_bytes(geometry_.num_slots))});
  ASSIGN_OR_RETURN(drive.copy_queue, backend_.make_queue(kQueueDepth, copy_bytes));
  ASSIGN_OR_RETURN(drive.meta_queue, backend_.make_queue(4, geometry_.footer_bytes(geometry_.num_slots)));
  if (writing) {
    const size_t slots = std::max<size_t>(2, options_.staging_bytes / geometry_.slot_bytes);
    ASSIGN_OR_RETURN(drive.write_queue, backend_.make_queue(kQueueDepth, slots * geometry_.slot_bytes));
    drive.ring.resize(slots);
  }
  const size_t read_bytes = std::max<size_t>(options_.read_bytes, size_t{geometry_.slot_bytes} * 2);
  for (size_t i = 0; i < options_.read_queues; ++i) {
    ASSIGN_OR_RETURN(auto queue, backend_.make_queue(options_.read_depth, read_bytes));
    drive.idle_queues.push_back(std::move(queue));
  }
  drive.scrubbed_at = clock_.now();
  drive.touched_at = clock_.now();
  return {};
}

StoreImpl::~StoreImpl() {
  if (options_.threads) (void)flush(clock_.now() + options_.write_limit);
  stop_.request_stop();
  for (auto& drive : drives_) {
    {
      const std::lock_guard lock(mu_);
      drive->wake.notify_all();
    }
    if (drive->thread.joinable()) drive->thread.join();
    if (options_.mode == StoreMode::kReadWrite && writable(*drive)) (void)write_touched(*drive);
  }
}

void StoreImpl::drive_loop(Drive& drive, std::stop_token stop) {
  recover(drive);
  std::unique_lock lock(mu_);
  while (!stop.stop_requested()) {
    const size_t full = std::max<size_t>(1, options_.commit_bytes / geometry_.slot_bytes);
    auto until = clock_.now() + std::chrono::seconds(1);
    if (drive.num_ready > 0)
      until = flushing_ > 0 || drive.num_ready >= full
                  ? clock_.now()
                  : drive.ring[drive.ring_tail].since + options_.commit_delay;
    if (until > clock_.now() && drive.wake.wait_until(lock, until) == std::cv_status::no_timeout) continue;
    lock.unlock();
    step_drive(drive, false);
    lock.lock();
  }
}

bool StoreImpl::step() {
  CHECK(!options_.threads);
  bool did = false;
  for (auto& drive : drives_) did |= step_drive(*drive, true);
  return did;
}

void StoreImpl::count(Drive& drive, uint64_t DriveStats::* counter) {
  const std::lock_guard lock(mu_);
  ++(drive.stats.*counter);
}

void StoreImpl::degrade(Drive& drive, Health health, const std::string& why) {
  const std::lock_guard lock(mu_);
  if (drive.health == Health::kFailed || drive.health == health) return;
  drive.health = health;
  drive.why = why;
  log::error("kv store: {}: {}: {}", drive.path,
             health == Health::kFailed ? "given up" : "read-only from now on", why);
  progress_.notify_all();
}

// ---- domains
// ----------------------------------------------------------------------------------------------------------

// The newest copy of the table; every drive has one. A drive that was away has an old one.
Status StoreImpl::load_domains() {
  std::vector<std::byte> newest;
  uint64_t serial = 0;
  size_t num_copies = 0, num_newest = 0;
  bool has_segments = false;
  Status damage;
  for (auto& drive : drives_) {
    if (drive->health == Health::kFailed) continue;
    if (const auto names = backend_.list(drive->path); names.ok())
      has_segments |= std::ranges::any_of(*names, [](const std::string& name) { return segment_id_of(name).has_value(); });
    ++num_copies;
    const auto bytes = read_file(backend_, drive->path + "/" + std::string(kDomainsFile));
    if (!bytes.ok() && bytes.error().code() == Code::kNotFound) continue;
    DomainTable table(options_.master_key);
    const Status loaded = bytes.ok() ? table.load(*bytes) : Status(bytes.error());
    if (!loaded.ok()) {
      damage = loaded.error().in(drive->path);
      log::error("kv store: {}", damage.error().message());
      continue;
    }
    if (num_newest > 0 && table.serial() < serial) continue;
    num_newest = num_newest > 0 && table.serial() == serial ? num_newest + 1 : 1;
    serial = table.serial();
    newest = *bytes;
  }
  if (num_newest == 0 && !damage.ok()) return damage;
  if (num_newest == 0 && has_segments)
    log::error("kv store: {}: there are blocks and no table of domains: none of them will be found", drives_[0]->path);
  {
    const std::lock_guard lock(mu_);
    RETURN_IF_ERROR(domains_.load(newest));
  }
  const bool uneven = num_newest > 0 && num_newest < num_copies;
  return uneven && options_.mode == StoreMode::kReadWrite ? write_domains() : Status();
}

// To every drive; one that takes it is enough.
Status StoreImpl::write_domains() {
  std::vector<std::byte> bytes;
  {
    const std::lock_guard lock(mu_);
    bytes = domains_.serialize();
  }
  Status failure;
  size_t written = 0;
  for (auto& drive : drives_) {
    if (drive->health == Health::kFailed) continue;
    const Status done = replace_file(backend_, drive->path, std::string(kDomainsFile), bytes);
    written += done.ok() ? 1 : 0;
    if (!done.ok()) failure = done;
  }
  if (written > 0 && !failure.ok()) log::warn("kv store: {}; the other drives have the domains", failure.error().message());
  if (written == 0 && failure.ok()) return Error(Code::kUnavailable, "KV domains: no drive can be written");
  return written > 0 ? Status() : failure;
}

Status StoreImpl::save_domains() {
  {
    const std::lock_guard lock(mu_);
    domains_.raise_serial();
  }
  return write_domains();
}

Result<uint32_t> StoreImpl::domain(std::string_view name) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(mu_);
    if (const auto found = domains_.find(name)) return *found;
    if (options_.mode == StoreMode::kReadOnly)
      return Error(Code::kUnavailable, "KV domain: unknown here, and this process does not write");
    number = domains_.create(name, now_ms(), options_.shared_domains);
  }
  if (const Status saved = save_domains(); !saved.ok()) {
    const std::lock_guard lock(mu_);
    domains_.get(number)->id = {};  // it was never there: its name was not deleted
    domains_.destroy(number);  // its secret is not on disk: blocks under it would be lost at the next start
    return saved.error();
  }
  return number;
}

std::optional<uint32_t> StoreImpl::find_domain(std::string_view name) const {
  const std::lock_guard lock(mu_);
  return domains_.find(name);
}

Result<Key> StoreImpl::chain_key(uint32_t number) const {
  const std::lock_guard lock(mu_);
  const DomainInfo* domain = domains_.get(number);
  if (domain == nullptr) return Error(Code::kNotFound, "KV domain {}: unknown or deleted", number);
  return DomainTable::chain_key(*domain);
}

Status StoreImpl::set_quota(uint32_t number, uint64_t quota_bytes, RetentionClass retention,
                            uint32_t ttl_hours) {
  if (ttl_hours == 0 || ttl_hours > kMaxTtlHours)
    return Error(Code::kInvalidArgument, "time to live of {} hours, expected 1 to {}", ttl_hours,
                 kMaxTtlHours);
  {
    const std::lock_guard lock(mu_);
    DomainInfo* domain = domains_.get(number);
    if (domain == nullptr) return Error(Code::kNotFound, "KV domain {}: unknown or deleted", number);
    uint64_t sum = 0;
    for (const DomainInfo& other : domains_.all())
      if (other.live && other.number != number && other.quota_bytes != UINT64_MAX) sum += other.quota_bytes;
    const auto with_copies =
        static_cast<uint64_t>(static_cast<double>(sum + quota_bytes) * (1 + options_.reinsertion_share));
    if (quota_bytes != UINT64_MAX && with_copies > promises_.limit_bytes())
      return Error(Code::kResourceExhausted,
                   "quotas of {} bytes and {} for copies exceed the {} bytes that can be promised",
                   sum + quota_bytes, with_copies - sum - quota_bytes, promises_.limit_bytes());
    domain->quota_bytes = quota_bytes;
    domain->retention = retention;
    domain->ttl_hours = ttl_hours;
    promises_.set_quota(number, quota_bytes);
  }
  return save_domains();
}

Status StoreImpl::delete_domain(uint32_t number) {
  {
    const std::lock_guard lock(mu_);
    if (!domains_.destroy(number)) return Error(Code::kNotFound, "KV domain {}: unknown or deleted", number);
    promises_.forget(number);
  }
  return save_domains();
}

std::vector<DomainInfo> StoreImpl::domains() const {
  const std::lock_guard lock(mu_);
  std::vector<DomainInfo> all = domains_.all();
  for (DomainInfo& domain : all) wipe(domain.secret);
  return all;
}

// ---- put
// --------------------------------------------------------------------------------------------------------------

// Blocks of a chain stay on one drive, so that they lie side by side.
Drive* StoreImpl::choose_drive(const Digest& parent) {
  if (const auto waiting = pending_.find(parent); waiting != pending_.end()) {
    Drive& drive = *drives_[waiting->second.second];
    if (writable(drive)) return &drive;
  }
  if (const auto entry = index_.find(parent)) {
    Drive& drive = *drives_[segments_[entry->at.segment].drive];
    if (writable(drive)) return &drive;
  }
  Drive* best = nullptr;
  for (auto& drive : drives_) {
    if (!writable(*drive)) continue;
    if (best == nullptr || drive->ring_count * best->ring.size() < best->ring_count * drive->ring.size() ||
        (drive->ring_count == best->ring_count && drive->stats.written_bytes < best->stats.written_bytes))
      best = drive.get();
  }
  return best;
}

// Stored, or on its way, and no worse than the new one. That is a use of it. Called with mu_ held.
bool StoreImpl::is_present(const BlockInfo& block) {
  const auto better = [&](Lineage there) { return there == Lineage::kDerived && block.lineage == Lineage::kExact; };
  if (const auto entry = index_.find(block.key)) {
    const uint64_t hour = now_hour();
    const Segment& segment = segments_[entry->at.segment];
    const bool usable = segment.use != SegmentUse::kFree && segment.use != SegmentUse::kGone &&
                        !has_expired(block.domain, entry->retention, use_hour_of(*entry, hour));
    if (usable && !better(entry->lineage)) {
      count_use(block.domain, block.key, *entry);
      return true;
    }
  }
  const auto waiting = pending_.find(block.key);
  return waiting != pending_.end() && !better(waiting->second.first);
}

PutResult StoreImpl::put(const BlockInfo& block, std::span<const std::byte> payload) {
  CHECK(payload.size() == geometry_.payload_bytes);
  if (options_.mode == StoreMode::kReadOnly) return PutResult::kRefused;
  StagedSlot slot;
  {
    const std::lock_guard lock(mu_);
    ++stats_.puts;
    if (!domains_.live(block.domain)) return PutResult::kRefused;
    promises_.advance(expiry_hour());
    if (is_present(block)) {
      ++stats_.present;
      return PutResult::kPresent;
    }
    const PutResult staged = stage(RecordKind::kBlock, block, choose_drive(block.parent), slot);
    if (staged != PutResult::kQueued) return staged;
  }
  std::memcpy(slot.payload.data(), payload.data(), payload.size());
  make_ready(slot);
  return PutResult::kQueued;
}

// A place in the drive's ring, and the promise that the class asks for if there is room for it. Called with mu_ held.
PutResult StoreImpl::stage(RecordKind kind, const BlockInfo& block, Drive* drive, StagedSlot& slot) {
  const DomainInfo* domain = domains_.get(block.domain);
  if (drive == nullptr || domain == nullptr) return PutResult::kRefused;
  if (drive->ring_count == drive->ring.size()) {
    ++stats_.dropped_full;
    return PutResult::kFull;
  }
  const uint64_t hour = now_hour();
  RetentionClass retention = block.retention.value_or(domain->retention);
  uint64_t expiry = expiry_of(block.domain, retention, hour);
  if (drive->day != hour / 24) {
    drive->day = hour / 24;
    drive->day_bytes = 0;
    drive->corrupt_today = 0;
  }
  if (const uint64_t budget = options_.write_budget_bytes_per_day; budget != 0) {
    const bool last = retention != RetentionClass::kBestEffort && !block.one_shot;
    const uint64_t limit = block.one_shot ? budget / 10 * 8 : budget;
    if (!last && drive->day_bytes + geometry_.slot_bytes > limit) {
      ++stats_.dropped_budget;
      return PutResult::kOverBudget;
    }
  }
  if (retention != RetentionClass::kBestEffort) {
    const uint64_t ms = now_ms();
    promised_rate_ *= std::exp(-static_cast<double>(ms - std::min(ms, promised_rate_ms_)) / 7.2e6);
    promised_rate_ += geometry_.slot_bytes / 7200.0;
    promised_rate_ms_ = ms;
    if (!promises_.reserve(block.domain, geometry_.slot_bytes, expiry)) {
      retention = RetentionClass::kBestEffort;
      expiry = 0;
      ++stats_.demoted;
    }
  }
  const size_t at = (drive->ring_tail + drive->ring_count) % drive->ring.size();
  ++drive->ring_count;
  drive->day_bytes += geometry_.slot_bytes;
  drive->ring[at] = {kind, block, retention, expiry, now_ms(), clock_.now(), false};
  pending_[block.key] = {block.lineage, drive->number};
  ++queued_;
  const auto bytes = drive->write_queue->memory().subspan(at * geometry_.slot_bytes, geometry_.slot_bytes);
  slot = {drive, &drive->ring[at], slot_payload(bytes, geometry_.payload_bytes)};
  return PutResult::kQueued;
}

void StoreImpl::make_ready(const StagedSlot& slot) {
  const std::lock_guard lock(mu_);
  slot.staged->ready = true;
  ++slot.drive->num_ready;
  const size_t full = std::max<size_t>(1, options_.commit_bytes / geometry_.slot_bytes);
  if (slot.drive->num_ready == 1 || slot.drive->num_ready == full) slot.drive->wake.notify_one();
}

Status StoreImpl::flush(Clock::time_point deadline) {
  if (options_.mode == StoreMode::kReadOnly) return {};
  std::unique_lock lock(mu_);
  const uint64_t goal = queued_;
  if (!options_.threads) {
    while (finished_ < goal) {
      lock.unlock();
      const bool did = step();
      lock.lock();
      if (!did && finished_ < goal) return Error(Code::kUnavailable, "KV flush: no drive takes the blocks");
    }
    return {};
  }
  ++flushing_;
  for (auto& drive : drives_) drive->wake.notify_one();
  const bool done = progress_.wait_until(lock, deadline, [&] { return finished_ >= goal; });
  --flushing_;
  if (!done)
    return Error(Code::kDeadlineExceeded, "KV flush: {} blocks are not written yet", goal - finished_);
  return {};
}

Status StoreImpl::wait_ready(Clock::time_point deadline) {
  std::unique_lock lock(mu_);
  const bool ready = progress_.wait_until(lock, deadline, [&] {
    return std::none_of(drives_.begin(), drives_.end(),
                        [](const auto& drive) { return drive->health == Health::kRecovering; });
  });
  return ready ? Status() : Status(Error(Code::kDeadlineExceeded, "KV store: recovery goes on"));
}

StoreStats StoreImpl::stats() const {
  const std::lock_guard lock(mu_);
  StoreStats stats = stats_;
  stats.backend = backend_.name();
  stats.records = index_.size();
  stats.index_bytes = index_.memory_bytes();
  stats.queued_bytes = (queued_ - finished_) * geometry_.slot_bytes;
  stats.clock_steps_back = time_.steps_back();
  stats.clock_steps_forward = time_.steps_forward();
  stats.promised_bytes = promises_.promised_bytes();
  stats.promised_limit_bytes = promises_.limit_bytes();
  const uint64_t ms = now_ms();
  const double rate =
      promised_rate_ * std::exp(-static_cast<double>(ms - std::min(ms, promised_rate_ms_)) / 7.2e6);
  double room_bytes = 0;  // what may be promised of what there really is
  for (const auto& drive : drives_)
    room_bytes += options_.promised_share *
                  static_cast<double>(is_full(*drive) ? std::min(drive->capacity, drive->room_limit) : drive->capacity);
  stats.projected_retention_s = room_bytes / std::max(rate, 1.0);
  for (const auto& drive : drives_) {
    DriveStats one = drive->stats;
    one.path = drive->path;
    one.capacity_bytes = drive->capacity;
    one.used_bytes = drive->used;
    one.quarantined_queues = drive->quarantine.size();
    switch (drive->health) {
      case Health::kRecovering:
        one.state = "recovering";
        break;
      case Health::kOk:
        one.state = is_full(*drive) ? "full: the file system has no room; new blocks are dropped" : "ok";
        break;
      case Health::kReadOnly:
        one.state = "read-only: " + drive->why;
        break;
      case Health::kFailed:
        one.state = "failed: " + drive->why;
        break;
    }
    if (drive->ring_count > 0) {
      const std::chrono::duration<double> waits = clock_.now() - drive->ring[drive->ring_tail].since;
      stats.oldest_queued_s = std::max(stats.oldest_queued_s, waits.count());
    }
    for (const Segment* segment : drive->segments) {
      if (segment->live > 0 && !segment->foreign) {
        const uint64_t age_ms = ms - std::min(ms, segment->header.created_ms);
        double& oldest = stats.oldest_s[static_cast<size_t>(segment->header.retention)];
        oldest = std::max(oldest, static_cast<double>(age_ms) / 1e3);
      }
      ++one.segments;
      one.records += segment->live;
      if (segment->use == SegmentUse::kFree) ++one.free_segments;
    }
    stats.drives.push_back(std::move(one));
  }
  return stats;
}

// ---- the face
// ---------------------------------------------------------------------------------------------------------

Store::Store(std::unique_ptr<StoreImpl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const StoreOptions& asked, IoBackend& backend,
                                           const Clock& clock) {
  StoreOptions options = asked;
  if (options.drives.empty()) return Error(Code::kInvalidArgument, "KV store: no drive was named");
  uint64_t groups = 0;
  for (const uint32_t bytes : options.group_bytes) groups += bytes;
  if (groups != options.payload_bytes)
    return Error(Code::kInvalidArgument, "KV store: groups of {} bytes, payload of {}", groups,
                 options.payload_bytes);
  if (options.fingerprint == Digest{})
    return Error(Code::kInvalidArgument, "KV store: no fingerprint; blocks of another model could be used");
  if (options.master_key == Key{}) return Error(Code::kInvalidArgument, "KV store: no master key");
  uint64_t capacity = options.capacity_bytes;
  if (capacity == 0) {
    RETURN_IF_ERROR(backend.make_directory(options.drives[0]));
    ASSIGN_OR_RETURN(const Space space, backend.space(options.drives[0]));
    capacity = space.free_bytes / 10 * 9;
  }
  options.segment_bytes = std::min(options.segment_bytes, capacity / 16);
  ASSIGN_OR_RETURN(const Geometry geometry, Geometry::make(options.payload_bytes, options.segment_bytes));
  ASSIGN_OR_RETURN(Index index, Index::make(capacity / geometry.slot_bytes * options.drives.size()));
  auto impl = std::make_unique<StoreImpl>(options, backend, clock, geometry, std::move(index));
  RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Result<uint32_t> Store::domain(std::string_view name) {
  return impl_->domain(name);
}
std::optional<uint32_t> Store::find_domain(std::string_view name) const {
  return impl_->find_domain(name);
}
Result<Key> Store::chain_key(uint32_t domain) const {
  return impl_->chain_key(domain);
}
Status Store::set_quota(uint32_t domain, uint64_t quota_bytes, RetentionClass retention, uint32_t ttl_hours) {
  return impl_->set_quota(domain, quota_bytes, retention, ttl_hours);
}
Status Store::delete_domain(uint32_t domain) {
  return impl_->delete_domain(domain);
}
std::vector<DomainInfo> Store::domains() const {
  return impl_->domains();
}
PutResult Store::put(const BlockInfo& block, std::span<const std::byte> payload) {
  return impl_->put(block, payload);
}
Status Store::flush(Clock::time_point deadline) {
  return impl_->flush(deadline);
}
Hit Store::lookup(uint32_t domain, std::span<const Digest> keys, Lineage accept, uint32_t first_index) {
  return impl_->lookup(domain, keys, accept, first_index);
}
LoadResult Store::load(const Hit& hit, size_t first, Clock::time_point deadline, const BlockSink& sink) {
  return impl_->load(hit, first, deadline, sink);
}
void Store::touch(uint32_t domain, std::span<const Digest> keys) {
  impl_->touch(domain, keys);
}
PutResult Store::put_object(const ObjectInfo& object, std::span<const std::byte> bytes) {
  return impl_->put_object(object, bytes);
}
std::optional<ObjectHit> Store::find_newest(RecordKind kind, uint32_t domain, std::span<const Digest> keys,
                                            Lineage accept) {
  return impl_->find_newest(kind, domain, keys, accept);
}
LoadedObject Store::load_object(const ObjectHit& found, Clock::time_point deadline) {
  return impl_->load_object(found, deadline);
}
size_t Store::scrub(size_t max_records, Clock::time_point deadline) {
  return impl_->scrub(max_records, deadline);
}
Status Store::refresh() {
  return impl_->refresh();
}
Status Store::wait_ready(Clock::time_point deadline) {
  return impl_->wait_ready(deadline);
}
StoreStats Store::stats() const {
  return impl_->stats();
}
const Geometry& Store::geometry() const {
  return impl_->geometry();
}
const Digest& Store::fingerprint() const {
  return impl_->fingerprint();
}
bool Store::step() {
  return impl_->step();
}

}  // namespace deepinfer::store
