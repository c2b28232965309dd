#include <utility>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, Tokenizer::SpecialTokens special)
    : tokenizer_(&tokenizer), special_(special) {}

std::string IncrementalDecoder::push(TokenId id) {
  if (special_ == Tokenizer::SpecialTokens::kSkip && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  std::string text;
  const size_t unfinished = append_complete(pending_, text);
  pending_.erase(0, pending_.size() - unfinished);
  return text;
}

std::string IncrementalDecoder::flush() {
  std::string text;
  append_replacing(std::exchange(pending_, {}), text);
  return text;
}

}  // namespace deepinfer
