#include "gateway/answer_session.h"

#include "api/error.h"
#include "base/log.h"
#include "sampling/token_rules.h"

namespace deepinfer {
namespace {

// Ids that the model does not have would be ignored without a word.
std::optional<ApiError> check_token_ids(const GenerationRequest& request, int64_t vocab_size) {
  const auto check = [vocab_size](std::string_view field, int64_t id) -> std::optional<ApiError> {
    if (id < vocab_size) return std::nullopt;
    return to_api_error(Error(Code::kInvalidArgument, "invalid request body: {}: found token id {}, expected 0 to {}",
                              field, id, vocab_size - 1));
  };
  std::optional<ApiError> error;
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (!error) error = check("logit_bias", id);
  }
  for (const TokenId id : request.stop_token_ids) {
    if (!error) error = check("stop_token_ids", id);
  }
  for (const TokenId id : request.allowed_token_ids.value_or(std::vector<TokenId>())) {
    if (!error) error = check("allowed_token_ids", id);
  }
  return error;
}

// Which ids may come when; over all of it stands the grammar.
TokenRules token_rules(const AnswerService& service, const GenerationRequest& request,
                       const std::vector<int32_t>& stop_ids) {
  TokenRules rules;
  rules.allowed = request.allowed_token_ids;
  if (request.ignores_end) rules.forbidden = service.stop_ids;
  rules.late = stop_ids;
  rules.late_from = request.min_tokens;
  return rules;
}

// Two clients share cached prompts only where both texts are equal.
std::string cache_salt(const GenerationRequest& request) {
  if (request.user_id.empty() && request.cache_salt.empty()) return {};
  return fmt::format("{} {}{}", request.user_id.size(), request.user_id, request.cache_salt);
}

EngineRequest engine_request(const AnswerService& service, const GenerationRequest& request,
                             PreparedPrompt prompt, int64_t max_tokens,
                             std::shared_ptr<const OutputConstraint> constraint, int priority) {
  EngineRequest out;
  out.priority = priority;
  out.prompt_ids = std::move(prompt.ids);
  out.cache_points = std::move(prompt.cache_points);
  out.max_tokens = max_tokens;
  out.stop_ids = service.stop_ids;
  out.stop_ids.insert(out.stop_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  out.sampling = request.sampling;
  out.sampling.seed = request.seed ? *request.seed : service.parts.random();
  out.n = request.n;
  out.top_logprobs = request.top_logprobs;
  out.cache_salt = cache_salt(request);
  out.tenant = service.tenant;
  out.constraint = restrict_tokens(std::move(constraint), token_rules(service, request, out.stop_ids),
                                   service.parts.tokens.vocab_size());
  out.context_mode = request.context_mode;
  out.speculation = request.speculation;
  return out;
}

}  // namespace

// One of the answers, with what it takes to read it.
struct AnswerSession::Answer {
  Answer(AnswerSession& session, int32_t index, OutputOptions options)
      : index(index),
        decoder(session.service_.parts.tokenizer),
        parser(std::move(options)),
        sink([this, &session](const OutputEvent& event) { session.on_output(*this, event); }) {}

