#include "store/tenants/promises.h"

#include <algorithm>

namespace deepinfer::store {

uint64_t Promises::quota(uint32_t domain) const {
  const auto it = domains_.find(domain);
  return it == domains_.end() ? kNever : it->second.quota;
}

uint64_t Promises::promised_bytes(uint32_t domain) const {
  const auto it = domains_.find(domain);
  return it == domains_.end() ? 0 : it->second.bytes;
}

void Promises::advance(uint64_t hour) {
  if (hour <= hour_) return;
  hour_ = hour;
  for (auto& [number, domain] : domains_) {
    while (!domain.by_hour.empty() && domain.by_hour.begin()->first < hour) {
      domain.bytes -= domain.by_hour.begin()->second;
      total_ -= domain.by_hour.begin()->second;
      domain.by_hour.erase(domain.by_hour.begin());
    }
  }
}

bool Promises::reserve(uint32_t number, uint64_t bytes, uint64_t expiry_hour) {
  const Domain& domain = domains_[number];
  if (domain.bytes + bytes > domain.quota || total_ + bytes > limit_) return false;
  add(number, bytes, expiry_hour);
  return true;
}

void Promises::add(uint32_t number, uint64_t bytes, uint64_t expiry_hour) {
  if (expiry_hour < hour_) return;
  Domain& domain = domains_[number];
  domain.bytes += bytes;
  domain.by_hour[expiry_hour] += bytes;
  total_ += bytes;
}

void Promises::release(uint32_t number, uint64_t bytes, uint64_t expiry_hour) {
  const auto it = domains_.find(number);
  if (it == domains_.end()) return;
  const auto hour = it->second.by_hour.find(expiry_hour);
  if (hour == it->second.by_hour.end()) return;  // expired meanwhile
  const uint64_t amount = std::min(bytes, hour->second);
  hour->second -= amount;
  it->second.bytes -= amount;
  total_ -= amount;
  if (hour->second == 0) it->second.by_hour.erase(hour);
}

void Promises::move(uint32_t domain, uint64_t bytes, uint64_t from_hour, uint64_t to_hour) {
  if (from_hour == to_hour) return;
  release(domain, bytes, from_hour);
  add(domain, bytes, to_hour);
}

void Promises::forget(uint32_t number) {
  const auto it = domains_.find(number);
  if (it == domains_.end()) return;
  total_ -= it->second.bytes;
  domains_.erase(it);
}

}  // namespace deepinfer::store
