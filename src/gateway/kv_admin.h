// Looking after the KV store: its endpoints on a port of their own, and its part of /metrics and /status. Source:
// docs/spec/kv.md 10.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "gateway/token_source.h"
#include "net/http_server.h"
#include "store/store.h"
#include "store/tiers/tier.h"

namespace deepinfer {

// Is there a store?
std::string kv_up_metric_text(bool up);
// What Prometheus reads of the store, and of the tier behind it (null: none).
std::string kv_metrics_text(const store::StoreStats& stats, const store::GuardedTier* tier);
// For people.
std::string kv_status_text(const store::StoreStats& stats, const store::GuardedTier* tier);

// Serves
//   GET    /kv/stats                     everything that is counted, drives included
//   GET    /kv/domains                   numbers, quotas, classes and times to live; no names
//   PUT    /kv/quota/{domain}            {"bytes": n, "class": "guaranteed", "ttl_hours": n}
//   DELETE /kv/domain/{domain}           its blocks are found no more, its secret is gone
//   POST   /kv/pin                       {"domain": d, "keys": [hex...], "ttl_s": n}: not reclaimed meanwhile
//   POST   /kv/prefetch                  {"tenant": name, "prompt_ids": [...]}: loaded and computed, one token drawn
//   POST   /kv/verify?records=n          reads and checks the next n records
// where {domain} is a number, or the name of a tenant. On the loopback address only; requests that a page of another
// origin sends are refused. Thread-safe.
class KvAdmin {
 public:
  // Everything is borrowed and outlives it; the tier may be null. kIo: the port can't be bound.
  static Result<std::unique_ptr<KvAdmin>> start(uint16_t port, store::Store& store, store::GuardedTier* tier,
                                                TokenSource& tokens, const Clock& clock);
  virtual ~KvAdmin() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace deepinfer