  const int32_t index;
  uint64_t engine_id = 0;
  bool complete = false;  // the parser has all it reads; the engine's end, which has the counts, is to come
  bool over = false;
  IncrementalDecoder decoder;
  OutputParser parser;
  const OutputSink sink;
  TokenAttribution attribution;
  std::string reasoning;  // kept while a call may follow
};

AnswerSession::~AnswerSession() = default;

std::optional<ApiError> AnswerSession::begin() {
  std::optional<ApiError> refusal = prepare_and_submit();
  if (refusal) {
    cancel_running();
    leave(Outcome::kRefused);
    return refusal;
  }
  open_answer();
  return std::nullopt;
}

AnswerSession::AnswerSession(const AnswerService& service, std::shared_ptr<HttpExchange> exchange,
                             AnswerJob job)
    : service_(service),
      job_(std::move(job)),
      remembers_reasoning_(job_.request.raw_prompts.empty() && job_.request.conversation.thinking &&
                           job_.request.conversation.tools_active()),
      exchange_(std::move(exchange)) {
  times_.arrived = service_.parts.clock.now();
  usage_.context_mode = job_.request.context_mode.value_or(service_.context_mode);
  if (job_.request.raw_prompts.empty() && job_.request.conversation.thinking) usage_.reasoning_tokens = 0;
}

std::optional<ApiError> AnswerSession::prepare_and_submit() {
  if (auto error = check_token_ids(job_.request, service_.parts.tokens.vocab_size())) return error;
  // Megabytes of text are not encoded only to learn that they do not fit.
  const int64_t context = service_.parts.tokens.max_context_tokens();
  const int64_t fewest = fewest_tokens(job_.request, service_.longest_token_bytes);
  if (fewest > context && !job_.request.drops_old_turns) {
    return context_length_error(fmt::format(
        "This model's maximum context length is {} tokens. However, your messages have at least {} "
        "tokens. Please reduce the length of the messages.",
        context, fewest));
  }
  Result<std::vector<PreparedPrompt>> prompts =
      prepare_prompts(job_.request, service_.parts.tokenizer, service_.prompt_settings());
  if (!prompts.ok()) return to_api_error(prompts.error());
  return submit(std::move(*prompts));
}

std::optional<ApiError> AnswerSession::submit(std::vector<PreparedPrompt> prompts) {
  const int64_t context = service_.parts.tokens.max_context_tokens();
  std::vector<int64_t> limits;
  for (const PreparedPrompt& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const Result<int64_t> limit = resolve_max_tokens(job_.request, length, context, service_.long_answer);
    if (!limit.ok()) return context_length_error(limit.error().message());
    limits.push_back(*limit);
    usage_.prompt_tokens += length;
    OutputOptions output = prompt.output;
    output.json_output = output.json_output && !job_.is_shaped;
    output.verbatim_content = job_.is_shaped && job_.request.grammar.has_value();
    output.single_tool_call = !job_.request.parallel_tool_calls;
    output.salvage = output.salvage && job_.request.salvage;
    output.stop_sequences = job_.request.stop_sequences;
    for (int32_t i = 0; i < job_.request.n; ++i) {
      answers_.push_back(std::make_unique<Answer>(*this, static_cast<int32_t>(answers_.size()), output));
    }
  }
  const HttpRequest& asked = exchange_->request();
  const auto ticket = service_.fair_share->admit(asked.peer, asked.connection, std::ssize(answers_));
  if (!ticket.ok()) return to_api_error(ticket.error());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t first_answer = i * static_cast<size_t>(job_.request.n);
    const Result<uint64_t> id = service_.parts.tokens.submit(
        engine_request(service_, job_.request, std::move(prompts[i]), limits[i], job_.constraint,
                       (*ticket)->priority()),
        [self = shared_from_this(), first_answer, held = *ticket](const EngineEvent& event) {
          self->on_engine_event(first_answer, event);
        });
    if (!id.ok()) return to_api_error(id.error());
    for (int32_t k = 0; k < job_.request.n; ++k) {
      answers_[first_answer + static_cast<size_t>(k)]->engine_id = *id + static_cast<uint64_t>(k);
    }
  }
  job_.request.conversation = {};
  job_.request.raw_prompts.clear();
  return std::nullopt;
}

void AnswerSession::open_answer() {
  if (job_.detached) return job_.writer->start(usage_, pending_);
  exchange_->on_closed([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->cancel_running();
    self->job_.writer->cancel(self->usage_, self->pending_);  // nobody reads it, a stored response says so
    self->leave(Outcome::kClientGone);
  });
  job_.writer->start(usage_, pending_);
  if (job_.writer->is_stream()) begin_body();
  last_sent_ = service_.parts.clock.now();
  exchange_->on_half_closed([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->over_) self->say_alive();  // asks whether anybody is there
  });
  keep_alive();
}

// Status and headers; pending_ is the first piece.
void AnswerSession::begin_body() {
  HttpResponse head;
  if (job_.writer->is_stream()) head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};  // the second stops nginx from waiting
  head.body = std::exchange(pending_, {});
  body_begun_ = true;
  exchange_->begin_stream(std::move(head));
}

// Looks from time to time whether anything was said, and says that we live where not.
void AnswerSession::keep_alive() {
  exchange_->after(service_.keep_alive_interval, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->over_) return;
    const bool silent =
        self->service_.parts.clock.now() - self->last_sent_ >= self->service_.keep_alive_interval;
    if (silent) self->say_alive();
    self->keep_alive();
  });
}

void AnswerSession::say_alive() {
  pending_ += job_.writer->keep_alive();
  body_begun_ ? send_pending() : begin_body();
  last_sent_ = service_.parts.clock.now();
}

