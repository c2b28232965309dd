#include "tokenizer/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tokenizer/small_tokenizer.h"

namespace deepinfer {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& json) {
  const auto tokenizer = Tokenizer::parse(json, "t.json");
  if (tokenizer.ok()) return "accepted";
  EXPECT_EQ(tokenizer.error().code(), Code::kInvalidArgument);
  return tokenizer.error().message();
}

std::string error_after(const std::function<void(JsonValue&)>& change) {
  JsonValue document = SmallTokenizer().document();
  change(document);
  return error_of(to_json(document));
}

// The error after one value of the file is replaced; each key leads one step down.
std::string error_with(std::initializer_list<std::string_view> keys, JsonValue value) {
  return error_after([&](JsonValue& document) {
    JsonValue* place = &document;
    for (const std::string_view key : keys) {
      JsonValue* next = place->array() ? &(*place->array())[key[0] - '0'] : place->find(key);
      if (next == nullptr) {
        place->object()->push_back({std::string(key), {}});
        next = &place->object()->back().value;
      }
      place = next;
    }
    *place = std::move(value);
  });
}

TEST(TokenizerFileTest, MergesMayBeStringsOrPairs) {
  JsonValue document = SmallTokenizer().document();
  for (JsonValue& merge : *document.find("model")->find("merges")->array()) {
    const std::string text = *merge.string();
    const size_t space = text.find(' ');
    merge = JsonValue::Array{text.substr(0, space), text.substr(space + 1)};
  }
  const auto pairs = Tokenizer::parse(to_json(document), "t.json");
  ASSERT_TRUE(pairs.ok());
  EXPECT_EQ(pairs->encode("hello  w"),
            Tokenizer::parse(SmallTokenizer().json(), "t.json")->encode("hello  w"));
}

TEST(TokenizerFileTest, PatternsMayWriteNewlinesAndQuotesEitherWay) {
  std::string pattern(kSplitPatterns[2]);
  for (const auto& [escaped, plain] :
       {std::pair("\\r", "\r"), std::pair("\\n", "\n"), std::pair("\"", "\\\"")}) {
    for (size_t at = 0; (at = pattern.find(escaped, at)) != std::string::npos;
         at += std::string(plain).size()) {
      pattern.replace(at, std::string(escaped).size(), plain);
    }
  }
  EXPECT_EQ(error_with({"pre_tokenizer", "pretokenizers", "2", "pattern", "Regex"}, pattern), "accepted");
}

TEST(TokenizerFileTest, TheNormalizerMayBeAbsent) {
  EXPECT_EQ(error_with({"normalizer"}, {}), "accepted");
}

TEST(TokenizerFileTest, ErrorsNameTheFileThePlaceAndWhatWasExpected) {
  EXPECT_EQ(error_with({"model", "type"}, "Unigram"), "t.json: model.type: found \"Unigram\", expected BPE");
  EXPECT_EQ(error_with({"model", "byte_fallback"}, true),
            "t.json: model.byte_fallback: found true, expected false");
}

TEST(TokenizerFileTest, WhatChangesTheTokensIsRefused) {
  EXPECT_THAT(error_with({"truncation"}, JsonValue::Object{}), HasSubstr("truncation"));
  EXPECT_THAT(error_with({"padding"}, JsonValue::Object{}), HasSubstr("padding"));
  EXPECT_THAT(error_with({"normalizer", "type"}, "NFC"), HasSubstr("normalizer.type"));
  EXPECT_THAT(error_with({"normalizer", "normalizers"}, JsonValue::Array{1}),
              HasSubstr("normalizer.normalizers"));
  EXPECT_THAT(error_with({"decoder", "type"}, "Metaspace"), HasSubstr("decoder.type"));
  EXPECT_THAT(error_with({"post_processor"}, JsonValue::Object{{"type", "TemplateProcessing"}}),
              HasSubstr("post_processor.type"));
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    EXPECT_THAT(error_with({"model", key}, "x"), HasSubstr(key));
  }
  for (const char* key : {"fuse_unk", "ignore_merges"})
    EXPECT_THAT(error_with({"model", key}, true), HasSubstr(key));
}

