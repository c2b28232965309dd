// Which tokens became which text, for log probabilities.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation.h"

namespace deepinfer {

// Tokens go in as they are drawn and come out with the text that they became. Text of markup and trimmed
// newlines never comes out, so its tokens are dropped. The parser hands text over in order and whole, so
// looking for each piece among the texts that wait is enough. Owned by one answer.
class TokenAttribution {
 public:
  // `text`: what the decoder gave for it; empty while a character is incomplete.
  void push(ScoredToken token, std::string_view text) {
    waiting_.push_back({std::move(token), std::string(text)});
  }

  // The tokens whose text begins in this piece.
  std::vector<ScoredToken> take(std::string_view piece);

 private:
  struct Waiting {
    ScoredToken token;
    std::string text;      // what is left of it
    bool is_told = false;  // its first part is out
  };
  std::deque<Waiting> waiting_;
};

}  // namespace deepinfer
