#include "gateway/chat_session.h"

#include "api/error.h"
#include "base/log.h"

namespace deepinfer {
namespace {

HttpResponse error_answer(const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = to_json(error);
  return response;
}

AnswerIdentity make_identity(const ChatService& service) {
  const auto& random = service.parts.random;
  const auto now = service.parts.clock.wall_now().time_since_epoch();
  AnswerIdentity identity;
  identity.id = fmt::format("chatcmpl-{:016x}{:016x}", random(), random());
  identity.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  identity.model = service.served_model_name;
  identity.system_fingerprint = service.system_fingerprint;
  identity.call_id_key = random();
  return identity;
}

OutputOptions output_options(const ChatRequest& request, OutputStage stage) {
  OutputOptions options;
  options.start = stage;
  options.parse_tool_calls = request.conversation.tools_active();
  options.single_tool_call = !request.parallel_tool_calls;
  options.stop_sequences = request.stop_sequences;
  return options;
}

EngineRequest engine_request(const ChatService& service, const ChatRequest& request,
                             std::vector<TokenId> prompt_ids, int64_t max_tokens) {
  EngineRequest out;
  out.prompt_ids = std::move(prompt_ids);
  out.max_tokens = max_tokens;
  out.stop_ids = service.stop_ids;
  out.sampling = request.sampling;
  out.sampling.seed = request.seed ? *request.seed : service.parts.random();
  return out;
}

}  // namespace

std::shared_ptr<ChatSession> ChatSession::start(const ChatService& service,
                                                std::shared_ptr<HttpExchange> exchange,
                                                const ChatRequest& request) {
  const auto refuse = [&exchange](const ApiError& error) -> std::shared_ptr<ChatSession> {
    exchange->respond(error_answer(error));
    return nullptr;
  };
  const RenderedPrompt prompt = render(request.conversation);
  Result<std::vector<TokenId>> prompt_ids = encode(prompt, service.parts.tokenizer);
  // The control tokens were checked when the gateway started.
  if (!prompt_ids.ok())
    return refuse(to_api_error(Error(Code::kInternal, "{}", prompt_ids.error().message())));
  const auto prompt_tokens = static_cast<int64_t>(prompt_ids->size());
  const Result<int64_t> max_tokens =
      resolve_max_tokens(request, prompt_tokens, service.parts.tokens.max_context_tokens());
  if (!max_tokens.ok()) return refuse(context_length_error(max_tokens.error().message()));

  auto session = std::make_shared<ChatSession>(service, exchange, request, prompt.output_stage);
  session->usage_.prompt_tokens = prompt_tokens;
  const Status submitted =
      session->submit(engine_request(service, request, std::move(*prompt_ids), *max_tokens));
  if (!submitted.ok()) {
    session->leave();
    return refuse(to_api_error(submitted.error()));
  }
  session->open_answer();
  return session;
}

ChatSession::ChatSession(const ChatService& service, std::shared_ptr<HttpExchange> exchange,
                         const ChatRequest& request, OutputStage stage)
    : service_(service),
      stream_(request.stream),
      thinking_(request.conversation.thinking),
      parser_(output_options(request, stage)),
      output_sink_([this](const OutputEvent& event) { on_output(event); }),
      decoder_(service.parts.tokenizer),
      identity_(make_identity(service)),
      writer_(identity_, thinking_, request.include_usage),
      completion_(identity_, thinking_),
      exchange_(std::move(exchange)) {
  if (thinking_) usage_.reasoning_tokens = 0;
}

Status ChatSession::submit(EngineRequest request) {
  const Result<uint64_t> id = service_.parts.tokens.submit(
      std::move(request),
      [self = shared_from_this()](const EngineEvent& event) { self->on_engine_event(event); });
  if (!id.ok()) return id.error();
  engine_id_ = *id;
  return {};
}

void ChatSession::open_answer() {
  exchange_->on_closed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_client_gone();
  });
  if (!stream_) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}};
  writer_.start(head.body);
  exchange_->begin_stream(std::move(head));
}

