#include "tokenizer/vocabulary.h"

#include "tokenizer/byte_alphabet.h"

namespace deepinfer {

Status Vocabulary::add(std::string_view spelling, int64_t id) {
  if (id < 0 || id >= kMaxSize) {
    return Error(Code::kInvalidArgument, "token '{}' has id {}, expected 0 to {}", spelling, id,
                 kMaxSize - 1);
  }
  const auto [entry, is_new] = ids_.try_emplace(std::string(spelling), static_cast<TokenId>(id));
  if (!is_new && entry->second == id) return {};
  if (!is_new) {
    return Error(Code::kInvalidArgument, "token '{}' has the ids {} and {}", spelling, entry->second, id);
  }
  if (id >= size()) tokens_.resize(id + 1);
  Token& token = tokens_[id];
  if (token.exists) {
    return Error(Code::kInvalidArgument, "id {} belongs to '{}' and '{}'", id, token.spelling, spelling);
  }
  token = {true, std::string(spelling), bytes_of_spelling(spelling)};
  return {};
}

std::optional<TokenId> Vocabulary::find(std::string_view spelling) const {
  const auto entry = ids_.find(std::string(spelling));
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

const Vocabulary::Token& Vocabulary::token(TokenId id) const {
  static const Token kNone;
  return id >= 0 && id < size() ? tokens_[id] : kNone;
}

}  // namespace deepinfer
