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

// Thread-safe. Requests have the ids 1, 2, ... in order of arrival. A cancelled one finishes at once.
class ScriptedTokens : public TokenSource {
 public:
  explicit ScriptedTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Result<uint64_t> submit(EngineRequest request, EventSink sink) override {
    const std::lock_guard lock(mu_);
    if (refusal) return *refusal;
    requests_[++last_id_] = std::move(request);
    sinks_[last_id_] = std::move(sink);
    changed_.notify_all();
    return last_id_;
  }
  void cancel(uint64_t id) override {
    {
      const std::lock_guard lock(mu_);
      cancelled_.insert(id);
      changed_.notify_all();
    }
    finish(id, FinishReason::kCancelled);
  }
  EngineStats stats() const override { return {}; }
  int64_t max_context_tokens() const override { return context_tokens; }

  EngineRequest wait_for_request(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return last_id_ >= id; });
    return requests_[id];
  }
  void wait_for_cancel(uint64_t id) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return cancelled_.count(id) > 0; });
  }

  // The tokens of `text`, control spellings included. As if the engine had drawn them.
  void emit(uint64_t id, std::string_view text) {
    const EventSink sink = sink_of(id);
    if (!sink) return;
    for (const TokenId token : tokenizer_.encode(text)) {
      EngineEvent event;
      event.token_id = token;
      sink(event);
    }
  }
  void finish(uint64_t id, FinishReason reason, std::optional<Error> error = {}) {
    EngineEvent event;
    event.kind = EngineEvent::Kind::kFinished;
    event.finish_reason = reason;
    event.error = std::move(error);
    if (const EventSink sink = take_sink(id)) sink(event);
  }

  int64_t context_tokens = 4096;
  std::optional<Error> refusal;  // what submit answers

 private:
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
  std::set<uint64_t> cancelled_;
  uint64_t last_id_ = 0;
};

}  // namespace deepinfer
