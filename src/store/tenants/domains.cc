#include "store/tenants/domains.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deepinfer::store {
namespace {

constexpr std::array<char, 8> kDomainsMagic = {'D', 'I', 'K', 'V', 'D', 'O', 'M', 2};
constexpr size_t kHead = 32, kEntry = 160;
constexpr size_t kHeadOfVersion1 = 16;
constexpr size_t kCoveredFrom = 16;  // what the crc covers begins there, in both versions

std::array<std::byte, 48> bound_fields(std::span<const std::byte> entry) {
  std::array<std::byte, 48> bytes;  // number, state, id, epoch: a secret cannot be moved to another domain
  std::memcpy(bytes.data(), entry.data(), bytes.size());
  return bytes;
}

}  // namespace

std::string_view class_name(RetentionClass retention) {
  switch (retention) {
    case RetentionClass::kGuaranteed:
      return "guaranteed";
    case RetentionClass::kAgent:
      return "agent";
    case RetentionClass::kPublic:
      return "public";
    case RetentionClass::kBestEffort:
      return "best_effort";
  }
  return "?";
}

DomainTable::DomainTable(const Key& master) : master_(master) {}

DomainTable::~DomainTable() {
  wipe(master_);
  for (DomainInfo& domain : domains_) wipe(domain.secret);
}

Digest DomainTable::id_of(std::string_view name) const {
  Mac mac(derive_key(master_, "kv domain id", 0));
  const std::span<const std::byte> part = as_bytes(name);
  return mac.digest(std::span(&part, 1));
}

Result<uint32_t> check_domain_table(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadOfVersion1 || std::memcmp(bytes.data(), kDomainsMagic.data(), kDomainsMagic.size() - 1) != 0)
    return Error(Code::kDataLoss, "domains: no table at byte 0");
  const auto version = static_cast<int>(bytes[7]);
  if (version != 1 && version != 2)
    return Error(Code::kDataLoss, "domains: version {} at byte 7, expected 1 or 2", version);
  const size_t head = version == 1 ? kHeadOfVersion1 : kHead;
  const auto count = get_le<uint32_t>(bytes, 8);
  const size_t size = head + count * kEntry;
  if (bytes.size() < size)
    return Error(Code::kDataLoss, "domains: {} entries at byte 8 need {} bytes, found {}", count, size, bytes.size());
  if (crc32c(bytes.subspan(kCoveredFrom, size - kCoveredFrom)) != get_le<uint32_t>(bytes, 12))
    return Error(Code::kDataLoss, "domains: the crc at byte 12 does not fit the entries");
  return count;
}

Status DomainTable::load(std::span<const std::byte> bytes) {
  domains_.clear();
  serial_ = 0;
  if (bytes.empty()) return {};
  ASSIGN_OR_RETURN(const uint32_t count, check_domain_table(bytes));
  const size_t head = bytes[7] == std::byte{1} ? kHeadOfVersion1 : kHead;
  if (head == kHead) serial_ = get_le<uint64_t>(bytes, 16);
  const Key sealing = derive_key(master_, "kv domain secrets", 0);
  for (uint32_t i = 0; i < count; ++i) {
    const auto entry = bytes.subspan(head + i * kEntry, kEntry);
    DomainInfo domain;
    domain.number = get_le<uint32_t>(entry, 0);
    domain.live = get_le<uint32_t>(entry, 4) == 1;
    domain.id = get_le<Digest>(entry, 8);
    domain.epoch = get_le<uint64_t>(entry, 40);
    domain.secret = get_le<Key>(entry, 48);
    domain.quota_bytes = get_le<uint64_t>(entry, 108);
    domain.retention = static_cast<RetentionClass>(get_le<uint32_t>(entry, 116) & 3);
    domain.ttl_hours = static_cast<uint32_t>(get_le<uint64_t>(entry, 120) / 3600);
    domain.created_ms = get_le<uint64_t>(entry, 128);
    if (domain.number != i + 1)
      return Error(Code::kDataLoss, "domains: entry {} has number {}, expected {}", i, domain.number, i + 1);
    if (domain.live) {
      const Status opened = gcm_decrypt(sealing, get_le<GcmNonce>(entry, 80), bound_fields(entry),
                                        domain.secret, get_le<GcmTag>(entry, 92));
      if (!opened.ok())
        return Error(Code::kDataLoss, "domains: the secret of domain {} does not open with this master key",
                     i + 1);
    }
    domains_.push_back(domain);
  }
  return {};
}

