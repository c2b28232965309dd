#include "store/pieces.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/little_endian.h"
#include "crypto/crypto.h"
#include "store/store.h"

namespace deepinfer::store {
namespace {

// What of the object lies in piece `number`.
std::span<const std::byte> part_of(std::span<const std::byte> object, uint32_t number, size_t payload_bytes) {
  const size_t room = payload_bytes - kPieceHeadBytes, at = number * room;
  return object.subspan(at, std::min(room, object.size() - at));
}

}  // namespace

Digest piece_key(RecordKind kind, const Digest& object_key, uint32_t number) {
  Mac mac(object_key);
  const auto kind_byte = static_cast<uint8_t>(kind);
  const std::span<const std::byte> parts[] = {as_bytes("kv object"), std::as_bytes(std::span(&kind_byte, 1)),
                                              std::as_bytes(std::span(&number, 1))};
  return mac.digest(parts);
}

uint32_t num_pieces(uint64_t object_bytes, uint32_t payload_bytes) {
  if (payload_bytes <= kPieceHeadBytes) return 0;
  return static_cast<uint32_t>(ceil_div(object_bytes, payload_bytes - kPieceHeadBytes));
}

PieceHead head_of(std::span<const std::byte> object) {
  PieceHead head;
  const Digest digest = sha256(object);
  std::copy_n(digest.begin(), head.digest.size(), head.digest.begin());
  head.object_bytes = object.size();
  return head;
}

void write_piece(std::span<std::byte> payload, const PieceHead& head, uint32_t number,
                 std::span<const std::byte> object) {
  put_le(payload, 0, head.digest);
  put_le(payload, 16, head.object_bytes);
  put_le(payload, 24, uint64_t{0});
  const auto part = part_of(object, number, payload.size());
  const auto end = std::copy(part.begin(), part.end(), payload.begin() + kPieceHeadBytes);
  std::fill(end, payload.end(), std::byte{0});
}

PieceHead read_piece_head(std::span<const std::byte> payload) {
  return {get_le<std::array<std::byte, 16>>(payload, 0), get_le<uint64_t>(payload, 16)};
}

Result<ObjectBuilder> ObjectBuilder::begin(std::span<const std::byte> first_payload) {
  ObjectBuilder builder;
  if (first_payload.size() > kPieceHeadBytes) builder.head_ = read_piece_head(first_payload);
  if (builder.head_.object_bytes == 0 || builder.head_.object_bytes > kMaxObjectBytes)
    return Error(Code::kDataLoss, "object: {} bytes, expected 1 to {}", builder.head_.object_bytes, kMaxObjectBytes);
  builder.num_pieces_ = store::num_pieces(builder.head_.object_bytes, static_cast<uint32_t>(first_payload.size()));
  builder.bytes_.resize(builder.head_.object_bytes);
  CHECK(builder.add(0, first_payload));
  return builder;
}

bool ObjectBuilder::add(uint32_t number, std::span<const std::byte> payload) {
  if (number >= num_pieces_ || read_piece_head(payload) != head_) return false;
  const auto part = part_of(bytes_, number, payload.size());
  std::copy_n(payload.begin() + kPieceHeadBytes, part.size(), bytes_.begin() + (part.data() - bytes_.data()));
  ++num_added_;
  return true;
}

Result<std::vector<std::byte>> ObjectBuilder::finish() && {
  if (num_added_ != num_pieces_) return Error(Code::kDataLoss, "object: {} of {} pieces", num_added_, num_pieces_);
  if (head_of(bytes_) != head_) return Error(Code::kDataLoss, "object: not the bytes that were written");
  return std::move(bytes_);
}

}  // namespace deepinfer::store
