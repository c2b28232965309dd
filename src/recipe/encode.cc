// Rendered prompt to token ids.
#include "recipe/control_tokens.h"
#include "recipe/recipe.h"

namespace deepinfer {
namespace {

std::optional<TokenId> control_id(const Tokenizer& tokenizer, std::string_view spelling) {
  const std::optional<TokenId> id = tokenizer.id_of_added(spelling);
  if (id) return id;
  if (spelling == control::kImage) return tokenizer.id_of_added(control::kReleasedImage);
  if (spelling == control::kReleasedImage) return tokenizer.id_of_added(control::kImage);
  return std::nullopt;
}

}  // namespace

Result<std::vector<TokenId>> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  const std::string_view text = prompt.text;
  std::vector<TokenId> ids;
  size_t at = 0;
  for (const TextRange& range : prompt.control_ranges) {
    tokenizer.encode_append(text.substr(at, range.begin - at), Tokenizer::AddedTokens::kAsText, ids);
    const std::string_view spelling = text.substr(range.begin, range.end - range.begin);
    const std::optional<TokenId> id = control_id(tokenizer, spelling);
    if (!id) return Error(Code::kNotFound, "the tokenizer has no control token {}", spelling);
    ids.push_back(*id);
    at = range.end;
  }
  tokenizer.encode_append(text.substr(at), Tokenizer::AddedTokens::kAsText, ids);
  return ids;
}

Result<std::vector<TokenId>> stop_token_ids(const Tokenizer& tokenizer) {
  if (!tokenizer.id_of_added(control::kEndOfSentence)) {
    return Error(Code::kNotFound, "the tokenizer has no control token {}", control::kEndOfSentence);
  }
  std::vector<TokenId> ids;
  for (const std::string_view spelling :
       {control::kEndOfSentence, control::kBeginOfSentence, control::kSystem, control::kUser,
        control::kAssistant, control::kLatestReminder}) {
    if (const auto id = tokenizer.id_of_added(spelling)) ids.push_back(*id);
  }
  return ids;
}

std::optional<TokenId> assistant_token_id(const Tokenizer& tokenizer) {
  return tokenizer.id_of_added(control::kAssistant);
}

}  // namespace deepinfer
