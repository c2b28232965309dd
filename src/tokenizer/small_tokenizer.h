// For tests and fuzzing: a small tokenizer.json with all 256 bytes, a few merges and added tokens of each
// kind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct SmallTokenizer {
  struct Added {
    std::string content;
    bool special = false;
    bool normalized = false;
  };
  // Byte b has id b; merge i has id 256 + i; added tokens follow.
  std::vector<std::string> merges = {"h e", "l l", "he ll", "hell o", "Ġ w",
                                     "Ġ Ġ", "a a", "aa aa", "Ã ©",    "1 2"};
  std::vector<Added> added = {
      {"<s>", true, false}, {"<think>", false, true}, {"<thinking>", false, true}, {"k><", false, false}};

  TokenId merge_id(size_t rank) const { return static_cast<TokenId>(256 + rank); }
  TokenId added_id(size_t index) const { return static_cast<TokenId>(256 + merges.size() + index); }

  JsonValue document() const {
    JsonValue::Object file;
    file.push_back({"added_tokens", added_tokens()});
    file.push_back(
        {"normalizer", JsonValue::Object{{"type", "Sequence"}, {"normalizers", JsonValue::Array{}}}});
    file.push_back({"pre_tokenizer", JsonValue::Object{{"type", "Sequence"}, {"pretokenizers", steps()}}});
    file.push_back({"decoder", JsonValue::Object{{"type", "ByteLevel"}}});
    file.push_back({"model", model()});
    return file;
  }
  std::string json() const { return to_json(document()); }

 private:
  JsonValue::Array added_tokens() const {
    JsonValue::Array list;
    for (size_t i = 0; i < added.size(); ++i) {
      list.push_back(JsonValue::Object{{"id", added_id(i)},
                                       {"content", added[i].content},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", added[i].normalized},
                                       {"special", added[i].special}});
    }
    return list;
  }

  JsonValue::Array steps() const {
    JsonValue::Array list;
    for (const std::string_view pattern : kSplitPatterns) {
      list.push_back(JsonValue::Object{{"type", "Split"},
                                       {"pattern", JsonValue::Object{{"Regex", pattern}}},
                                       {"behavior", "Isolated"},
                                       {"invert", false}});
    }
    list.push_back(
        JsonValue::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    return list;
  }

  JsonValue model() const {
    JsonValue::Object vocab;
    for (const std::string& spelling : byte_spellings()) vocab.push_back({spelling, vocab.size()});
    JsonValue::Array list;
    for (const std::string& merge : merges) {
      std::string joined = merge;
      joined.erase(joined.find(' '), 1);
      vocab.push_back({joined, vocab.size()});
      list.push_back(merge);
    }
    return JsonValue::Object{{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
  }
};

}  // namespace deepinfer
