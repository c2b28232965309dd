#include "gateway/prompt.h"

namespace deepinfer {
namespace {

constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
constexpr std::string_view kFimEnd = "<｜fim▁end｜>";

Result<TokenId> added_token(const Tokenizer& tokenizer, std::string_view spelling) {
  const std::optional<TokenId> id = tokenizer.id_of_added(spelling);
  if (id) return *id;
  return Error(Code::kInvalidArgument,
               "suffix: this model's tokenizer has no {}, which filling in the middle needs", spelling);
}

// What the client wrote is plain text; a begin of sentence goes before it unless it came as ids
// (recipe.md 3.5, 10).
Result<PreparedPrompt> prepare_raw(const RawPrompt& prompt, const Tokenizer& tokenizer) {
  PreparedPrompt out;
  out.stage = OutputStage::kContentContinuation;
  if (prompt.ids) {
    for (const TokenId id : *prompt.ids) {
      if (id >= 0 && id < tokenizer.vocab_size()) continue;
      return Error(Code::kInvalidArgument, "prompt: found token id {}, expected 0 to {}", id,
                   tokenizer.vocab_size() - 1);
    }
    out.ids = *prompt.ids;
    return out;
  }
  const auto append_text = [&](std::string_view text) {
    tokenizer.encode_append(text, Tokenizer::AddedTokens::kAsText, out.ids);
  };
  const std::optional<TokenId> begin = tokenizer.id_of_added(kBeginOfSentence);
  if (begin) out.ids.push_back(*begin);
  if (!prompt.suffix) {
    append_text(prompt.text);
    return out;
  }
  ASSIGN_OR_RETURN(const TokenId fim_begin, added_token(tokenizer, kFimBegin));
  ASSIGN_OR_RETURN(const TokenId fim_hole, added_token(tokenizer, kFimHole));
  ASSIGN_OR_RETURN(const TokenId fim_end, added_token(tokenizer, kFimEnd));
  out.ids.push_back(fim_begin);
  append_text(prompt.text);
  out.ids.push_back(fim_hole);
  append_text(*prompt.suffix);
  out.ids.push_back(fim_end);
  return out;
}

}  // namespace

Result<std::vector<PreparedPrompt>> prepare_prompts(const GenerationRequest& request,
                                                    const Tokenizer& tokenizer) {
  std::vector<PreparedPrompt> out;
  for (const RawPrompt& prompt : request.raw_prompts) {
    ASSIGN_OR_RETURN(PreparedPrompt prepared, prepare_raw(prompt, tokenizer));
    out.push_back(std::move(prepared));
  }
  if (!out.empty()) return out;
  const RenderedPrompt prompt = render(request.conversation);
  Result<std::vector<TokenId>> ids = encode(prompt, tokenizer);
  // The control tokens were checked when the gateway started.
  if (!ids.ok()) return Error(Code::kInternal, "{}", ids.error().message());
  out.push_back({std::move(*ids), prompt.output_stage});
  return out;
}

}  // namespace deepinfer
