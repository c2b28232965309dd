#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <utility>

namespace deepinfer {
namespace {

// Up to this many bytes a scan for the best pair beats a heap.
constexpr size_t kShortPiece = 48;

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, std::span<const Merge> merges) : byte_ids_(byte_ids) {
  const size_t capacity = std::bit_ceil(2 * merges.size() + 2);
  slots_.resize(capacity);
  shift_ = 64 - std::countr_zero(capacity);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = pair_key(merge.left, merge.right);
    slot(pair) = {pair, static_cast<uint32_t>(rank), merge.result};
  }
}

// The slot of `pair`, or the empty one where it belongs.
Bpe::Slot& Bpe::slot(uint64_t pair) {
  size_t i = pair * 0x9E3779B97F4A7C15u >> shift_;
  while (slots_[i].rank != kNoRank && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  return slots_[i];
}

const Bpe::Slot& Bpe::find(TokenId left, TokenId right) const {
  return const_cast<Bpe*>(this)->slot(pair_key(left, right));
}

void Bpe::append(std::string_view piece, std::vector<TokenId>& ids) const {
  piece.size() <= kShortPiece ? append_short(piece, ids) : append_long(piece, ids);
}

void Bpe::append_short(std::string_view piece, std::vector<TokenId>& ids) const {
  TokenId tokens[kShortPiece];
  uint32_t ranks[kShortPiece];  // of the pair that begins here; kNoRank at the last token
  TokenId results[kShortPiece];
  size_t count = piece.size();
  const auto update = [&](size_t i) {
    const Slot pair = i + 1 < count ? find(tokens[i], tokens[i + 1]) : Slot{};
    ranks[i] = pair.rank;
    results[i] = pair.result;
  };
  const auto close_gap = [&](auto* values, size_t gap) {
    std::copy(values + gap + 1, values + count, values + gap);
  };
  for (size_t i = 0; i < count; ++i) tokens[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i < count; ++i) update(i);
  while (true) {
    const size_t best = std::min_element(ranks, ranks + count) - ranks;
    if (best == count || ranks[best] == kNoRank) break;
    tokens[best] = results[best];
    close_gap(tokens, best + 1);
    close_gap(ranks, best + 1);
    close_gap(results, best + 1);
    --count;
    update(best);
    if (best > 0) update(best - 1);
  }
  ids.insert(ids.end(), tokens, tokens + count);
}

// A long piece as a linked list with a heap of candidate pairs: O(n log n) for any input.
class Bpe::LongPiece {
 public:
  LongPiece(const Bpe& bpe, std::string_view piece) : bpe_(bpe), nodes_(piece.size()) {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i] = {bpe.byte_ids_[static_cast<uint8_t>(piece[i])], kNoRank, 0, i - 1, i + 1};
    }
    for (uint32_t i = 0; i < nodes_.size(); ++i) update(i);
  }

  void merge_all() {
    while (!candidates_.empty()) {
      const auto [rank, position] = candidates_.top();
      candidates_.pop();
      if (nodes_[position].rank == rank) merge(position);  // else the pair was changed since
    }
  }

  void append_to(std::vector<TokenId>& ids) const {
    for (uint32_t i = 0; i < nodes_.size(); i = nodes_[i].next) ids.push_back(nodes_[i].token);
  }

 private:
  struct Node {
    TokenId token;
    uint32_t rank;  // of the pair with the next node; kNoRank for none and for a node that was merged away
    TokenId result;
    uint32_t previous, next;  // next of the last is the size; previous of the first is never followed
  };
  using Candidate = std::pair<uint32_t, uint32_t>;  // rank, position

  void update(uint32_t position) {
    Node& node = nodes_[position];
    node.rank = kNoRank;
    if (node.next >= nodes_.size()) return;
    const Slot& pair = bpe_.find(node.token, nodes_[node.next].token);
    node.rank = pair.rank;
    node.result = pair.result;
    if (pair.rank != kNoRank) candidates_.push({pair.rank, position});
  }

  void merge(uint32_t position) {
    Node& node = nodes_[position];
    Node& gone = nodes_[node.next];
    node.token = node.result;
    node.next = gone.next;
    gone.rank = kNoRank;
    if (node.next < nodes_.size()) nodes_[node.next].previous = position;
    update(position);
    if (position > 0) update(node.previous);
  }

  const Bpe& bpe_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

void Bpe::append_long(std::string_view piece, std::vector<TokenId>& ids) const {
  LongPiece work(*this, piece);
  work.merge_all();
  work.append_to(ids);
}

}  // namespace deepinfer
