#include "engine/store_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace deepinfer {
namespace {

constexpr std::chrono::milliseconds kDomainWait{250}, kStagingWait{2};
constexpr std::chrono::seconds kOldestWrite{30};  // a unit that waits longer for room in staging loses its tail
constexpr std::chrono::seconds kStopLimit{5}, kDomainRetry{30};
constexpr std::chrono::milliseconds kTierFindLimit{200}, kTierWriteLimit{10'000};
constexpr size_t kTierFindPiece = 64, kTierLoadPiece = 16;  // most blocks of one call
constexpr size_t kMostReplicating = 64 << 20;               // bytes; a tier that is further behind misses blocks

std::chrono::milliseconds until(const Clock& clock, Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock.now());
}

size_t leading_ok(std::span<const store::TierStatus> statuses) {
  const auto other =
      std::ranges::find_if(statuses, [](store::TierStatus one) { return one != store::TierStatus::kOk; });
  return static_cast<size_t>(other - statuses.begin());
}

}  // namespace

// ---- Lane ------------------------------------------------------------------------------------------------------------

void Lane::post(std::function<void()> work) {
  const std::lock_guard lock(mu_);
  if (stopping_) return;
  work_.push_back(std::move(work));
  wake_.notify_one();
}

size_t Lane::num_waiting() const {
  const std::lock_guard lock(mu_);
  return work_.size();
}

bool Lane::stopping() const {
  const std::lock_guard lock(mu_);
  return stopping_;
}

