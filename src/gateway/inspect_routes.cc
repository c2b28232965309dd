// Routes that show what a request becomes.
#include "api/completions_request.h"
#include "api/inspection.h"
#include "gateway/routes.h"

namespace deepinfer {

void tokenize_text(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const Result<TokenizeRequest> request = parse_tokenize_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  std::vector<TokenId> ids;
  if (request->chat) {
    const auto prompts = prepare_prompts(*request->chat, core.tokenizer(), core.service().prompt_settings());
    if (!prompts.ok()) return core.refuse(exchange, prompts.error());
    ids = prompts->front().ids;
  } else if (request->begin_of_sentence) {
    GenerationRequest raw;
    raw.raw_prompts.push_back({request->text, {}, {}});
    const auto prompts = prepare_prompts(raw, core.tokenizer(), core.service().prompt_settings());
    if (!prompts.ok()) return core.refuse(exchange, prompts.error());
    ids = prompts->front().ids;
  } else {
    ids = core.tokenizer().encode(request->text, Tokenizer::AddedTokens::kAsText);
  }
  core.respond_json(exchange, tokens_to_json(ids, core.tokens().max_context_tokens()));
}

void detokenize_ids(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const Result<std::vector<TokenId>> ids = parse_detokenize_request(exchange->take_body());
  if (!ids.ok()) return core.refuse(exchange, ids.error());
  for (const TokenId id : *ids) {
    if (id < core.tokenizer().vocab_size()) continue;
    return core.refuse(exchange, Error(Code::kInvalidArgument, "tokens: found {}, expected 0 to {}", id,
                                       core.tokenizer().vocab_size() - 1));
  }
  core.respond_json(exchange, text_to_json(core.tokenizer().decode(*ids)));
}

// The body of a Chat Completions request.
void render_prompt(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const Result<ChatRequest> request = parse_chat_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  const PromptFormat& format = core.options().prompt_format;
  if (const Status servable = check_servable(request->conversation, format); !servable.ok()) {
    return core.refuse(exchange, servable.error());
  }
  const RenderedPrompt prompt = render(request->conversation, format);
  const Result<std::vector<TokenId>> ids = encode(prompt, core.tokenizer());
  if (!ids.ok()) return core.refuse(exchange, Error(Code::kInternal, "{}", ids.error().message()));
  core.respond_json(exchange, prompt_to_json(prompt, *ids));
}

}  // namespace deepinfer
