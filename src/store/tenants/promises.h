// What has been promised to whom until when: bytes per tenant domain and hour of expiry. Arithmetic only.
//
// A block of class guaranteed, agent or public is admitted only if its bytes fit both the quota of its domain
// and the share of the store that may be promised; until it expires its bytes stay set aside. So a promise
// can be kept whatever others write. Source: docs/spec/kv.md 2 and 5.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

namespace deepinfer::store {

inline constexpr uint64_t kNever = UINT64_MAX;  // hour of expiry of class public

// Thread-compatible.
class Promises {
 public:
  // At most `limit_bytes` promised at a time.
  explicit Promises(uint64_t limit_bytes = 0) : limit_(limit_bytes) {}
  void set_limit(uint64_t limit_bytes) { limit_ = limit_bytes; }

  void set_quota(uint32_t domain, uint64_t quota_bytes) { domains_[domain].quota = quota_bytes; }
  uint64_t quota(uint32_t domain) const;

  // Forgets what expired before `hour`.
  void advance(uint64_t hour);
  // False when quota or limit would be exceeded; nothing changes then.
  bool reserve(uint32_t domain, uint64_t bytes, uint64_t expiry_hour);
  // What recovery found was promised already: counted whatever the limits say.
  void restore(uint32_t domain, uint64_t bytes, uint64_t expiry_hour) { add(domain, bytes, expiry_hour); }
  void release(uint32_t domain, uint64_t bytes, uint64_t expiry_hour);
  void move(uint32_t domain, uint64_t bytes, uint64_t from_hour, uint64_t to_hour);
  void forget(uint32_t domain);

  uint64_t promised_bytes() const { return total_; }
  uint64_t promised_bytes(uint32_t domain) const;
  uint64_t limit_bytes() const { return limit_; }

 private:
  struct Domain {
    uint64_t quota = kNever;
    uint64_t bytes = 0;
    std::map<uint64_t, uint64_t> by_hour;
  };
  void add(uint32_t domain, uint64_t bytes, uint64_t expiry_hour);

  uint64_t limit_;
  uint64_t total_ = 0;
  uint64_t hour_ = 0;
  std::unordered_map<uint32_t, Domain> domains_;
};

}  // namespace deepinfer::store
