#include "tokenizer/whole_pieces.h"

#include <bit>
#include <cstring>

namespace deepinfer {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD1B54A32D192ED03u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <typename Word>
uint64_t load(const char* from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Reads each byte at least once, short strings in two overlapping loads.
uint64_t hash_bytes(std::string_view bytes) {
  const char* data = bytes.data();
  const size_t size = bytes.size();
  if (size < 4)
    return mix(static_cast<uint8_t>(data[0]) << 16 | static_cast<uint8_t>(data[size / 2]) << 8 |
                   static_cast<uint8_t>(data[size - 1]),
               size);
  if (size <= 8) return mix(load<uint32_t>(data) << 32 | load<uint32_t>(data + size - 4), size);
  uint64_t hash = size;
  for (size_t i = 0; i + 8 < size; i += 8) hash = mix(hash, load<uint64_t>(data + i));
  return mix(hash, load<uint64_t>(data + size - 8));
}

}  // namespace

WholePieces::WholePieces(size_t num_pieces) : slots_(std::bit_ceil(2 * num_pieces + 2)) {}

// The slot that holds `bytes`, or the empty one where they belong.
size_t WholePieces::slot_index(uint64_t hash, std::string_view bytes) const {
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i].length != 0) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash >> 32 && std::string_view(text_).substr(slot.offset, slot.length) == bytes) break;
    i = (i + 1) & (slots_.size() - 1);
  }
  return i;
}

void WholePieces::add(std::string_view bytes, TokenId id) {
  const uint64_t hash = hash_bytes(bytes);
  slots_[slot_index(hash, bytes)] = {static_cast<uint32_t>(hash >> 32), id,
                                     static_cast<uint32_t>(text_.size()),
                                     static_cast<uint32_t>(bytes.size())};
  text_.append(bytes);
}

std::optional<TokenId> WholePieces::find(std::string_view bytes) const {
  const Slot& slot = slots_[slot_index(hash_bytes(bytes), bytes)];
  if (slot.length == 0) return std::nullopt;
  return slot.id;
}

}  // namespace deepinfer
