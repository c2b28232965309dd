#include "gateway/prompt.h"

namespace deepinfer {
namespace {

// What the client wrote is plain text; ids are taken as they are (recipe.md 3.5, 10).
Result<PreparedPrompt> prepare_raw(const RawPrompt& prompt, const Tokenizer& tokenizer) {
  PreparedPrompt out;
  out.output.start = OutputStage::kContentContinuation;
  out.output.salvage = false;
  if (!prompt.ids) {
    Result<std::vector<TokenId>> ids = encode(render_completion(prompt.text, prompt.suffix), tokenizer);
    if (!ids.ok()) {
      return Error(Code::kInvalidArgument, "{}: {}", prompt.suffix ? "suffix" : "prompt",
                   ids.error().message());
    }
    out.ids = std::move(*ids);
    return out;
  }
  for (const TokenId id : *prompt.ids) {
    if (id >= 0 && id < tokenizer.vocab_size()) continue;
    return Error(Code::kInvalidArgument, "prompt: found token id {}, expected 0 to {}", id,
                 tokenizer.vocab_size() - 1);
  }
  out.ids = *prompt.ids;
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
  out.push_back({std::move(*ids), output_options(request.conversation, prompt)});
  return out;
}

}  // namespace deepinfer
