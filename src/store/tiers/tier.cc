#include "store/tiers/tier.h"

#include <dlfcn.h>

#include <algorithm>

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

// KV_TIER_FAILED for what a tier forgot to answer, so that a key is never taken for another's answer.
std::vector<kv_tier_status> unanswered(size_t count) {
  return std::vector<kv_tier_status>(count, KV_TIER_FAILED);
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

GuardedTier::GuardedTier(kv_tier tier, const Digest& fingerprint, const Clock& clock, Options options)
    : tier_(tier),
      fingerprint_(half(fingerprint)),
      clock_(clock),
      options_(options),
      cool_down_(options.first_cool_down) {}

GuardedTier::~GuardedTier() {
  tier_.close(tier_.self);
}

bool GuardedTier::is_down() const {
  const std::lock_guard lock(mu_);
  return clock_.now() < down_until_;
}

std::vector<TierStatus> GuardedTier::finish(std::span<const kv_tier_status> raw) {
  std::vector<TierStatus> statuses;
  for (const kv_tier_status status : raw) {
    switch (status) {
      case KV_TIER_OK:
        statuses.push_back(TierStatus::kOk);
        break;
      case KV_TIER_ABSENT:
        statuses.push_back(TierStatus::kAbsent);
        break;
      case KV_TIER_TIMEOUT:
        statuses.push_back(TierStatus::kTimeout);
        break;
      case KV_TIER_TOO_SMALL:
        statuses.push_back(TierStatus::kCorrupt);
        break;
      default:
        statuses.push_back(TierStatus::kFailed);
        break;
    }
  }
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
  if (is_down()) return result;
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
  std::vector<std::vector<std::byte>> values;
  std::vector<kv_tier_buffer> buffers;
  for (const size_t i : asked) {
    values.emplace_back(kTierHeaderBytes + payloads[i].size());
    buffers.push_back({reinterpret_cast<unsigned char*>(values.back().data()), values.back().size()});
  }
  auto raw = unanswered(asked.size());
  const auto names = raw_keys(asked_keys);
  tier_.get(tier_.self, names.size(), names.data(), buffers.data(), limit.count(), raw.data());
  std::vector<TierStatus> statuses = finish(raw);
  for (size_t k = 0; k < asked.size(); ++k) {
    if (statuses[k] != TierStatus::kOk) continue;
    const std::span<const std::byte> value = values[k];
    const size_t i = asked[k];
    const bool right = buffers[k].size == value.size() && std::memcmp(value.data(), kMagic.data(), 4) == 0 &&
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
  if (is_down()) return std::vector<TierStatus>(keys.size(), TierStatus::kDown);
  std::vector<std::vector<std::byte>> values;
  std::vector<kv_tier_buffer> buffers;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::vector<std::byte>& value = values.emplace_back(kTierHeaderBytes + payloads[i].size());
    put_le(value, 0, kMagic);
    put_le(value, 8, keys[i]);
    put_le(value, 40, fingerprint_);
    std::copy(payloads[i].begin(), payloads[i].end(), value.begin() + kTierHeaderBytes);
    put_le(value, 4, crc32c(std::span<const std::byte>(value).subspan(8)));
    buffers.push_back({reinterpret_cast<unsigned char*>(value.data()), value.size()});
  }
  auto raw = unanswered(keys.size());
  const auto names = raw_keys(keys);
  tier_.put(tier_.self, names.size(), names.data(), buffers.data(), static_cast<uint32_t>(ttl.count()),
            limit.count(), raw.data());
  const std::vector<TierStatus> statuses = finish(raw);
  count(statuses, true);
  const std::lock_guard lock(mu_);
  stats_.puts += keys.size();
  for (size_t i = 0; i < keys.size(); ++i)
    if (statuses[i] == TierStatus::kOk) absent_.erase(text_of(keys[i]));
  return statuses;
}

std::vector<TierStatus> GuardedTier::ask(decltype(kv_tier::exists) function, std::span<const Digest> keys,
                                         std::chrono::milliseconds limit) {
  if (is_down()) return std::vector<TierStatus>(keys.size(), TierStatus::kDown);
  auto raw = unanswered(keys.size());
  const auto names = raw_keys(keys);
  function(tier_.self, names.size(), names.data(), limit.count(), raw.data());
  const std::vector<TierStatus> statuses = finish(raw);
  count(statuses, false);
  return statuses;
}

std::vector<TierStatus> GuardedTier::exists(std::span<const Digest> keys, std::chrono::milliseconds limit) {
  return ask(tier_.exists, keys, limit);
}

std::vector<TierStatus> GuardedTier::remove(std::span<const Digest> keys, std::chrono::milliseconds limit) {
  return ask(tier_.remove, keys, limit);
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
