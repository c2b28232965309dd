#include "tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/whole_pieces.h"

namespace deepinfer {
namespace {

using testing::ElementsAre;

std::array<TokenId, 256> identity_bytes() {
  std::array<TokenId, 256> ids;
  for (int byte = 0; byte < 256; ++byte) ids[byte] = byte;
  return ids;
}

std::vector<TokenId> encode(const Bpe& bpe, std::string_view piece) {
  std::vector<TokenId> ids;
  bpe.append(piece, ids);
  return ids;
}

// The definition, word for word: join the leftmost pair of best rank while there is one.
std::vector<TokenId> encode_by_definition(std::span<const Merge> merges, std::string_view piece) {
  std::vector<TokenId> ids;
  for (const char byte : piece) ids.push_back(static_cast<uint8_t>(byte));
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) best_rank = rank, best_at = i;
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeTest, TheBestRankMergesFirst) {
  const Merge merges[] = {{'b', 'c', 300}, {'a', 'b', 301}, {'a', 300, 302}};
  const Bpe bpe(identity_bytes(), merges);
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre(302));
  EXPECT_THAT(encode(bpe, "abd"), ElementsAre(301, 'd'));
  EXPECT_THAT(encode(bpe, "x"), ElementsAre('x'));
}

TEST(BpeTest, OfEqualRanksTheLeftmostMergesFirst) {
  const Merge merges[] = {{'a', 'a', 300}};
  EXPECT_THAT(encode(Bpe(identity_bytes(), merges), "aaaaa"), ElementsAre(300, 300, 'a'));
}

TEST(BpeTest, WithoutMergesBytesStayBytes) {
  EXPECT_THAT(encode(Bpe(identity_bytes(), {}), "ab"), ElementsAre('a', 'b'));
}

TEST(BpeTest, PiecesOfAnyLengthFollowTheDefinition) {
  std::vector<Merge> merges;  // of random pairs of bytes "a" to "d" and earlier results
  TokenId next = 256;
  for (uint32_t i = 0; i < 60; ++i) {
    const auto words = philox4x32(7, {i, 0, 0, 0});
    const auto pick = [&](uint32_t word) {
      const auto choice = static_cast<TokenId>(word % (4 + i));
      return choice < 4 ? 'a' + choice : 256 + choice - 4;
    };
    merges.push_back({pick(words[0]), pick(words[1]), next++});
  }
  const Bpe bpe(identity_bytes(), merges);
  for (uint32_t length = 1; length <= 140; ++length) {
    std::string piece;
    for (uint32_t i = 0; i < length; ++i)
      piece += static_cast<char>('a' + philox4x32(8, {i, length, 0, 0})[0] % 4);
    ASSERT_EQ(encode(bpe, piece), encode_by_definition(merges, piece)) << piece;
  }
}

TEST(BpeTest, AMegabyteOfOneLetterEndsWithHalvedTokens) {
  std::vector<Merge> merges = {{'a', 'a', 300}};
  for (TokenId i = 1; i < 8; ++i) merges.push_back({299 + i, 299 + i, 300 + i});
  const std::vector<TokenId> ids = encode(Bpe(identity_bytes(), merges), std::string(1 << 20, 'a'));
  EXPECT_EQ(ids, std::vector<TokenId>((1 << 20) / 256, 307));
}

TEST(WholePiecesTest, FindsExactlyWhatWasAdded) {
  WholePieces pieces(600);
  std::string text;
  for (TokenId id = 0; id < 600; ++id) {
    text += static_cast<char>('a' + id % 23);
    pieces.add(text, id);
  }
  for (TokenId id = 0; id < 600; ++id) {
    const std::string_view added = std::string_view(text).substr(0, id + 1);
    EXPECT_EQ(pieces.find(added), id);
    EXPECT_EQ(pieces.find(std::string(added) + "!"), std::nullopt);
  }
}

TEST(AddedTokenFinderTest, TheLeftmostAndThenTheLongestWins) {
  AddedTokenFinder finder;
  finder.add("<a>", 1);
  finder.add("<a><b>", 2);
  finder.add("><", 3);
  const auto match = finder.find("x<a><b", 0);
  ASSERT_TRUE(match);
  EXPECT_EQ(std::tuple(match->begin, match->end, match->id), std::tuple(1u, 4u, 1));
  EXPECT_EQ(finder.find("<a><b>", 0)->id, 2);
  EXPECT_EQ(finder.find("<a><b>", 1)->id, 3);
  EXPECT_FALSE(finder.find("<a", 0));
}

}  // namespace
}  // namespace deepinfer
