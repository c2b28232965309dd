// Finds the spellings of added tokens in text: the leftmost, and of those the longest.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Thread-compatible: add all, then find from any thread.
class AddedTokenFinder {
 public:
  struct Match {
    size_t begin, end;
    TokenId id;
  };

  // `content` is not empty. Of equal contents the last id counts.
  void add(std::string_view content, TokenId id);
  // The first match at `from` or later.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  static constexpr uint32_t kNone = 0;  // node 0 stands for "no node"
  static constexpr TokenId kNoToken = -1;
  struct Node {  // of a trie; children are linked as siblings
    uint8_t byte = 0;
    TokenId id = kNoToken;
    uint32_t first_child = kNone, next_sibling = kNone;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;
  std::optional<Match> longest_at(std::string_view text, size_t begin) const;

  std::array<uint32_t, 256> roots_{};
  std::vector<Node> nodes_ = {Node{}};
};

}  // namespace deepinfer
