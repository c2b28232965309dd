// Objects (pieces.h) in a remote tier: there they lie piece by piece, as they do on a drive.
#pragma once

#include "store/store.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {

// Of one object in a tier of stores whose payloads have `payload_bytes`.
struct TierObject {
  RecordKind kind = RecordKind::kWindowState;
  Digest key{};
  uint32_t payload_bytes = 0;
};

// The worst status of a piece; kOk: the whole object is there. Exact objects alone: a tier is not told the lineage.
TierStatus put_object(GuardedTier& tier, const TierObject& object, std::span<const std::byte> bytes,
                      std::chrono::seconds ttl, std::chrono::milliseconds limit);
// The last of `keys` whose object the tier seems to have; at most `keys.size()` names are asked for in one call.
std::optional<size_t> find_newest_object(GuardedTier& tier, RecordKind kind, std::span<const Digest> keys,
                                         std::chrono::milliseconds limit);
// No bytes without a reason. `limit` bounds both calls of the tier together.
LoadedObject get_object(GuardedTier& tier, const TierObject& object, std::chrono::milliseconds limit);

}  // namespace deepinfer::store
