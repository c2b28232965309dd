// Remote tiers as the engine uses them: a kv_tier behind a breaker, a negative cache and a check of every
// byte.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/keys.h"
#include "cache/miss_reason.h"
#include "store/tiers/kv_tier.h"

namespace deepinfer::store {

enum class TierStatus { kOk, kAbsent, kFailed, kTimeout, kCorrupt, kDown };
MissReason reason_of(TierStatus status);

struct TierStats {
  uint64_t gets = 0, hits = 0, puts = 0, failed = 0, timeouts = 0, corrupt = 0, negative_hits = 0, trips = 0;
  uint64_t dropped = 0;   // blocks that were not offered to it, because it was behind
  double latency_ms = 0;  // moving average of answered gets
  bool down = false;
};

// What a value looks like in a tier: 4 bytes `DIKT`, crc32c of the rest, key (32), fingerprint half (16),
// payload.
inline constexpr size_t kTierHeaderBytes = 56;

// Thread-safe. Owns the tier and closes it.
class GuardedTier {
 public:
  struct Options {
    int failures_to_trip = 3;
    std::chrono::seconds first_cool_down{5}, longest_cool_down{300};
    std::chrono::milliseconds negative_for{2000};
    size_t max_negative = 100'000;
  };
  GuardedTier(kv_tier tier, const Digest& fingerprint, const Clock& clock, Options options);
  GuardedTier(kv_tier tier, const Digest& fingerprint, const Clock& clock)
      : GuardedTier(tier, fingerprint, clock, Options()) {}
  ~GuardedTier();
  GuardedTier(const GuardedTier&) = delete;

  // One status per key; one attempt. Payloads of kOk keys are right.
  std::vector<TierStatus> get(std::span<const Digest> keys, std::span<const std::span<std::byte>> payloads,
                              std::chrono::milliseconds limit);
  std::vector<TierStatus> put(std::span<const Digest> keys,
                              std::span<const std::span<const std::byte>> payloads, std::chrono::seconds ttl,
                              std::chrono::milliseconds limit);
  std::vector<TierStatus> exists(std::span<const Digest> keys, std::chrono::milliseconds limit);
  std::vector<TierStatus> remove(std::span<const Digest> keys, std::chrono::milliseconds limit);
  void count_dropped(size_t blocks);
  TierStats stats() const;
  std::string_view name() const { return tier_.name; }

 private:
  bool is_down() const;
  void count(std::span<const TierStatus> statuses, bool moved_values);
  std::vector<TierStatus> finish(std::span<const kv_tier_status> raw);
  std::vector<TierStatus> ask(decltype(kv_tier::exists) function, std::span<const Digest> keys,
                              std::chrono::milliseconds limit);

  const kv_tier tier_;
  const std::array<std::byte, 16> fingerprint_;
  const Clock& clock_;  // Borrowed; outlives the tier.
  const Options options_;
  mutable std::mutex mu_;
  TierStats stats_;                                            // guarded by mu_
  int failures_ = 0;                                           // guarded by mu_
  std::chrono::seconds cool_down_;                             // guarded by mu_
  Clock::time_point down_until_{};                             // guarded by mu_
  std::unordered_map<std::string, Clock::time_point> absent_;  // guarded by mu_; key bytes, until when
};

// A directory that several machines share (NFS, CephFS, 3FS): one file a block, made beside and renamed. kIo
// when it cannot be made or written to. Its calls run on a thread of their own, so a mount that hangs costs a
// deadline.
Result<kv_tier> make_directory_tier(const std::string& directory);
// A Redis server; one value a block, PX as time to live. kUnavailable when it does not answer.
Result<kv_tier> make_redis_tier(const std::string& host, int port, const std::string& prefix);
struct S3Options {
  std::string endpoint;  // http://HOST[:PORT] or https://…; path-style addresses
  std::string region = "us-east-1";
  std::string bucket;
  std::string prefix;  // of object names, "kv/"
  std::string access_key, secret_key;
  size_t connections = 8;  // requests at a time
};
// An S3 bucket; one object a block. kInvalidArgument; kUnavailable when the host has no address. Whether the bucket
// answers shows at the first call.
Result<kv_tier> make_s3_tier(const S3Options& options);
// A tier by its address:
//   file:///DIRECTORY
//   redis://HOST[:PORT][/PREFIX]
//   s3://BUCKET[/PREFIX]       AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY of the
//   environment lib:LIBRARY[?OPTIONS]      a tier of your own (kv_tier.h)
// kInvalidArgument says what is wrong with the address; else as the makers below.
Result<kv_tier> open_tier(const std::string& address);
// From a shared library that exports `kv_tier* deepinfer_kv_tier_open(const char* options)`.
Result<kv_tier> load_tier(const std::string& library, const std::string& options);

}  // namespace deepinfer::store
