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

StoreQueue::StoreQueue(store::Store& store, const Clock& clock, BlockBytes block_bytes, Answer answer)
    : store_(store), clock_(clock), block_bytes_(std::move(block_bytes)), answer_(std::move(answer)) {}

StoreQueue::~StoreQueue() {
  {
    const std::lock_guard lock(mu_);
    write_until_ = clock_.now() + kStopLimit;
  }
  reads_.stop();
  writes_.stop();
}

void StoreQueue::submit(StoreTaskPtr task) {
  const bool reads = task->kind == StoreTask::Kind::kFind || task->kind == StoreTask::Kind::kLoad;
  Lane& lane = reads ? reads_ : writes_;
  // A function object has to be copyable; the lane calls it once.
  lane.post([this, shared = std::make_shared<StoreTaskPtr>(std::move(task))] {
    StoreTaskPtr task = std::move(*shared);
    switch (task->kind) {
      case StoreTask::Kind::kFind: find(*task); break;
      case StoreTask::Kind::kLoad: load(*task); break;
      case StoreTask::Kind::kWrite: write(*task); break;
      case StoreTask::Kind::kTouch: store_.touch(task->domain, task->keys); return;
    }
    answer_(std::move(task));
  });
}

void StoreQueue::find(StoreTask& task) {
  if (reads_.stopping()) return;
  task.hit = store_.lookup(task.domain, task.keys, task.lineage, static_cast<uint32_t>(task.first_block));
  task.done = task.hit.num_blocks();
  task.reason = task.hit.reason();
}

void StoreQueue::load(StoreTask& task) {
  const auto begin = clock_.now();
  if (begin >= task.deadline || reads_.stopping()) {
    task.reason = store::MissReason::kDeadline;
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

// In order, so that a chain lies in one piece on the drive. Staging that stays full costs the tail.
void StoreQueue::write(StoreTask& task) {
  const auto give_up_at = clock_.now() + kOldestWrite;
  store::BlockInfo info{.domain = task.domain,
                        .key = {},
                        .parent = task.parent,
                        .block_index = static_cast<uint32_t>(task.first_block),
                        .lineage = task.lineage,
                        .retention = {},
                        .cost_us = task.cost_us};
  for (size_t i = 0; i < task.blocks.size(); ++i, ++info.block_index) {
    info.key = task.keys[i];
    while (true) {
      const auto result = store_.put(info, block_bytes_(task.blocks[i]));
      if (result == store::PutResult::kQueued || result == store::PutResult::kPresent) break;
      if (result != store::PutResult::kFull) return;
      std::unique_lock lock(mu_);
      if (clock_.now() >= std::min(give_up_at, write_until_)) return;
      lock.unlock();
      std::this_thread::sleep_for(kStagingWait);
    }
    info.parent = task.keys[i];
    task.done = i + 1;
  }
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
