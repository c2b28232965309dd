// Objects: things of several records that are found and loaded as one (store/pieces.h).
#include <algorithm>

#include "base/log.h"
#include "store/log/store_impl.h"
#include "store/pieces.h"

namespace deepinfer::store {

PutResult StoreImpl::put_object(const ObjectInfo& object, std::span<const std::byte> bytes) {
  const uint32_t count = num_pieces(bytes.size(), geometry_.payload_bytes);
  if (options_.mode == StoreMode::kReadOnly || count == 0 || bytes.size() > kMaxObjectBytes ||
      object.kind == RecordKind::kBlock)
    return PutResult::kRefused;
  const PieceHead head = head_of(bytes);
  BlockInfo piece{.domain = object.domain,
                  .key = piece_key(object.kind, object.key, 0),
                  .parent = object.key,
                  .block_index = 0,
                  .lineage = object.lineage,
                  .retention = RetentionClass::kBestEffort};
  const Digest first_key = piece.key;
  Drive* drive = nullptr;
  {
    const std::lock_guard lock(mu_);
    if (!domains_.live(object.domain)) return PutResult::kRefused;
    if (is_present(piece)) return PutResult::kPresent;
    drive = choose_drive(object.key);
    if (drive == nullptr || drive->ring.size() < count) return PutResult::kRefused;
    if (drive->ring.size() - drive->ring_count < count) {
      ++stats_.dropped_full;
      return PutResult::kFull;
    }
  }
  for (uint32_t number = count; number-- > 0;) {  // the first piece last: where it is found, the others are
    piece.key = number == 0 ? first_key : piece_key(object.kind, object.key, number);
    piece.parent = number == 0 ? object.key : first_key;
    piece.block_index = number;
    StagedSlot slot;
    {
      const std::lock_guard lock(mu_);
      const PutResult staged = stage(object.kind, piece, drive, slot);
      if (staged != PutResult::kQueued) return staged;
    }
    write_piece(slot.payload, head, number, bytes);
    make_ready(slot);
  }
  const std::lock_guard lock(mu_);
  ++stats_.objects_put;
  for (const Digest& key : object.replaces) {
    if (index_.find(piece_key(object.kind, key, 0))) ++stats_.objects_replaced;
    forget_object(object.kind, key);
  }
  return PutResult::kQueued;
}

// Its records stay where they are until their segment is given back. Called with mu_ held.
void StoreImpl::forget_object(RecordKind kind, const Digest& key) {
  for (uint32_t number = 0;; ++number) {
    const Digest piece = piece_key(kind, key, number);
    const auto entry = index_.find(piece);
    if (!entry) return;
    forget(segments_[entry->at.segment], piece, entry->at);
  }
}

std::optional<ObjectHit> StoreImpl::find_newest(RecordKind kind, uint32_t domain, std::span<const Digest> keys,
                                                Lineage accept) {
  for (size_t i = keys.size(); i-- > 0;) {
    const Digest first = piece_key(kind, keys[i], 0);
    const std::lock_guard lock(mu_);
    Hit hit = pin(kind, domain, std::span(&first, 1), accept, 0);
    if (hit.num_blocks() == 0) {
      if (hit.reason() == MissReason::kDomainGone) return std::nullopt;
      continue;
    }
    ++stats_.objects_found;
    const Lineage lineage = hit.lineage(0);
    return ObjectHit{i, lineage, kind, domain, keys[i], std::move(hit)};
  }
  return std::nullopt;
}

LoadedObject StoreImpl::load_object(const ObjectHit& found, Clock::time_point deadline) {
  std::optional<ObjectBuilder> object;
  Status failure;
  const auto begin = [&](size_t, std::span<const std::byte> payload) {
    auto begun = ObjectBuilder::begin(payload);
    if (begun.ok()) object = std::move(*begun);
    if (!begun.ok()) failure = begun.error();
  };
  LoadResult result = read(found.first, 0, deadline, begin);
  if (result.reason != MissReason::kNone) return {{}, result.reason};
  std::vector<Digest> keys;
  for (uint32_t number = 1; object && number < object->num_pieces(); ++number)
    keys.push_back(piece_key(found.kind, found.key, number));
  Hit rest;
  {
    const std::lock_guard lock(mu_);
    rest = pin(found.kind, found.domain, keys, Lineage::kDerived, 1);
  }
  const MissReason gone = rest.reason();
  if (gone == MissReason::kDriveDown || gone == MissReason::kDomainGone) return {{}, gone};
  bool mixed = false;  // with pieces of another writing of this key
  if (object && rest.num_blocks() == keys.size() && !keys.empty()) {
    result = read(rest, 0, deadline, [&](size_t i, std::span<const std::byte> payload) {
      mixed |= !object->add(static_cast<uint32_t>(i) + 1, payload);
    });
    if (result.reason != MissReason::kNone) return {{}, result.reason};
  }
  if (object && rest.num_blocks() == keys.size() && !mixed) {
    auto bytes = std::move(*object).finish();
    if (bytes.ok()) {
      const std::lock_guard lock(mu_);
      ++stats_.objects_loaded;
      return {std::move(*bytes), MissReason::kNone};
    }
    failure = bytes.error();
  }
  if (!failure.ok()) log::warn("kv store: {}", failure.error().message());
  const std::lock_guard lock(mu_);
  forget_object(found.kind, found.key);  // it can never be whole again
  return {{}, failure.ok() ? MissReason::kAbsent : MissReason::kCorrupt};
}

}  // namespace deepinfer::store
