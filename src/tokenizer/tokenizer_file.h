// tokenizer.json as data: what this tokenizer can do is read, everything else is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;  // matched after those that are not
};

struct TokenizerFile {
  Vocabulary vocabulary;      // with the added tokens
  std::vector<Merge> merges;  // best first
  std::vector<AddedToken> added_tokens;
};

Result<TokenizerFile> parse_tokenizer_file(std::string_view json_text);

}  // namespace deepinfer
