// How an object of any size lies in records of one size: it is cut into pieces, each under a key of its own. Pure functions.
//
// A piece says of which object it is, so that pieces of two writings of one key are never taken for one object, and the
// whole is compared with its digest. The first piece is written last: where it is found, the others were persisted before.
// Bytes: docs/formats/kv-segment.md, "Objects".
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "store/log/format.h"

namespace deepinfer::store {

inline constexpr size_t kPieceHeadBytes = 32;

struct PieceHead {
  std::array<std::byte, 16> digest{};  // first half of the SHA-256 of the object
  uint64_t object_bytes = 0;
  bool operator==(const PieceHead&) const = default;
};

Digest piece_key(RecordKind kind, const Digest& object_key, uint32_t number);
// 0 for an object that is empty, or for payloads with no room behind a head.
uint32_t num_pieces(uint64_t object_bytes, uint32_t payload_bytes);

PieceHead head_of(std::span<const std::byte> object);
// Fills `payload` with piece `number`, zeros behind it.
void write_piece(std::span<std::byte> payload, const PieceHead& head, uint32_t number,
                 std::span<const std::byte> object);
PieceHead read_piece_head(std::span<const std::byte> payload);

// Puts an object together again from pieces in any order. Thread-compatible.
class ObjectBuilder {
 public:
  // From the first piece; `object_bytes` of an absurd head is refused. kDataLoss.
  static Result<ObjectBuilder> begin(std::span<const std::byte> first_payload);
  uint32_t num_pieces() const { return num_pieces_; }
  // False when the piece is of another writing.
  bool add(uint32_t number, std::span<const std::byte> payload);
  // The object; kDataLoss when it is not the one that was written.
  Result<std::vector<std::byte>> finish() &&;

 private:
  PieceHead head_;
  uint32_t num_pieces_ = 0;
  uint32_t num_added_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace deepinfer::store