void AnswerSession::on_engine_event(size_t first_answer, const EngineEvent& event) {
  std::shared_ptr<HttpExchange> wake;
  {
    const std::lock_guard lock(mu_);
    if (!exchange_) return;
    inbox_.push_back({first_answer, event});
    if (!drain_posted_) wake = exchange_;
    drain_posted_ = true;
  }
  if (wake) wake->post([self = shared_from_this()] { self->drain(); });
}

// All that the engine has handed over leaves in one write, unless the peer is slow: then the rest waits as
// ids.
void AnswerSession::drain() {
  while (!over_) {
    if (next_ == batch_.size()) {
      batch_.clear();
      next_ = 0;
      const std::lock_guard lock(mu_);
      batch_.swap(inbox_);
      drain_posted_ = false;
      if (batch_.empty()) break;
    }
    while (next_ < batch_.size() && !over_ && !is_peer_slow()) take_event(batch_[next_++]);
    if (!is_peer_slow()) continue;
    send_pending();  // the socket may take it at once
    if (is_peer_slow()) return pause();
  }
  if (!over_) send_pending();
}

bool AnswerSession::is_peer_slow() const {
  return !over_ && body_begun_ && exchange_->unsent_bytes() + pending_.size() > service_.max_unsent_bytes;
}

void AnswerSession::pause() {
  if (paused_) return;
  paused_ = true;
  for (const auto& answer : answers_) {
    if (!answer->over) service_.parts.tokens.pause(answer->engine_id);
  }
  // Holds the session: the engine may have told its last event already.
  exchange_->on_drained([self = shared_from_this()] {
    if (self->over_) return;
    self->paused_ = false;
    for (const auto& answer : self->answers_) {
      if (!answer->over) self->service_.parts.tokens.resume(answer->engine_id);
    }
    self->drain();
  });
}

void AnswerSession::take_event(const Event& event) {
  Answer& answer = *answers_[event.first_answer + static_cast<size_t>(event.event.answer_index)];
  if (answer.over) return;
  if (event.event.kind == EngineEvent::Kind::kFinished) return take_end(answer, event.event);
  if (!answer.complete) take_token(answer, event.event);
}

void AnswerSession::take_token(Answer& answer, const EngineEvent& event) {
  service_.metrics->on_token(times_, service_.parts.clock.now());
  ++usage_.completion_tokens;
  const std::string text = answer.decoder.push(event.token_id);
  if (event.logprobs) {
    const auto scored = [this](const Logprob& entry) {
      return ScoredToken::Entry{std::string(service_.parts.tokenizer.token_bytes(entry.token_id)),
                                entry.logprob};
    };
    ScoredToken token;
    token.id = event.token_id;
    token.chosen = scored(event.logprobs->chosen);
    for (const Logprob& entry : event.logprobs->top) token.top.push_back(scored(entry));
    answer.attribution.push(std::move(token), text);
  }
  answer.parser.push(text, answer.sink);
  if (usage_.reasoning_tokens && answer.parser.in_reasoning()) ++*usage_.reasoning_tokens;
  if (!answer.parser.done()) return;
  // A stop sequence, or the end of a call block: what the model would add is not read.
  answer.complete = true;
  service_.parts.tokens.finish(answer.engine_id);
}

void AnswerSession::take_end(Answer& answer, const EngineEvent& event) {
  if (event.answer_index == 0) usage_.cached_tokens += event.cached_tokens;
  if (answer.complete) return finish(answer, OutputEnd::kStop, false);
  switch (event.finish_reason) {
    case FinishReason::kStop:
      return finish(answer, OutputEnd::kStop, false);
    case FinishReason::kLength:
      return finish(answer, OutputEnd::kLength, false);
    case FinishReason::kCancelled:
      return finish(answer, OutputEnd::kLength, true);
    case FinishReason::kError:
      log::error("a request failed: {}", event.error ? event.error->message() : "the engine failed without a reason");
      return fail(to_api_error(event.error.value_or(Error(Code::kInternal, "the engine failed without a reason"))));
  }
}

void AnswerSession::on_output(Answer& answer, const OutputEvent& event) {
  const bool is_text =
      event.kind == OutputEvent::Kind::kReasoning || event.kind == OutputEvent::Kind::kContent;
  if (remembers_reasoning_ && event.kind == OutputEvent::Kind::kReasoning) answer.reasoning += event.text;
  const bool scored = job_.request.top_logprobs && is_text;
  job_.writer->add(answer.index, event,
                   scored ? answer.attribution.take(event.text) : std::vector<ScoredToken>(), pending_);
}