TEST(TokenizerFileTest, OtherPreTokenizersAreRefused) {
  EXPECT_THAT(error_with({"pre_tokenizer"}, {}), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(error_with({"pre_tokenizer", "type"}, "ByteLevel"), HasSubstr("expected Sequence"));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers"}, JsonValue::Array{}), HasSubstr("found 0 steps"));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"}, "\\d"),
              HasSubstr("found \"\\d\""));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers", "1", "behavior"}, "Removed"),
              HasSubstr("Removed"));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers", "1", "invert"}, true), HasSubstr("invert"));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers", "3", "use_regex"}, true), HasSubstr("use_regex"));
  EXPECT_THAT(error_with({"pre_tokenizer", "pretokenizers", "3", "add_prefix_space"}, true),
              HasSubstr("add_prefix_space"));
}

TEST(TokenizerFileTest, AWrongVocabularyIsRefused) {
  EXPECT_THAT(error_with({"model", "vocab"}, {}), HasSubstr("model.vocab"));
  EXPECT_THAT(error_with({"model", "vocab", "a"}, "x"), HasSubstr("expected integer"));
  EXPECT_THAT(error_with({"model", "vocab", "new"}, -1), HasSubstr("token 'new' has id -1"));
  EXPECT_THAT(error_with({"model", "vocab", "new"}, Vocabulary::kMaxSize),
              HasSubstr("expected 0 to 1048575"));
  EXPECT_THAT(error_with({"model", "vocab", "new"}, 65), HasSubstr("id 65 belongs to 'A' and 'new'"));
  EXPECT_THAT(error_with({"model", "vocab"}, JsonValue::Object{{"a", 0}}), HasSubstr("model.merges[0]"));
}

TEST(TokenizerFileTest, AByteWithoutATokenIsRefused) {
  EXPECT_THAT(error_after([](JsonValue& document) {
                *document.find("model")->find("merges") = JsonValue::Array{};
                auto& vocab = *document.find("model")->find("vocab")->object();
                vocab.erase(vocab.begin() + 'A');
              }),
              HasSubstr("no token 'A' for byte 0x41"));
}

TEST(TokenizerFileTest, WrongMergesAreRefused) {
  EXPECT_THAT(error_with({"model", "merges"}, {}), HasSubstr("model.merges"));
  EXPECT_THAT(error_with({"model", "merges", "1"}, "abc"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(error_with({"model", "merges", "1"}, "a b c"), HasSubstr("expected two tokens"));
  EXPECT_THAT(error_with({"model", "merges", "1"}, JsonValue::Array{"a"}), HasSubstr("expected two tokens"));
  EXPECT_THAT(error_with({"model", "merges", "1"}, "a b"), HasSubstr("'ab' is not in the vocabulary"));
}

TEST(TokenizerFileTest, WrongAddedTokensAreRefused) {
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    EXPECT_THAT(error_with({"added_tokens", "0", key}, true),
                HasSubstr("added_tokens[0]." + std::string(key)));
  }
  EXPECT_THAT(error_with({"added_tokens", "0", "content"}, ""), HasSubstr("an empty string"));
  EXPECT_THAT(error_with({"added_tokens", "0", "id"}, 1.5), HasSubstr("added_tokens[0].id"));
  EXPECT_THAT(error_with({"added_tokens", "0", "id"}, -3), HasSubstr("found -3"));
  EXPECT_THAT(error_with({"added_tokens", "0", "id"}, 65), HasSubstr("id 65 belongs to 'A' and '<s>'"));
  EXPECT_THAT(error_with({"added_tokens", "0", "content"}, "A"), HasSubstr("token 'A' has the ids 65 and"));
  EXPECT_THAT(error_with({"added_tokens", "0", "special"}, {}), HasSubstr("special"));
}

TEST(TokenizerFileTest, NoPrefixOfAFileIsAccepted) {
  const std::string json = SmallTokenizer().json();
  for (size_t size = 0; size < json.size(); ++size) {
    ASSERT_FALSE(Tokenizer::parse(std::string_view(json).substr(0, size), "t.json").ok()) << size;
  }
  EXPECT_FALSE(Tokenizer::parse("[]", "t.json").ok());
}

}  // namespace
}  // namespace deepinfer
