#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tokenizer/small_tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

using testing::ElementsAre;
using AddedTokens = Tokenizer::AddedTokens;
using SpecialTokens = Tokenizer::SpecialTokens;

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Ill-formed text, and what a replacing decoder makes of it.
struct Repair {
  std::string_view broken, repaired;
};
constexpr Repair kRepairs[] = {
    {"a\xFFz", "a\xEF\xBF\xBDz"},
    {"\xE4\xBDz", "\xEF\xBF\xBDz"},  // a character cut short is one part
    {"\xF0\x9F\x99z", "\xEF\xBF\xBDz"},
    {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // a surrogate is three
    {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
    {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // above U+10FFFF
    {"\xC3\xA9\xC3", "\xC3\xA9\xEF\xBF\xBD"},                                  // cut at the end
};

class TokenizerTest : public testing::Test {
 protected:
  std::vector<TokenId> bytes(std::string_view text) const {
    std::vector<TokenId> ids;
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }

  TokenId hello() const { return small_.merge_id(3); }
  TokenId special() const { return small_.added_id(0); }
  TokenId think() const { return small_.added_id(1); }

  SmallTokenizer small_;
  Tokenizer tokenizer_ = *Tokenizer::parse(small_.json(), "small");
};

TEST_F(TokenizerTest, TextBecomesMergedTokens) {
  EXPECT_THAT(tokenizer_.encode("hello"), ElementsAre(hello()));
  EXPECT_THAT(tokenizer_.encode("hello w"), ElementsAre(hello(), small_.merge_id(4)));
  EXPECT_THAT(tokenizer_.encode("hell"), ElementsAre(small_.merge_id(2)));
  EXPECT_THAT(tokenizer_.encode(""), ElementsAre());
}

TEST_F(TokenizerTest, ThreadsMayEncodeAtOnce) {
  const std::string text = "hello  world <think> 12 aaaa é " + std::string(200, 'a');
  const std::vector<TokenId> expected = tokenizer_.encode(text);
  std::vector<std::vector<TokenId>> encoded(4);
  std::vector<std::thread> threads;
  for (auto& ids : encoded) threads.emplace_back([&] { ids = tokenizer_.encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : encoded) EXPECT_EQ(ids, expected);
}

TEST_F(TokenizerTest, MergesDoNotCrossPieces) {
  EXPECT_THAT(tokenizer_.encode("1112"), ElementsAre('1', '1', '1', '2'));
}

TEST_F(TokenizerTest, EncodeAppendKeepsWhatIsThere) {
  std::vector<TokenId> ids = {7};
  tokenizer_.encode_append("hello", AddedTokens::kRecognise, ids);
  EXPECT_THAT(ids, ElementsAre(7, hello()));
}

TEST_F(TokenizerTest, AddedTokensAreRecognisedOnlyWhenAsked) {
  EXPECT_THAT(tokenizer_.encode("a<think>b"), ElementsAre('a', think(), 'b'));
  EXPECT_EQ(tokenizer_.encode("a<s>b", AddedTokens::kAsText), bytes("a<s>b"));
}

TEST_F(TokenizerTest, OfTwoAddedTokensAtOnePlaceTheLongerWins) {
  EXPECT_THAT(tokenizer_.encode("<thinking>"), ElementsAre(small_.added_id(2)));
}

TEST_F(TokenizerTest, AddedTokensWithoutNormalizationAreMatchedFirst) {
  // "k><" begins inside "<think>", but is looked for in the raw text, before it.
  EXPECT_THAT(tokenizer_.encode("<think><"), ElementsAre('<', 't', 'h', 'i', 'n', small_.added_id(3)));
}

TEST_F(TokenizerTest, IllFormedTextIsEncodedAsReplacementCharacters) {
  for (const auto& [broken, repaired] : kRepairs) {
    EXPECT_EQ(tokenizer_.encode(broken), tokenizer_.encode(repaired));
    EXPECT_EQ(tokenizer_.decode(tokenizer_.encode(broken)), repaired);
  }
}

TEST_F(TokenizerTest, DecodeReplacesIllFormedBytes) {
  for (const auto& [broken, repaired] : kRepairs) EXPECT_EQ(tokenizer_.decode(bytes(broken)), repaired);
}

TEST_F(TokenizerTest, DecodeLeavesOutSpecialTokensOnlyWhenAsked) {
  const std::vector<TokenId> ids = {special(), hello(), think()};
  EXPECT_EQ(tokenizer_.decode(ids), "<s>hello<think>");
  EXPECT_EQ(tokenizer_.decode(ids, SpecialTokens::kSkip), "hello<think>");
}

TEST_F(TokenizerTest, UnknownIdsDecodeToNothing) {
  const TokenId unknown[] = {-1, hello(), static_cast<TokenId>(tokenizer_.vocab_size()), INT32_MAX};
  EXPECT_EQ(tokenizer_.decode(unknown, SpecialTokens::kSkip), "hello");
  EXPECT_EQ(tokenizer_.token_bytes(-1), "");
  EXPECT_EQ(tokenizer_.token_spelling(INT32_MAX), "");
  EXPECT_FALSE(tokenizer_.is_special(INT32_MAX));
}

TEST_F(TokenizerTest, TokensHaveBytesAndASpelling) {
  EXPECT_EQ(tokenizer_.token_bytes(small_.merge_id(4)), " w");
  EXPECT_EQ(tokenizer_.token_spelling(small_.merge_id(4)), "Ġw");
  EXPECT_EQ(tokenizer_.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer_.vocab_size(), small_.added_id(3) + 1);
}

TEST_F(TokenizerTest, AddedTokensAreKnownByTheirSpelling) {
  EXPECT_EQ(tokenizer_.id_of_added("<think>"), think());
  EXPECT_EQ(tokenizer_.id_of_added("hello"), std::nullopt);
  EXPECT_TRUE(tokenizer_.is_special(special()));
  EXPECT_FALSE(tokenizer_.is_special(think()));
}

TEST_F(TokenizerTest, LoadReadsAFileAndNamesOneThatIsMissing) {
  const auto path = std::filesystem::path(testing::TempDir()) / "small_tokenizer.json";
  std::ofstream(path) << small_.json();
  const auto loaded = Tokenizer::load(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->encode("hello"), ElementsAre(hello()));
  const auto missing = Tokenizer::load(path);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), testing::HasSubstr(path.string()));
}

TEST_F(TokenizerTest, TheIncrementalDecoderNeverEmitsHalfACharacter) {
  IncrementalDecoder decoder(tokenizer_);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x99), "");
  EXPECT_EQ(decoder.push(0x82), "🙂");
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.flush(), "");
}

