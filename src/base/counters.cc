#include "base/counters.h"

namespace deepinfer {

Counter& Counters::get(std::string_view name) {
  const std::lock_guard lock(mu_);
  for (Entry& entry : entries_) {
    if (entry.name == name) return entry.counter;
  }
  Entry& entry = entries_.emplace_back();
  entry.name = name;
  return entry.counter;
}

std::vector<Counters::Reading> Counters::read_all() const {
  const std::lock_guard lock(mu_);
  std::vector<Reading> readings;
  readings.reserve(entries_.size());
  for (const Entry& entry : entries_) readings.push_back({entry.name, entry.counter.value()});
  return readings;
}

}  // namespace deepinfer
