#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "model/model.h"

namespace deepinfer {
namespace {

struct Outcome {
  FinishReason reason = FinishReason::kStop;
  int64_t completion_tokens = 0;
};

// Prefill in chunks, then one token at a time; looks for a cancel between forward calls.
Result<Outcome> generate(Model& model, Sampler& sampler, const EngineRequest& request, int32_t answer_index,
                         const std::atomic<bool>& cancelled, const EventSink& sink) {
  ASSIGN_OR_RETURN(const auto sequence, model.make_sequence());
  const std::span<const int32_t> prompt(request.prompt_ids);
  const auto prompt_tokens = std::ssize(prompt);
  const int64_t limit = std::min(request.max_tokens, model.options().max_context_tokens - prompt_tokens);

  const int64_t chunk = model.options().max_batch_tokens;

  std::span<const float> logits;
  std::vector<float> adjusted;
  TokenCounts counts;
  for (int64_t position = 0; position < prompt_tokens; position += chunk) {
    if (cancelled) return Outcome{FinishReason::kCancelled, 0};
    const auto ids = prompt.subspan(position, std::min(chunk, prompt_tokens - position));
    const bool is_last = position + chunk >= prompt_tokens;
    const SequenceSpan span{sequence.get(), position, ids, is_last ? LogitsRows::kLast : LogitsRows::kNone};
    ASSIGN_OR_RETURN(logits, model.forward({&span, 1}));
  }
  for (int64_t produced = 0;;) {
    if (cancelled) return Outcome{FinishReason::kCancelled, produced};
    const int64_t position = prompt_tokens + produced;
    std::span<const float> drawn_from = logits;
    if (request.sampling.adjusts_logits()) {
      adjusted.assign(logits.begin(), logits.end());
      adjust_logits(request.sampling, counts, adjusted);
      drawn_from = adjusted;
    }
    ASSIGN_OR_RETURN(const int32_t token, sampler.sample(drawn_from, request.sampling, position));
    ++produced;
    ++counts[token];
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), token) != request.stop_ids.end()) {
      return Outcome{FinishReason::kStop, produced};
    }
    EngineEvent event{.kind = EngineEvent::Kind::kToken, .answer_index = answer_index, .token_id = token};
    if (request.top_logprobs) {
      event.logprobs =
          std::make_shared<const TokenLogprobs>(token_logprobs(logits, token, *request.top_logprobs));
    }
    sink(event);
    if (produced == limit) return Outcome{FinishReason::kLength, produced};
    const SequenceSpan span{sequence.get(), position, {&token, 1}, LogitsRows::kLast};
    ASSIGN_OR_RETURN(logits, model.forward({&span, 1}));
  }
}

}  // namespace

// One request from submit to its last event. Shared by the queue and the running slot, so that cancel finds
// it in both.
struct Engine::Job {
  RequestId id = 0;
  int32_t answer_index = 0;
  EngineRequest request;  // with its own seed
  EventSink sink;
  std::atomic<bool> cancelled{
      false};  // set by cancel(), polled by the engine thread; no other data hangs on it
};

Engine::Engine(std::unique_ptr<Model> model, EngineOptions options, Counters& counters)
    : model_(std::move(model)),
      options_(options),
      counters_(counters),
      sampler_(model_->config().vocab_size),
      thread_([this](std::stop_token stop) { loop(std::move(stop)); }) {}

Engine::~Engine() {
  thread_.request_stop();
  {
    const std::lock_guard lock(mu_);
    if (running_) running_->cancelled = true;
    for (const auto& job : queue_) job->cancelled = true;
  }
  work_.notify_all();
  thread_.join();
}

int64_t Engine::max_context_tokens() const {
  return model_->options().max_context_tokens;
}
int64_t Engine::vocab_size() const {
  return model_->config().vocab_size;
}

Result<Engine::RequestId> Engine::submit(EngineRequest request, EventSink sink) {
  const auto prompt = std::ssize(request.prompt_ids);
  if (prompt == 0) return Error(Code::kInvalidArgument, "prompt_ids: found none, expected at least one");
  if (prompt >= max_context_tokens()) {
    return Error(Code::kInvalidArgument,
                 "prompt_ids: found {} tokens, expected at most {}: the context holds {}", prompt,
                 max_context_tokens() - 1, max_context_tokens());
  }
  for (const int32_t id : request.prompt_ids) {
    if (id < 0 || id >= vocab_size()) {
      return Error(Code::kInvalidArgument, "prompt_ids: found {}, expected 0 to {}", id, vocab_size() - 1);
    }
  }
  if (request.max_tokens < 1) {
    return Error(Code::kInvalidArgument, "max_tokens: found {}, expected at least 1", request.max_tokens);
  }
  RETURN_IF_ERROR(check_sampling_params(request.sampling));

  if (request.n < 1) return Error(Code::kInvalidArgument, "n: found {}, expected at least 1", request.n);

  const std::lock_guard lock(mu_);
  if (std::ssize(queue_) + request.n > options_.max_queued_requests) {
    return Error(Code::kResourceExhausted, "{} requests are waiting already", queue_.size());
  }
  const RequestId first_id = next_id_;
  for (int32_t i = 0; i < request.n; ++i) {
    auto job = std::make_shared<Job>();
    job->id = next_id_++;
    job->answer_index = i;
    job->request = request;
    job->request.sampling.seed += static_cast<uint64_t>(i);
    job->sink = sink;
    queue_.push_back(std::move(job));
  }
  counters_.get("requests").add();
  work_.notify_one();
  return first_id;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mu_);
  if (running_ && running_->id == id) running_->cancelled = true;
  for (const auto& job : queue_) {
    if (job->id == id) job->cancelled = true;
  }
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mu_);
  return {.running = running_ ? 1 : 0, .waiting = std::ssize(queue_)};
}

// Every queued job passes through run(), also after a stop, so that each request gets its last event.
void Engine::loop(std::stop_token stop) {
  while (true) {
    {
      std::unique_lock lock(mu_);
      running_.reset();
      work_.wait(lock, stop, [this] { return !queue_.empty(); });
      if (queue_.empty()) return;
      running_ = std::move(queue_.front());
      queue_.pop_front();
    }
    run(*running_);  // only this thread replaces running_
  }
}

void Engine::run(Job& job) {
  EngineEvent finished{.kind = EngineEvent::Kind::kFinished,
                       .answer_index = job.answer_index,
                       .prompt_tokens = std::ssize(job.request.prompt_ids)};
  const auto outcome = [&]() -> Result<Outcome> {
    try {
      return generate(*model_, sampler_, job.request, job.answer_index, job.cancelled, job.sink);
    } catch (const std::exception& exception) {  // memory, mostly: this request ends, the others live
      return Error(Code::kInternal, "request {}: {}", job.id, exception.what());
    }
  }();
  if (outcome.ok()) {
    finished.finish_reason = outcome->reason;
    finished.completion_tokens = outcome->completion_tokens;
    counters_.get("prompt_tokens").add(finished.prompt_tokens);
    counters_.get("completion_tokens").add(finished.completion_tokens);
    if (outcome->reason == FinishReason::kCancelled) counters_.get("cancelled").add();
  } else {
    finished.finish_reason = FinishReason::kError;
    finished.error = outcome.error();
    counters_.get("errors").add();
  }
  job.sink(finished);
}

}  // namespace deepinfer