std::vector<std::byte> DomainTable::serialize() const {
  std::vector<std::byte> bytes(kHead + domains_.size() * kEntry);
  const Key sealing = derive_key(master_, "kv domain secrets", 0);
  for (size_t i = 0; i < domains_.size(); ++i) {
    const DomainInfo& domain = domains_[i];
    const auto entry = std::span(bytes).subspan(kHead + i * kEntry, kEntry);
    put_le(entry, 0, domain.number);
    put_le(entry, 4, domain.live ? 1u : 2u);
    put_le(entry, 8, domain.id);
    put_le(entry, 40, domain.epoch);
    if (domain.live) {
      GcmNonce nonce;
      random_bytes(nonce);
      Key secret = domain.secret;
      const GcmTag tag = gcm_encrypt(sealing, nonce, bound_fields(entry), secret);
      put_le(entry, 48, secret);
      put_le(entry, 80, nonce);
      put_le(entry, 92, tag);
    }
    put_le(entry, 108, domain.quota_bytes);
    put_le(entry, 116, static_cast<uint32_t>(domain.retention));
    put_le(entry, 120, uint64_t{domain.ttl_hours} * 3600);
    put_le(entry, 128, domain.created_ms);
  }
  put_le(std::span(bytes), 0, kDomainsMagic);
  put_le(std::span(bytes), 8, static_cast<uint32_t>(domains_.size()));
  put_le(std::span(bytes), 16, serial_);
  put_le(std::span(bytes), 12, crc32c(std::span(bytes).subspan(kCoveredFrom)));
  return bytes;
}

std::optional<uint32_t> DomainTable::find(std::string_view name) const {
  const Digest id = id_of(name);
  for (const DomainInfo& domain : domains_)
    if (domain.live && domain.id == id) return domain.number;
  return std::nullopt;
}

uint32_t DomainTable::create(std::string_view name, uint64_t now_ms, bool shared) {
  DomainInfo domain;
  domain.number = static_cast<uint32_t>(domains_.size() + 1);
  domain.id = id_of(name);
  domain.created_ms = now_ms;
  if (shared) {
    const auto num_earlier = std::ranges::count(domains_, domain.id, &DomainInfo::id);
    domain.secret = shared_secret(domain.id, static_cast<size_t>(num_earlier));
  } else {
    random_bytes(domain.secret);
  }
  domains_.push_back(domain);
  return domain.number;
}

Key DomainTable::shared_secret(const Digest& id, size_t num_earlier) const {
  return derive_key(derive_key(master_, "kv shared domain", num_earlier),
                    {reinterpret_cast<const char*>(id.data()), id.size()}, 0);
}

size_t DomainTable::num_private() const {
  size_t count = 0;
  for (auto domain = domains_.begin(); domain != domains_.end(); ++domain) {
    const auto num_earlier =
        std::count_if(domains_.begin(), domain, [&](const DomainInfo& one) { return one.id == domain->id; });
    count += domain->live && domain->secret != shared_secret(domain->id, static_cast<size_t>(num_earlier)) ? 1 : 0;
  }
  return count;
}

const DomainInfo* DomainTable::get(uint32_t number) const {
  if (number == 0 || number > domains_.size() || !domains_[number - 1].live) return nullptr;
  return &domains_[number - 1];
}

DomainInfo* DomainTable::get(uint32_t number) {
  return const_cast<DomainInfo*>(static_cast<const DomainTable*>(this)->get(number));
}

bool DomainTable::destroy(uint32_t number) {
  DomainInfo* domain = get(number);
  if (domain == nullptr) return false;
  wipe(domain->secret);
  domain->live = false;
  ++domain->epoch;
  return true;
}

}  // namespace deepinfer::store
