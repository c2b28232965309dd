// Pieces that are one token as a whole: most words of a text. A hash table from bytes to id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Thread-compatible: add all, then find from any thread.
class WholePieces {
 public:
  // Room for `num_pieces` entries.
  explicit WholePieces(size_t num_pieces);
  // `bytes` is not empty and not yet in the table.
  void add(std::string_view bytes, TokenId id);
  std::optional<TokenId> find(std::string_view bytes) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = 0;
    uint32_t offset = 0, length = 0;  // of the bytes in text_; length 0 in an empty slot
  };
  size_t slot_index(uint64_t hash, std::string_view bytes) const;

  std::vector<Slot> slots_;  // open addressing, power of two, at most half full
  std::string text_;
};

}  // namespace deepinfer
