// Tenant domains: their numbers, secrets, epochs, quotas and times to live. The gateway names them; the store
// never sees an account. Bytes on disk: docs/formats/kv-segment.md, `domains`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crypto/crypto.h"
#include "store/tenants/retention.h"

namespace deepinfer::store {

struct DomainInfo {
  uint32_t number = 0;
  bool live = true;
  Digest id{};                        // keyed digest of the name: the table tells nobody who the tenants are
  uint64_t epoch = 1;                 // raised at deletion
  Key secret{};                       // zero once deleted
  uint64_t quota_bytes = UINT64_MAX;  // of promised blocks
  RetentionClass retention = RetentionClass::kGuaranteed;  // what its blocks ask for
  uint32_t ttl_hours = 72;                                 // of promised blocks; 1 .. 480
  uint64_t created_ms = 0;
};

inline constexpr uint32_t kMaxTtlHours = 480;

// Thread-compatible.
class DomainTable {
 public:
  explicit DomainTable(const Key& master);
  ~DomainTable();
  DomainTable(DomainTable&&) = default;

  // kDataLoss: damaged, or sealed under another master key. An empty span is an empty table.
  Status load(std::span<const std::byte> bytes);
  std::vector<std::byte> serialize() const;
  // Of two copies of a table the one with the higher number is newer; raised by hand before it is written.
  uint64_t serial() const { return serial_; }
  void raise_serial() { ++serial_; }

  std::optional<uint32_t> find(std::string_view name) const;
  // A new secret is random, so that deleting it leaves nothing to find its blocks by. `shared`: it follows from the
  // master key, the name and how often the name was deleted here, so that tables under one master key agree.
  uint32_t create(std::string_view name, uint64_t now_ms, bool shared = false);
  // How many live ones other tables under this master key would not agree with.
  size_t num_private() const;
  // Null for unknown and deleted numbers.
  const DomainInfo* get(uint32_t number) const;
  DomainInfo* get(uint32_t number);
  // True when records of this number may be used.
  bool live(uint32_t number) const { return get(number) != nullptr; }
  // Overwrites the secret, raises the epoch; the number stays taken for ever. False when unknown.
  bool destroy(uint32_t number);

  // The two keys of a domain: for chain digests, and for record encryption.
  static Key chain_key(const DomainInfo& domain) {
    return derive_key(domain.secret, "kv chain", domain.epoch);
  }
  static Key record_key(const DomainInfo& domain) {
    return derive_key(domain.secret, "kv record", domain.epoch);
  }

  const std::vector<DomainInfo>& all() const { return domains_; }

 private:
  Digest id_of(std::string_view name) const;
  Key shared_secret(const Digest& id, size_t num_earlier) const;
  Key master_;
  std::vector<DomainInfo> domains_;  // number i at i - 1
  uint64_t serial_ = 0;
};

// What can be told of a table without its key: how many domains it has. kDataLoss.
Result<uint32_t> check_domain_table(std::span<const std::byte> bytes);

}  // namespace deepinfer::store