void Lane::stop() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Lane::run() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mu_);
      wake_.wait(lock, [&] { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

// ---- StoreQueue ------------------------------------------------------------------------------------------------------

StoreQueue::StoreQueue(store::Store& store, store::GuardedTier* tier, const Clock& clock, BlockBytes block_bytes,
                       Answer answer)
    : store_(store), tier_(tier), clock_(clock), block_bytes_(std::move(block_bytes)), answer_(std::move(answer)) {}

StoreQueue::~StoreQueue() {
  {
    const std::lock_guard lock(mu_);
    write_until_ = clock_.now() + kStopLimit;
  }
  reads_.stop();  // and only then the tier's, which it posts to
  writes_.stop();
  tier_reads_.stop();
  tier_writes_.stop();
}

void StoreQueue::post(Lane& lane, StoreTaskPtr task, std::function<void(StoreTaskPtr)> work) {
  // A function object has to be copyable; the lane calls it once.
  lane.post(
      [shared = std::make_shared<StoreTaskPtr>(std::move(task)), work = std::move(work)] { work(std::move(*shared)); });
}

void StoreQueue::submit(StoreTaskPtr task) {
  const bool reads = task->kind == StoreTask::Kind::kFind || task->kind == StoreTask::Kind::kLoad;
  post(reads ? reads_ : writes_, std::move(task), [this](StoreTaskPtr task) {
    switch (task->kind) {
      case StoreTask::Kind::kFind:
        find(*task);
        if (tier_ == nullptr || task->done == task->keys.size()) break;
        return post(tier_reads_, std::move(task), [this](StoreTaskPtr task) {
          find_in_tier(*task);
          answer_(std::move(task));
        });
      case StoreTask::Kind::kLoad:
        load(*task);
        if (task->done == task->blocks.size() || task->reason != MissReason::kNone) break;
        return post(tier_reads_, std::move(task), [this](StoreTaskPtr task) {
          load_from_tier(*task);
          answer_(std::move(task));
        });
      case StoreTask::Kind::kWrite:
        write(*task);
        break;
      case StoreTask::Kind::kWriteState:
        task->done = store_.put_object({.kind = store::RecordKind::kWindowState,
                                        .domain = task->domain,
                                        .key = task->keys.front(),
                                        .lineage = Lineage::kExact,
                                        .replaces = task->replaces},
                                       task->state_bytes) == store::PutResult::kQueued;
        break;
      case StoreTask::Kind::kTouch:
        store_.touch(task->domain, task->keys);
        return;
    }
    answer_(std::move(task));
  });
}

void StoreQueue::find(StoreTask& task) {
  if (reads_.stopping()) return;
  task.hit = store_.lookup(task.domain, task.keys, task.lineage, static_cast<uint32_t>(task.first_block));
  task.done = task.hit.num_blocks();
  task.reason = task.hit.reason();
  if (task.state_keys.empty()) return;
  task.state = store_.find_newest(store::RecordKind::kWindowState, task.domain, task.state_keys, Lineage::kExact);
}

// What the store lacks; blocks there are exact ones.
void StoreQueue::find_in_tier(StoreTask& task) {
  const auto deadline = std::min(task.deadline, clock_.now() + kTierFindLimit);
  size_t piece = 1;  // most often it has none of them
  for (size_t at = task.done; at < task.keys.size(); piece = std::min(4 * piece, kTierFindPiece)) {
    const auto left = until(clock_, deadline);
    if (left.count() <= 0 || tier_reads_.stopping()) return;
    const auto keys = std::span(task.keys).subspan(at, std::min(piece, task.keys.size() - at));
    const size_t found = leading_ok(tier_->exists(keys, left));
    task.num_remote += found;
    at += found;
    if (found < keys.size()) return;
  }
  task.reason = MissReason::kNone;
}

void StoreQueue::load(StoreTask& task) {
  if (task.state && !reads_.stopping()) {
    task.state_bytes = std::move(store_.load_object(*task.state, task.deadline).bytes);
  }
  if (task.num_remote == task.blocks.size()) return;
  const auto begin = clock_.now();
  if (begin >= task.deadline || reads_.stopping()) {
    task.reason = MissReason::kDeadline;
  } else {
    const auto result =
        store_.load(task.hit, task.skip, task.deadline, [&](size_t i, std::span<const std::byte> payload) {
          std::memcpy(block_bytes_(task.blocks[i - task.skip]).data(), payload.data(), payload.size());
        });
    task.done = result.num_blocks;
    task.reason = result.reason;
  }
  task.seconds = std::chrono::duration<double>(clock_.now() - begin).count();
}

// Behind what the store gave. The store takes what it lacked, if it has room for it.
void StoreQueue::load_from_tier(StoreTask& task) {
  const auto begin = clock_.now();
  while (task.done < task.blocks.size()) {
    const auto left = until(clock_, task.deadline);
    if (left.count() <= 0 || tier_reads_.stopping()) {
      task.reason = MissReason::kDeadline;
      break;
    }
    const size_t count = std::min(kTierLoadPiece, task.blocks.size() - task.done);
    std::vector<std::span<std::byte>> payloads;
    for (size_t i = 0; i < count; ++i) payloads.push_back(block_bytes_(task.blocks[task.done + i]));
    const auto statuses = tier_->get(std::span(task.keys).subspan(task.done, count), payloads, left);
    const size_t good = leading_ok(statuses);
    for (size_t i = 0; i < good; ++i, ++task.done) {
      store::BlockInfo info;
      info.domain = task.domain;
      info.key = task.keys[task.done];
      info.parent = task.done == 0 ? task.parent : task.keys[task.done - 1];
      info.block_index = static_cast<uint32_t>(task.first_block) + static_cast<uint32_t>(task.done);
      store_.put(info, payloads[i]);
    }
    if (good == count) continue;
    task.reason = reason_of(statuses[good]);
    break;
  }
  task.remote_seconds = std::chrono::duration<double>(clock_.now() - begin).count();
}

// In order, so that a chain lies in one piece on the drive. Staging that stays full costs the tail.
void StoreQueue::write(StoreTask& task) {
  size_t known = 0;  // leading blocks that the store has already: they were offered to the tier then
  const auto give_up_at = clock_.now() + kOldestWrite;
  store::BlockInfo info{.domain = task.domain,
                        .key = {},
                        .parent = task.parent,
                        .block_index = static_cast<uint32_t>(task.first_block),
                        .lineage = task.lineage,
                        .retention = {},
                        .cost_us = task.cost_us,
                        .one_shot = task.one_shot};
  for (size_t i = 0; i < task.blocks.size(); ++i, ++info.block_index) {
    info.key = task.keys[i];
    while (true) {
      const auto result = store_.put(info, block_bytes_(task.blocks[i]));
      known += result == store::PutResult::kPresent && known == i ? 1 : 0;
      if (result == store::PutResult::kQueued || result == store::PutResult::kPresent) break;
      if (result != store::PutResult::kFull) return replicate(task, known);
      std::unique_lock lock(mu_);
      if (clock_.now() >= std::min(give_up_at, write_until_)) return replicate(task, known);
      lock.unlock();
      std::this_thread::sleep_for(kStagingWait);
    }
    info.parent = task.keys[i];
    task.done = i + 1;
  }
  replicate(task, known);
}

// Copies of blocks [first, end) go to the tier; derived ones stay here.
void StoreQueue::replicate(const StoreTask& task, size_t first) {
  if (tier_ == nullptr || task.lineage != Lineage::kExact || first == task.blocks.size()) return;
  const size_t bytes = (task.blocks.size() - first) * block_bytes();
  if (replicating_bytes_ + bytes > kMostReplicating) return tier_->count_dropped(task.blocks.size() - first);
  std::vector<Digest> keys(task.keys.begin() + static_cast<ptrdiff_t>(first), task.keys.end());
  std::vector<std::vector<std::byte>> values;
  for (size_t i = first; i < task.blocks.size(); ++i) {
    const auto payload = block_bytes_(task.blocks[i]);
    values.emplace_back(payload.begin(), payload.end());
  }
  uint32_t ttl_hours = 0;
  for (const store::DomainInfo& domain : store_.domains()) {
    if (domain.number == task.domain) ttl_hours = domain.ttl_hours;
  }
  replicating_bytes_ += bytes;
  tier_writes_.post([this, bytes, ttl_hours, keys = std::move(keys), values = std::move(values)] {
    auto deadline = clock_.now() + kTierWriteLimit;
    {
      const std::lock_guard lock(mu_);
      deadline = std::min(deadline, write_until_);
    }
    const std::vector<std::span<const std::byte>> payloads(values.begin(), values.end());
    const auto left = until(clock_, deadline);
    if (left.count() > 0) {
      tier_->put(keys, payloads, std::chrono::hours(ttl_hours), left);
    } else {
      tier_->count_dropped(keys.size());
    }
    replicating_bytes_ -= bytes;
  });
}

std::optional<StoreQueue::Tenant> StoreQueue::tenant(const std::string& name) {
  std::unique_lock lock(mu_);
  if (const auto known = domains_.find(name); known != domains_.end()) {
    const auto key = store_.chain_key(known->second);
    if (key.ok()) return Tenant{known->second, *key};
    domains_.erase(known);  // deleted meanwhile: what comes now begins anew
  }
  if (const auto made = being_made_.find(name);
      made != being_made_.end() && made->second.retry_at && clock_.now() >= *made->second.retry_at) {
    being_made_.erase(made);
  }
  if (const auto [making, is_new] = being_made_.try_emplace(name); is_new) {
    writes_.post([this, name] {
      const auto number = store_.domain(name);
      if (!number.ok()) log::warn("kv store: {}", number.error().message());
      const std::lock_guard lock(mu_);
      if (number.ok()) {
        domains_[name] = *number;
        being_made_.erase(name);
      } else {
        being_made_[name] = {.waited = true, .retry_at = clock_.now() + kDomainRetry};
      }
      made_.notify_all();
    });
  }
  const auto settled = [&] {
    const auto making = being_made_.find(name);
    return making == being_made_.end() || making->second.waited;
  };
  if (!made_.wait_for(lock, kDomainWait, settled)) being_made_[name].waited = true;  // those after it don't wait
  const auto known = domains_.find(name);
  if (known == domains_.end()) return std::nullopt;
  const auto key = store_.chain_key(known->second);
  if (!key.ok()) return std::nullopt;
  return Tenant{known->second, *key};
}

}  // namespace deepinfer
