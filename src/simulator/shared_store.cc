#include "simulator/shared_store.h"

#include <cmath>

namespace deepinfer::simulator {
namespace {

constexpr uint32_t kDomain = 1;

uint64_t hour_of(double seconds) {
  return static_cast<uint64_t>(seconds / 3600);
}

}  // namespace

SharedStore::SharedStore(const Options& options)
    : options_(options),
      promises_(static_cast<uint64_t>(options.promised_share * static_cast<double>(options.num_blocks) *
                                      static_cast<double>(options.block_bytes))) {}

bool SharedStore::make_room(double now_s) {
  if (num_blocks() < options_.num_blocks) return true;
  std::deque<Entry>* from = !others_.empty() ? &others_ : nullptr;
  if (from == nullptr && !promised_.empty() &&
      hour_of(promised_.front().written_s + options_.retention_s) < hour_of(now_s))
    from = &promised_;
  if (from == nullptr) return false;
  written_.erase(from->front().key);
  from->pop_front();
  return true;
}

void SharedStore::put(const PrefixKey& key, double now_s) {
  if (!exists() || written_.contains(key)) return;
  promises_.advance(hour_of(now_s));
  if (!make_room(now_s)) {
    ++refused_;
    return;
  }
  const bool promised = options_.retention_s > 0 &&
                        promises_.reserve(kDomain, options_.block_bytes, hour_of(now_s + options_.retention_s));
  written_.emplace(key, now_s);
  (promised ? promised_ : others_).push_back({key, now_s});
}

std::optional<double> SharedStore::age(const PrefixKey& key, double now_s) const {
  const auto found = written_.find(key);
  if (found == written_.end()) return std::nullopt;
  return now_s - found->second;
}

}  // namespace deepinfer::simulator