void AnswerSession::finish(Answer& answer, OutputEnd end, bool interrupted) {
  if (interrupted && is_cancelled_) {
    cancel_running();
    job_.writer->cancel(usage_, pending_);
    complete(200);
    return leave(Outcome::kInterrupted);
  }
  if (interrupted && !job_.writer->tells_interruption()) {
    return fail(
        to_api_error(Error(Code::kUnavailable, "The server ended this answer before it was complete.")));
  }
  // A character that the token limit cut is left out.
  if (end == OutputEnd::kStop) answer.parser.push(answer.decoder.flush(), answer.sink);
  answer.parser.finish(end, answer.sink);
  answer.over = true;
  remember_reasoning(answer);
  AnswerEnding ending;
  ending.end = end == OutputEnd::kLength ? AnswerEnd::kLength : AnswerEnd::kStop;
  if (const auto stop = answer.parser.matched_stop_sequence()) {
    ending = {AnswerEnd::kStopSequence, *stop};
  } else if (ending.end == AnswerEnd::kStop && answer.parser.num_tool_calls() > 0) {
    ending.end = AnswerEnd::kToolCalls;
  }
  if (interrupted) ending.end = AnswerEnd::kInterrupted;
  bool last = true;
  for (const auto& other : answers_) last = last && other->over;
  job_.writer->end(answer.index, ending, last ? &usage_ : nullptr, pending_);
  if (!last) return;
  complete(200);
  leave(interrupted ? Outcome::kInterrupted : Outcome::kDone);
}

// Before the client knows the call.
void AnswerSession::remember_reasoning(const Answer& answer) {
  if (answer.reasoning.empty() || answer.parser.num_tool_calls() == 0) return;
  const uint64_t key = job_.call_id_key + static_cast<uint64_t>(answer.index);
  service_.reasoning_memory->keep(make_call_id(key, 0), answer.reasoning);
}

void AnswerSession::fail(const ApiError& error) {
  cancel_running();
  job_.writer->fail(error, pending_);
  complete(job_.writer->http_status(error));
  leave(Outcome::kFailed);
}

// The last bytes; the status counts only where none has been sent.
void AnswerSession::complete(int status) {
  if (job_.detached) return;
  if (body_begun_) {
    send_pending();
    return exchange_->end();
  }
  HttpResponse response;
  response.status = status;
  response.body = std::exchange(pending_, {});
  exchange_->respond(std::move(response));
}

void AnswerSession::cancel_running() {
  for (const auto& answer : answers_) {
    if (!answer->over && answer->engine_id != 0) service_.parts.tokens.cancel(answer->engine_id);
  }
}

void AnswerSession::send_pending() {
  if (over_ || pending_.empty() || !body_begun_) return;
  exchange_->write(std::exchange(pending_, {}));
  last_sent_ = service_.parts.clock.now();
}

bool AnswerSession::post(std::function<void(AnswerSession&)> task) {
  std::shared_ptr<HttpExchange> exchange;
  {
    const std::lock_guard lock(mu_);
    exchange = exchange_;
  }
  if (!exchange) return false;
  exchange->post([self = shared_from_this(), task = std::move(task)] { task(*self); });
  return true;
}

void AnswerSession::interrupt() {
  post([](AnswerSession& self) {
    if (!self.over_) self.cancel_running();
  });
}

void AnswerSession::cancel(std::function<void()> then) {
  const bool runs = post([then](AnswerSession& self) {
    if (self.over_) return then();
    self.is_cancelled_ = true;
    self.when_over_.push_back(then);
    self.cancel_running();
  });
  if (!runs) then();
}

void AnswerSession::leave(Outcome outcome) {
  if (over_) return;
  over_ = true;
  service_.metrics->on_end(job_.protocol, outcome, usage_, times_, service_.parts.clock.now());
  std::shared_ptr<HttpExchange> let_go;
  {
    const std::lock_guard lock(mu_);
    let_go.swap(exchange_);
    inbox_.clear();
  }
  if (job_.on_over) job_.on_over();
  for (const auto& then : std::exchange(when_over_, {})) then();
}

}  // namespace deepinfer
