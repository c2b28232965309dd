// Remote tiers as the engine uses them: a kv_tier on threads of its own, behind deadlines, a breaker, a negative cache and a
// check of every byte.
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
#include "net/endpoint.h"
#include "store/tiers/kv_tier.h"

namespace deepinfer::store {

enum class TierStatus { kOk, kAbsent, kFailed, kTimeout, kCorrupt, kDown };
MissReason reason_of(TierStatus status);

struct TierStats {
  uint64_t gets = 0, hits = 0, puts = 0, failed = 0, timeouts = 0, corrupt = 0, negative_hits = 0, trips = 0;
  uint64_t dropped = 0;   // blocks that were not written to it, because it was behind or left alone
  uint64_t skipped = 0;   // keys that it was not asked for, because it was left alone
  double latency_ms = 0;  // moving average of answered gets
  bool down = false;
};

// What a value looks like in a tier: 4 bytes `DIKT`, crc32c of the rest, key (32), fingerprint half (16),
// payload.
inline constexpr size_t kTierHeaderBytes = 56;

// Thread-safe. Owns the tier and closes it. A call ends at its limit whatever the tier does: one that hangs keeps a thread of
// ours, not the caller; when all of them hang, calls still end at their limits, and the breaker spares those that follow.
class GuardedTier {
 public:
  struct Options {
    int failures_to_trip = 3;
    std::chrono::seconds first_cool_down{5}, longest_cool_down{300};
    std::chrono::milliseconds negative_for{2000};
    size_t max_negative = 100'000;
    size_t read_threads = 2, write_threads = 1;  // a slow write holds up no read
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
  std::string_view name() const { return name_; }

 private:
  struct Call;
  class Lane;
  bool is_down() const;
  void count(std::span<const TierStatus> statuses, bool moved_values);
  // `keys` and values of the call, on a thread of the lane. The statuses; kTimeout for all when it did not end in time.
  std::vector<TierStatus> run(Lane& lane, const std::shared_ptr<Call>& call, std::chrono::milliseconds limit);
  std::vector<TierStatus> ask(decltype(kv_tier::exists) function, std::span<const Digest> keys,
                              std::chrono::milliseconds limit);

  const std::string name_;
  decltype(kv_tier::exists) const exists_;
  decltype(kv_tier::remove) const remove_;
  const std::array<std::byte, 16> fingerprint_;
  const Clock& clock_;  // Borrowed; outlives the tier.
  const Options options_;
  mutable std::mutex mu_;
  TierStats stats_;                                            // guarded by mu_
  int failures_ = 0;                                           // guarded by mu_
  std::chrono::seconds cool_down_;                             // guarded by mu_
  Clock::time_point down_until_{};                             // guarded by mu_
  std::unordered_map<std::string, Clock::time_point> absent_;  // guarded by mu_; key bytes, until when
  std::unique_ptr<Lane> reads_, writes_;
};

// Tiers are made without asking whether anybody answers: that shows at the first call, and one that comes later is used then.

// A directory that several machines share (NFS, CephFS, 3FS): one file a block, made beside and renamed.
kv_tier make_directory_tier(const std::string& directory);
struct RedisOptions {
  Endpoint server;
  std::string user, password;  // empty: none is asked for
  std::string prefix;          // of names
};
// A Redis server; one value a block, PX as time to live.
kv_tier make_redis_tier(const RedisOptions& options);
struct S3Options {
  std::string endpoint;  // http://HOST[:PORT] or https://…; path-style addresses
  std::string region = "us-east-1";
  std::string bucket;
  std::string prefix;  // of object names, "kv/"
  std::string access_key, secret_key;
  size_t connections = 8;  // requests at a time
};
// An S3 bucket; one object a block. kInvalidArgument.
Result<kv_tier> make_s3_tier(const S3Options& options);
// A tier by its address:
//   file:///DIRECTORY
//   redis://[USER@]HOST[:PORT][/PREFIX]   rediss:// with TLS; the password is in REDIS_PASSWORD, or in the file that
//                                         REDIS_PASSWORD_FILE names
//   s3://BUCKET[/PREFIX]                  AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
//   lib:LIBRARY[?OPTIONS]                 a tier of your own (kv_tier.h)
// kInvalidArgument says what is wrong with the address, without what stands before an '@'; a secret there is refused.
Result<kv_tier> open_tier(const std::string& address);
// The address without user and password, for logs.
std::string without_secrets(const std::string& address);
// From a shared library that exports `kv_tier* deepinfer_kv_tier_open(const char* options)`.
Result<kv_tier> load_tier(const std::string& library, const std::string& options);

}  // namespace deepinfer::store
