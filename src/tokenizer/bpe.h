// Byte-pair encoding of one piece of text: start from single bytes, always join the adjacent pair of best
// rank (of equal ones the leftmost), until no pair is a merge.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct Merge {
  TokenId left, right, result;
};

// Immutable, thread-safe.
class Bpe {
 public:
  // `byte_ids`: the token of each byte. The rank of a merge is its index; of equal pairs the last counts.
  Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges);

  // Appends the tokens of `piece`, which has less than 2^32 bytes.
  void append(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Slot {
    uint64_t pair = 0;
    uint32_t rank = kNoRank;  // kNoRank in an empty slot
    TokenId result = 0;
  };
  Slot& slot(uint64_t pair);
  const Slot& find(TokenId left, TokenId right) const;
  void append_short(std::string_view piece, std::vector<TokenId>& ids) const;
  void append_long(std::string_view piece, std::vector<TokenId>& ids) const;
  class LongPiece;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, power of two, at most half full
  int shift_;
};

}  // namespace deepinfer
