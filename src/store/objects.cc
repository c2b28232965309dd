#include "store/objects.h"

#include <algorithm>

#include "store/pieces.h"

namespace deepinfer::store {

TierStatus put_object(GuardedTier& tier, const TierObject& object, std::span<const std::byte> bytes,
                      std::chrono::seconds ttl, std::chrono::milliseconds limit) {
  const uint32_t count = num_pieces(bytes.size(), object.payload_bytes);
  CHECK(count > 0 && bytes.size() <= kMaxObjectBytes);
  const PieceHead head = head_of(bytes);
  std::vector<Digest> keys;
  std::vector<std::vector<std::byte>> payloads(count, std::vector<std::byte>(object.payload_bytes));
  std::vector<std::span<const std::byte>> spans;
  for (uint32_t k = 0; k < count; ++k) {  // the first piece last
    const uint32_t number = count - 1 - k;
    keys.push_back(piece_key(object.kind, object.key, number));
    write_piece(payloads[k], head, number, bytes);
    spans.emplace_back(payloads[k]);
  }
  for (const TierStatus status : tier.put(keys, spans, ttl, limit))
    if (status != TierStatus::kOk) return status;
  return TierStatus::kOk;
}

std::optional<size_t> find_newest_object(GuardedTier& tier, RecordKind kind, std::span<const Digest> keys,
                                         std::chrono::milliseconds limit) {
  std::vector<Digest> names;
  for (const Digest& key : keys) names.push_back(piece_key(kind, key, 0));
  const auto statuses = tier.exists(names, limit);
  const auto last = std::find(statuses.rbegin(), statuses.rend(), TierStatus::kOk);
  if (last == statuses.rend()) return std::nullopt;
  return static_cast<size_t>(statuses.rend() - last) - 1;
}

LoadedObject get_object(GuardedTier& tier, const TierObject& object, std::chrono::milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::vector<std::byte>> payloads(1, std::vector<std::byte>(object.payload_bytes));
  std::vector<Digest> keys = {piece_key(object.kind, object.key, 0)};
  const auto get = [&](std::chrono::milliseconds left) {
    const std::vector<std::span<std::byte>> spans(payloads.begin(), payloads.end());
    for (const TierStatus status : tier.get(keys, spans, left))
      if (status != TierStatus::kOk) return reason_of(status);
    return MissReason::kNone;
  };
  if (const MissReason reason = get(limit); reason != MissReason::kNone) return {{}, reason};
  auto built = ObjectBuilder::begin(payloads[0]);
  if (!built.ok()) return {{}, MissReason::kCorrupt};
  keys.clear();
  for (uint32_t number = 1; number < built->num_pieces(); ++number)
    keys.push_back(piece_key(object.kind, object.key, number));
  payloads.assign(keys.size(), std::vector<std::byte>(object.payload_bytes));
  const auto left = limit - std::chrono::duration_cast<std::chrono::milliseconds>(
                                std::chrono::steady_clock::now() - begin);
  if (!keys.empty()) {
    if (left.count() <= 0) return {{}, MissReason::kDeadline};
    if (const MissReason reason = get(left); reason != MissReason::kNone) return {{}, reason};
  }
  for (uint32_t number = 1; number < built->num_pieces(); ++number)
    if (!built->add(number, payloads[number - 1])) return {{}, MissReason::kCorrupt};
  auto bytes = std::move(*built).finish();
  if (!bytes.ok()) return {{}, MissReason::kCorrupt};
  return {std::move(*bytes), MissReason::kNone};
}

}  // namespace deepinfer::store