void ChatSession::on_engine_event(const EngineEvent& event) {
  std::shared_ptr<HttpExchange> wake;
  {
    const std::lock_guard lock(mu_);
    if (!exchange_) return;
    inbox_.push_back(event);
    if (!drain_posted_) wake = exchange_;
    drain_posted_ = true;
  }
  if (wake) wake->post([self = shared_from_this()] { self->drain(); });
}

// All that the engine has handed over leaves in one write.
void ChatSession::drain() {
  std::vector<EngineEvent> events;
  {
    const std::lock_guard lock(mu_);
    events.swap(inbox_);
    drain_posted_ = false;
  }
  for (const EngineEvent& event : events) {
    if (over_) return;
    event.kind == EngineEvent::Kind::kToken ? take_token(event.token_id) : take_end(event);
  }
  send_pending();
}

void ChatSession::take_token(TokenId id) {
  ++usage_.completion_tokens;
  parser_.push(decoder_.push(id), output_sink_);
  if (parser_.in_reasoning()) ++*usage_.reasoning_tokens;
  if (!parser_.done()) return;
  // A stop sequence, or the end of a call block: what the model would add is not read.
  service_.parts.tokens.cancel(engine_id_);
  finish(OutputEnd::kStop, false);
}

void ChatSession::take_end(const EngineEvent& event) {
  switch (event.finish_reason) {
    case FinishReason::kStop:
      return finish(OutputEnd::kStop, false);
    case FinishReason::kLength:
      return finish(OutputEnd::kLength, false);
    case FinishReason::kCancelled:
      return finish(OutputEnd::kLength, true);
    case FinishReason::kError:
      log::error("a request failed: {}", event.error ? event.error->message() : "the engine gave no reason");
      return fail(to_api_error(event.error.value_or(Error(Code::kInternal, "the engine gave no reason"))));
  }
}

void ChatSession::finish(OutputEnd end, bool interrupted) {
  parser_.push(decoder_.flush(), output_sink_);
  parser_.finish(end, output_sink_);
  AnswerEnd reason = end == OutputEnd::kLength ? AnswerEnd::kLength : AnswerEnd::kStop;
  if (interrupted) reason = AnswerEnd::kInterrupted;
  if (reason == AnswerEnd::kStop && !parser_.matched_stop_sequence() && parser_.num_tool_calls() > 0) {
    reason = AnswerEnd::kToolCalls;
  }
  if (stream_) {
    writer_.finish(reason, usage_, pending_);
    send_pending();
    exchange_->end();
  } else {
    HttpResponse response;
    response.body = completion_.finish(reason, usage_);
    exchange_->respond(std::move(response));
  }
  leave();
}

void ChatSession::fail(const ApiError& error) {
  if (stream_) {
    append_stream_error(error, pending_);
    send_pending();
    exchange_->end();
  } else {
    exchange_->respond(error_answer(error));
  }
  leave();
}

void ChatSession::on_output(const OutputEvent& event) {
  stream_ ? writer_.add(event, pending_) : completion_.add(event);
}

void ChatSession::send_pending() {
  if (!over_ && !pending_.empty()) exchange_->write(std::exchange(pending_, {}));
}

void ChatSession::on_client_gone() {
  service_.parts.tokens.cancel(engine_id_);
  leave();
}

void ChatSession::interrupt() {
  std::shared_ptr<HttpExchange> exchange;
  {
    const std::lock_guard lock(mu_);
    exchange = exchange_;
  }
  if (!exchange) return;
  exchange->post([self = shared_from_this()] {
    if (!self->over_) self->service_.parts.tokens.cancel(self->engine_id_);
  });
}

void ChatSession::leave() {
  over_ = true;
  std::shared_ptr<HttpExchange> let_go;
  const std::lock_guard lock(mu_);
  let_go.swap(exchange_);
}

}  // namespace deepinfer
