#include "tokenizer/added_tokens.h"

namespace deepinfer {

uint32_t AddedTokenFinder::child(uint32_t node, uint8_t byte) const {
  uint32_t candidate = nodes_[node].first_child;
  while (candidate != kNone && nodes_[candidate].byte != byte) candidate = nodes_[candidate].next_sibling;
  return candidate;
}

void AddedTokenFinder::add(std::string_view content, TokenId id) {
  uint32_t node = kNone;
  for (size_t i = 0; i < content.size(); ++i) {
    const auto byte = static_cast<uint8_t>(content[i]);
    uint32_t next = i == 0 ? roots_[byte] : child(node, byte);
    if (next == kNone) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, kNoToken, kNone, i == 0 ? kNone : nodes_[node].first_child});
      (i == 0 ? roots_[byte] : nodes_[node].first_child) = next;
    }
    node = next;
  }
  nodes_[node].id = id;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::longest_at(std::string_view text,
                                                                    size_t begin) const {
  std::optional<Match> longest;
  uint32_t node = roots_[static_cast<uint8_t>(text[begin])];
  for (size_t end = begin + 1; node != kNone; ++end) {
    if (nodes_[node].id != kNoToken) longest = Match{begin, end, nodes_[node].id};
    node = end < text.size() ? child(node, static_cast<uint8_t>(text[end])) : kNone;
  }
  return longest;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (roots_[static_cast<uint8_t>(text[begin])] == kNone) continue;
    if (const auto match = longest_at(text, begin)) return match;
  }
  return std::nullopt;
}

}  // namespace deepinfer
