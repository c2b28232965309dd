#include "store/tiers/tier.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deepinfer::store {
namespace {

constexpr std::array<char, 4> kMagic = {'D', 'I', 'K', 'T'};

std::array<std::byte, 16> half(const Digest& digest) {
  std::array<std::byte, 16> bytes;
  std::copy_n(digest.begin(), bytes.size(), bytes.begin());
  return bytes;
}

std::vector<kv_tier_key> raw_keys(std::span<const Digest> keys) {
  std::vector<kv_tier_key> raw(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) std::memcpy(raw[i].bytes, keys[i].data(), sizeof raw[i].bytes);
  return raw;
}

std::string text_of(const Digest& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

TierStatus to_status(kv_tier_status status) {
  switch (status) {
    case KV_TIER_OK: return TierStatus::kOk;
    case KV_TIER_ABSENT: return TierStatus::kAbsent;
    case KV_TIER_TIMEOUT: return TierStatus::kTimeout;
    case KV_TIER_TOO_SMALL: return TierStatus::kCorrupt;
    default: return TierStatus::kFailed;
  }
}

// The tier is told to end a little earlier than the caller leaves, so that what it has by then is not lost.
int64_t limit_for_tier(std::chrono::milliseconds limit) {
  return std::max<int64_t>(1, limit.count() - std::min<int64_t>(limit.count() / 8, 20));
}

}  // namespace

MissReason reason_of(TierStatus status) {
  switch (status) {
    case TierStatus::kOk: return MissReason::kNone;
    case TierStatus::kAbsent: return MissReason::kAbsent;
    case TierStatus::kCorrupt: return MissReason::kCorrupt;
    case TierStatus::kTimeout: return MissReason::kDeadline;
    case TierStatus::kFailed: return MissReason::kIo;
    case TierStatus::kDown: return MissReason::kDriveDown;
  }
  return MissReason::kIo;
}

// What one call of the tier reads and writes. The thread that runs it and the caller hold it together, because either may
// outlive the other.
struct GuardedTier::Call {
  explicit Call(std::span<const Digest> digests)
      // KV_TIER_FAILED for what a tier forgets to answer, so that a key is never taken for another's answer.
      : keys(raw_keys(digests)), status(digests.size(), KV_TIER_FAILED) {}

  std::vector<std::byte>& add_value(size_t bytes) {
    std::vector<std::byte>& value = values.emplace_back(bytes);
    buffers.push_back({reinterpret_cast<unsigned char*>(value.data()), value.size()});
    return value;
  }

  const std::vector<kv_tier_key> keys;
  std::deque<std::vector<std::byte>> values;
  std::vector<kv_tier_buffer> buffers;
  std::vector<kv_tier_status> status;
  std::function<void(const kv_tier&, Call&)> work;
  std::atomic<bool> abandoned{false};
  bool done = false;  // guarded by Lane's mutex
};

// A few threads that run calls of the tier. They share the tier, which is closed when the last of them has let go.
class GuardedTier::Lane {
 public:
  Lane(std::shared_ptr<const kv_tier> tier, size_t num_threads) : state_(std::make_shared<State>()) {
    state_->tier = std::move(tier);
    state_->exited.resize(num_threads);
    for (size_t i = 0; i < num_threads; ++i) threads_.emplace_back(serve, state_, i);
  }
  // Threads that a tier keeps for more than a second are left behind.
  ~Lane() {
    std::unique_lock lock(state_->mu);
    state_->stopping = true;
    state_->calls.clear();
    state_->wake.notify_all();
    const auto all_exited = [&] { return std::ranges::all_of(state_->exited, [](bool one) { return one; }); };
    state_->finished.wait_for(lock, std::chrono::seconds(1), all_exited);
    const std::vector<bool> exited = state_->exited;
    lock.unlock();
    for (size_t i = 0; i < threads_.size(); ++i) exited[i] ? threads_[i].join() : threads_[i].detach();
  }

  // False when the call was not done by then; it must not be looked at any more.
  bool run(const std::shared_ptr<Call>& call, std::chrono::milliseconds limit) {
    std::unique_lock lock(state_->mu);
    state_->calls.push_back(call);
    state_->wake.notify_one();
    if (state_->finished.wait_for(lock, limit, [&] { return call->done; })) return true;
    call->abandoned = true;
    return false;
  }

 private:
  struct State {
    std::shared_ptr<const kv_tier> tier;
    std::mutex mu;
    std::condition_variable wake, finished;
    std::deque<std::shared_ptr<Call>> calls;  // guarded by mu
    bool stopping = false;                    // guarded by mu
    std::vector<bool> exited;                 // guarded by mu
  };