TEST_F(TokenizerTest, TheIncrementalDecoderReplacesWhatCanNoLongerBecomeACharacter) {
  IncrementalDecoder decoder(tokenizer_);
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('a'), std::string(kReplacement) + "a");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.flush(), kReplacement);
  EXPECT_EQ(decoder.push(0xA9), kReplacement);
}

TEST_F(TokenizerTest, TheIncrementalDecoderCanSkipSpecialTokens) {
  IncrementalDecoder decoder(tokenizer_, SpecialTokens::kSkip);
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push(special()), "");
  EXPECT_EQ(decoder.push(0xA9), "é");
  EXPECT_EQ(decoder.push(think()), "<think>");
}

TEST_F(TokenizerTest, IncrementalPiecesJoinToTheDecodedText) {
  std::vector<TokenId> ids;
  for (const auto& [broken, repaired] : kRepairs) {
    for (const TokenId id : bytes(broken)) ids.push_back(id);
    for (const TokenId id : tokenizer_.encode("é🙂 hello<s>的\xF0\x9F")) ids.push_back(id);
  }
  IncrementalDecoder decoder(tokenizer_);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  EXPECT_EQ(text + decoder.flush(), tokenizer_.decode(ids));
}

TEST(EngramTokenMapTest, TokensThatDifferInCaseAccentsAndBlanksShareAClass) {
  SmallTokenizer small;
  small.merges = {"Ã ī", "Ã ©", "Ġ e", "Ġ Ġ", "Ġ \u010A"};  // É, é, " e", two spaces, space and LF
  small.added = {};
  const auto map = engram_token_map(*Tokenizer::parse(small.json(), "small"), 263);
  const int32_t e = map['e'];
  EXPECT_EQ(map['E'], e);
  for (const size_t rank : {0, 1, 2}) EXPECT_EQ(map[small.merge_id(rank)], e) << rank;
  EXPECT_EQ(map[small.merge_id(3)], map[' ']);
  EXPECT_EQ(map[small.merge_id(4)], map[' ']);
  EXPECT_EQ(map['\n'], map[' ']);
  EXPECT_NE(map[0xC3], map[0xC4]);  // half a character goes by its spelling
  EXPECT_EQ(map[261], map[262]);    // ids without a token share the empty class
  EXPECT_EQ(map[0], 0);
  EXPECT_EQ(map[1], 1);
}

TEST(Utf8Test, CodePointsSurviveWritingAndReading) {
  for (const char32_t code_point :
       {U'\0', U'z', U'\u0080', U'\u07FF', U'\u0800', U'\uFFFF', U'\U00010000', U'\U0010FFFF'}) {
    std::string text;
    append_code_point(code_point, text);
    const Utf8Part part = utf8_part(text, 0);
    EXPECT_EQ(part.kind, Utf8Part::Kind::kCharacter);
    EXPECT_EQ(part.length, text.size());
    EXPECT_EQ(part.code_point, code_point);
  }
}

}  // namespace
}  // namespace deepinfer
