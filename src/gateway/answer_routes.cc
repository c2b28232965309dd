// Routes that generate: a body becomes a job.
#include "api/chat_request.h"
#include "api/chat_response.h"
#include "api/completions_request.h"
#include "api/completions_response.h"
#include "api/messages_request.h"
#include "api/messages_response.h"
#include "gateway/routes.h"

namespace deepinfer {
namespace {

// Callbacks are copied, jobs are not.
void answer(GatewayCore& core, const ExchangePtr& exchange, AnswerJob given) {
  const auto job = std::make_shared<AnswerJob>(std::move(given));
  core.constrain(exchange, job->request, [&core, exchange, job](auto constraint, bool is_shaped) {
    job->constraint = std::move(constraint);
    job->is_shaped = is_shaped;
    core.run(exchange, std::move(*job));
  });
}

}  // namespace

void answer_chat(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  Result<ChatRequest> request = parse_chat_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  const AnswerIdentity identity = core.new_identity("chatcmpl-", *request);
  auto writer = make_chat_writer(identity, *request);
  answer(core, exchange, {Protocol::kChat, std::move(*request), std::move(writer), identity.call_id_key});
}

void answer_completions(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  Result<CompletionsRequest> request = parse_completions_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  for (RawPrompt& prompt : request->raw_prompts) {
    if (prompt.ids && request->echo) prompt.text = core.tokenizer().decode(*prompt.ids);
  }
  auto writer = make_completions_writer(core.new_identity("cmpl-", *request), *request);
  answer(core, exchange, {Protocol::kCompletions, std::move(*request), std::move(writer)});
}

void answer_messages(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  Result<MessagesRequest> request = parse_messages_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  const AnswerIdentity identity = core.new_identity("msg_", *request);
  auto writer = make_messages_writer(identity, *request);
  answer(core, exchange, {Protocol::kMessages, std::move(*request), std::move(writer), identity.call_id_key});
}

void count_message_tokens(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const Result<MessagesRequest> request = parse_messages_request(exchange->take_body(), core.model());
  if (!request.ok()) return core.refuse(exchange, request.error());
  const auto prompts = prepare_prompts(*request, core.tokenizer(), core.service().prompt_settings());
  if (!prompts.ok()) return core.refuse(exchange, prompts.error());
  core.respond_json(exchange, token_count_to_json(std::ssize(prompts->front().ids)));
}

}  // namespace deepinfer