  static void serve(const std::shared_ptr<State>& state, size_t number) {
    std::unique_lock lock(state->mu);
    while (true) {
      state->wake.wait(lock, [&] { return state->stopping || !state->calls.empty(); });
      if (state->stopping) break;
      const std::shared_ptr<Call> call = std::move(state->calls.front());
      state->calls.pop_front();
      if (call->abandoned) continue;
      lock.unlock();
      call->work(*state->tier, *call);
      lock.lock();
      call->done = true;
      state->finished.notify_all();
    }
    state->exited[number] = true;
    state->finished.notify_all();
  }

  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

GuardedTier::GuardedTier(kv_tier raw, const Digest& fingerprint, const Clock& clock, Options options)
    : name_(raw.name),
      exists_(raw.exists),
      remove_(raw.remove),
      fingerprint_(half(fingerprint)),
      clock_(clock),
      options_(options),
      cool_down_(options.first_cool_down) {
  const std::shared_ptr<const kv_tier> tier(new kv_tier(raw), [](const kv_tier* one) {
    one->close(one->self);
    delete one;
  });
  reads_ = std::make_unique<Lane>(tier, options.read_threads);
  writes_ = std::make_unique<Lane>(tier, options.write_threads);
}

GuardedTier::~GuardedTier() = default;

bool GuardedTier::is_down() const {
  const std::lock_guard lock(mu_);
  return clock_.now() < down_until_;
}

std::vector<TierStatus> GuardedTier::run(Lane& lane, const std::shared_ptr<Call>& call,
                                         std::chrono::milliseconds limit) {
  if (!lane.run(call, limit)) return std::vector<TierStatus>(call->keys.size(), TierStatus::kTimeout);
  std::vector<TierStatus> statuses;
  for (const kv_tier_status status : call->status) statuses.push_back(to_status(status));
  return statuses;
}

// The breaker counts calls, not keys: one that failed anywhere is a failure. Only a get or put that went well says that
// the tier is well: one may know its names and yet not give its values.
void GuardedTier::count(std::span<const TierStatus> statuses, bool moved_values) {
  const std::lock_guard lock(mu_);
  bool bad = false;
  for (const TierStatus status : statuses) {
    stats_.failed += status == TierStatus::kFailed ? 1 : 0;
    stats_.timeouts += status == TierStatus::kTimeout ? 1 : 0;
    stats_.corrupt += status == TierStatus::kCorrupt ? 1 : 0;
    bad |= status == TierStatus::kFailed || status == TierStatus::kTimeout;
  }
  if (!bad) {
    if (!moved_values) return;
    failures_ = 0;
    cool_down_ = options_.first_cool_down;
    return;
  }
  if (++failures_ < options_.failures_to_trip) return;
  failures_ = 0;
  ++stats_.trips;
  down_until_ = clock_.now() + cool_down_;
  cool_down_ = std::min(cool_down_ * 2, options_.longest_cool_down);
}

std::vector<TierStatus> GuardedTier::get(std::span<const Digest> keys,
                                         std::span<const std::span<std::byte>> payloads,
                                         std::chrono::milliseconds limit) {
  CHECK(keys.size() == payloads.size());
  std::vector<TierStatus> result(keys.size(), TierStatus::kDown);
  if (is_down()) {
    const std::lock_guard lock(mu_);
    stats_.skipped += keys.size();
    return result;
  }
  std::vector<size_t> asked;
  std::vector<Digest> asked_keys;
  const auto start = clock_.now();
  {
    const std::lock_guard lock(mu_);
    stats_.gets += keys.size();
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto it = absent_.find(text_of(keys[i]));
      if (it != absent_.end() && start < it->second) {
        ++stats_.negative_hits;
        result[i] = TierStatus::kAbsent;
        continue;
      }
      asked.push_back(i);
      asked_keys.push_back(keys[i]);
    }
  }
  if (asked.empty()) return result;
  const auto call = std::make_shared<Call>(asked_keys);
  for (const size_t i : asked) call->add_value(kTierHeaderBytes + payloads[i].size());
  call->work = [ms = limit_for_tier(limit)](const kv_tier& tier, Call& c) {
    tier.get(tier.self, c.keys.size(), c.keys.data(), c.buffers.data(), ms, c.status.data());
  };
  std::vector<TierStatus> statuses = run(*reads_, call, limit);
  for (size_t k = 0; k < asked.size(); ++k) {
    if (statuses[k] != TierStatus::kOk) continue;
    const std::span<const std::byte> value = call->values[k];
    const size_t i = asked[k];
    const bool right = call->buffers[k].size == value.size() && std::memcmp(value.data(), kMagic.data(), 4) == 0 &&
                       get_le<uint32_t>(value, 4) == crc32c(value.subspan(8)) &&
                       std::equal(keys[i].begin(), keys[i].end(), value.begin() + 8) &&
                       std::equal(fingerprint_.begin(), fingerprint_.end(), value.begin() + 40);
    if (!right)
      statuses[k] = TierStatus::kCorrupt;
    else
      std::copy(value.begin() + kTierHeaderBytes, value.end(), payloads[i].begin());
  }
  count(statuses, true);
  const std::lock_guard lock(mu_);
  const double ms = std::chrono::duration<double, std::milli>(clock_.now() - start).count();
  stats_.latency_ms = stats_.latency_ms == 0 ? ms : 0.9 * stats_.latency_ms + 0.1 * ms;
  for (size_t k = 0; k < asked.size(); ++k) {
    result[asked[k]] = statuses[k];
    stats_.hits += statuses[k] == TierStatus::kOk ? 1 : 0;
    if (statuses[k] != TierStatus::kAbsent) continue;
    if (absent_.size() >= options_.max_negative) absent_.clear();
    absent_[text_of(keys[asked[k]])] = start + options_.negative_for;
  }
  return result;
}

std::vector<TierStatus> GuardedTier::put(std::span<const Digest> keys,
                                         std::span<const std::span<const std::byte>> payloads,
                                         std::chrono::seconds ttl, std::chrono::milliseconds limit) {
  CHECK(keys.size() == payloads.size());
  if (is_down()) {
    count_dropped(keys.size());
    return std::vector<TierStatus>(keys.size(), TierStatus::kDown);
  }
  const auto call = std::make_shared<Call>(keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::span<std::byte> value = call->add_value(kTierHeaderBytes + payloads[i].size());
    put_le(value, 0, kMagic);
    put_le(value, 8, keys[i]);
    put_le(value, 40, fingerprint_);
    std::copy(payloads[i].begin(), payloads[i].end(), value.begin() + kTierHeaderBytes);
    put_le(value, 4, crc32c(std::span<const std::byte>(value).subspan(8)));
  }
  call->work = [ms = limit_for_tier(limit), ttl_s = static_cast<uint32_t>(ttl.count())](const kv_tier& tier, Call& c) {
    tier.put(tier.self, c.keys.size(), c.keys.data(), c.buffers.data(), ttl_s, ms, c.status.data());
  };
  const std::vector<TierStatus> statuses = run(*writes_, call, limit);
  count(statuses, true);
  const std::lock_guard lock(mu_);
  stats_.puts += keys.size();
  for (size_t i = 0; i < keys.size(); ++i)
    if (statuses[i] == TierStatus::kOk) absent_.erase(text_of(keys[i]));
  return statuses;
}

std::vector<TierStatus> GuardedTier::ask(decltype(kv_tier::exists) function, std::span<const Digest> keys,
                                         std::chrono::milliseconds limit) {
  if (is_down()) {
    const std::lock_guard lock(mu_);
    stats_.skipped += keys.size();
    return std::vector<TierStatus>(keys.size(), TierStatus::kDown);
  }
  const auto call = std::make_shared<Call>(keys);
  call->work = [function, ms = limit_for_tier(limit)](const kv_tier& tier, Call& c) {
    function(tier.self, c.keys.size(), c.keys.data(), ms, c.status.data());
  };
  const std::vector<TierStatus> statuses = run(*reads_, call, limit);
  count(statuses, false);
  return statuses;
}

std::vector<TierStatus> GuardedTier::exists(std::span<const Digest> keys, std::chrono::milliseconds limit) {
  return ask(exists_, keys, limit);
}

std::vector<TierStatus> GuardedTier::remove(std::span<const Digest> keys, std::chrono::milliseconds limit) {
  return ask(remove_, keys, limit);
}

void GuardedTier::count_dropped(size_t blocks) {
  const std::lock_guard lock(mu_);
  stats_.dropped += blocks;
}

TierStats GuardedTier::stats() const {
  const std::lock_guard lock(mu_);
  TierStats stats = stats_;
  stats.down = clock_.now() < down_until_;
  return stats;
}

Result<kv_tier> load_tier(const std::string& library, const std::string& options) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error(Code::kNotFound, "KV tier: {}", ::dlerror());
  using Open = kv_tier* (*)(const char*);
  const auto open = reinterpret_cast<Open>(::dlsym(handle, "deepinfer_kv_tier_open"));
  if (open == nullptr)
    return Error(Code::kInvalidArgument, "KV tier: {} has no deepinfer_kv_tier_open", library);
  const kv_tier* tier = open(options.c_str());
  if (tier == nullptr) return Error(Code::kUnavailable, "KV tier: {} did not open", library);
  if (tier->abi != DEEPINFER_KV_TIER_ABI)
    return Error(Code::kInvalidArgument, "KV tier: {} has ABI {}, expected {}", library, tier->abi,
                 DEEPINFER_KV_TIER_ABI);
  return *tier;
}

}  // namespace deepinfer::store
