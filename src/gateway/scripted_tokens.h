// For tests: an engine whose tokens the test says, one by one.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "gateway/token_source.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// Thread-safe. Answers have the ids 1, 2, ... in order of arrival. A cancelled one finishes at once.
class ScriptedTokens : public TokenSource {
 public:
  explicit ScriptedTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Result<uint64_t> submit(EngineRequest request, EventSink sink) override {
    const std::lock_guard lock(mu_);
    if (refusal) return *refusal;
    const uint64_t first_id = last_id_ + 1;
    for (int32_t i = 0; i < request.n; ++i) {
      requests_[++last_id_] = request;
      sinks_[last_id_] = sink;
      answer_index_[last_id_] = i;
    }
    changed_.notify_all();
    return first_id;
  }
  void pause(uint64_t id) override { note(paused_, id); }
  void resume(uint64_t id) override { note(resumed_, id); }
  void cancel(uint64_t id) override {
    {
      const std::lock_guard lock(mu_);
      cancelled_.insert(id);
      changed_.notify_all();
    }
    finish(id, FinishReason::kCancelled);
  }
  // Ends nothing when `holds_ends`: what happens between a complete text and the engine's end.
  void finish(uint64_t id) override {
    note(finished_, id);
    if (!holds_ends) finish(id, FinishReason::kStop);
  }
  EngineStats stats() const override { return {}; }
  int64_t max_context_tokens() const override { return context_tokens; }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }

  EngineRequest wait_for_request(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return last_id_ >= id; });
    return requests_[id];
  }
  void wait_for_cancel(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return cancelled_.count(id) > 0; });
  }
  void wait_for_finish(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return finished_.count(id) > 0; });
  }
  bool was_cancelled(uint64_t id) {
    const std::lock_guard lock(mu_);
    return cancelled_.count(id) > 0;
  }
  void wait_for_pause(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return paused_.count(id) > 0; });
  }
  void wait_for_resume(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return resumed_.count(id) > 0; });
  }

  // The tokens of `text`, control spellings included. As if the engine had drawn them.
  void emit(uint64_t id, std::string_view text) {
    const EventSink sink = sink_of(id);
    if (!sink) return;
    for (const TokenId token : tokenizer_.encode(text)) {
      EngineEvent event;
      event.answer_index = index_of(id);
      event.token_id = token;
      if (is_scored(id)) {
        TokenLogprobs logprobs;
        logprobs.chosen = {token, -0.5f};
        logprobs.top = {{token, -0.5f}};
        event.logprobs = std::make_shared<const TokenLogprobs>(std::move(logprobs));
      }
      sink(event);
    }
  }
  void finish(uint64_t id, FinishReason reason, std::optional<Error> error = {}) {
    EngineEvent event;
    event.kind = EngineEvent::Kind::kFinished;
    event.answer_index = index_of(id);
    event.finish_reason = reason;
    event.cached_tokens = cached_tokens;
    event.error = std::move(error);
    if (const EventSink sink = take_sink(id)) sink(event);
  }

  int64_t context_tokens = 4096;
  int64_t cached_tokens = 0;     // what every end reports
  bool holds_ends = false;       // finish() ends nothing by itself
  std::optional<Error> refusal;  // what submit answers

 private:
  void note(std::set<uint64_t>& ids, uint64_t id) {
    const std::lock_guard lock(mu_);
    ids.insert(id);
    changed_.notify_all();
  }
  int32_t index_of(uint64_t id) {
    const std::lock_guard lock(mu_);
    return answer_index_[id];
  }
  bool is_scored(uint64_t id) {
    const std::lock_guard lock(mu_);
    return requests_[id].top_logprobs.has_value();
  }
  EventSink sink_of(uint64_t id) {
    const std::lock_guard lock(mu_);
    const auto found = sinks_.find(id);
    return found == sinks_.end() ? EventSink() : found->second;
  }
  EventSink take_sink(uint64_t id) {
    const std::lock_guard lock(mu_);
    auto node = sinks_.extract(id);
    return node ? std::move(node.mapped()) : EventSink();
  }

  const Tokenizer& tokenizer_;  // borrowed from the test
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<uint64_t, EngineRequest> requests_;
  std::map<uint64_t, EventSink> sinks_;  // of requests that have not finished
  std::map<uint64_t, int32_t> answer_index_;
  std::set<uint64_t> cancelled_, finished_, paused_, resumed_;
  uint64_t last_id_ = 0;
};

}  // namespace deepinfer
