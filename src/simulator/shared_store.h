// The store behind the workers' caches, without bytes: which blocks it holds, for how long they are promised (the
// store's own promises.h), who is dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "cache/keys.h"
#include "store/tenants/promises.h"

namespace deepinfer::simulator {

class SharedStore {
 public:
  struct Options {
    int64_t num_blocks = 0;  // 0: there is none
    double retention_s = 0;  // promised from the write on; 0: best effort, first in, first out
    uint64_t block_bytes = 112 << 10;
    double promised_share = 0.9;  // of the store, at most
  };
  explicit SharedStore(const Options& options);

  bool exists() const { return options_.num_blocks > 0; }
  // A block is refused while only promised ones are left.
  void put(const PrefixKey& key, double now_s);
  // Seconds since it was written; nullopt when it is not here.
  std::optional<double> age(const PrefixKey& key, double now_s) const;
  int64_t num_blocks() const { return std::ssize(written_); }
  int64_t refused() const { return refused_; }

 private:
  struct Entry {
    PrefixKey key;
    double written_s;
  };
  bool make_room(double now_s);

  const Options options_;
  store::Promises promises_;
  std::unordered_map<PrefixKey, double, PrefixKeyHash> written_;
  std::deque<Entry> promised_, others_;  // in order of their writes
  int64_t refused_ = 0;
};

}  // namespace deepinfer::simulator
