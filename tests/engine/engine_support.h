// What engine tests share: a model of a directory, prompts, and a receiver of events that waits for the end.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "../model_support.h"
#include "engine/engine.h"

namespace deepinfer {

// Arbitrary ids with repeats, so that n-grams and favoured successors occur as in text.
inline std::vector<int32_t> random_ids(uint32_t seed, int64_t count, int64_t vocab) {
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int32_t> pick(3, static_cast<int32_t>(vocab) - 16);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(i % 5 == 4 ? ids[i - 4] : pick(rng));
  return ids;
}

// The events of one request with any number of answers; wait() returns when the last one came.
class Receiver {
 public:
  explicit Receiver(int answers = 1) : tokens(static_cast<size_t>(answers)), last(tokens.size()), left_(answers) {}

  EventSink sink() {
    return [this](const EngineEvent& event) {
      const auto answer = static_cast<size_t>(event.answer_index);
      switch (event.kind) {
        case EngineEvent::Kind::kToken:
          tokens[answer].push_back(event.token_id);
          if (on_token) on_token();
          return;
        case EngineEvent::Kind::kPrompt:
          prompt_logprobs = event.prompt_logprobs;
          return;
        case EngineEvent::Kind::kFinished:
          last[answer] = event;
          if (--left_ == 0) done_.set_value();
          return;
      }
    };
  }
  void wait() { future_.wait(); }
  bool is_done() const { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  const EngineEvent& end() const { return last[0]; }

  std::vector<std::vector<int32_t>> tokens;
  std::vector<EngineEvent> last;
  std::shared_ptr<const std::vector<TokenLogprobs>> prompt_logprobs;
  std::function<void()> on_token;

 private:
  int left_;
  std::promise<void> done_;
  std::shared_future<void> future_ = done_.get_future().share();
};

// Copies of the logits rows that tokens were drawn from, by request and position.
class LogitsRecord {
 public:
  using Rows = std::map<int64_t, std::vector<float>>;
  LogitsProbe probe() {
    return [this](uint64_t request, int64_t position, std::span<const float> logits) {
      const std::lock_guard lock(mu_);
      auto& row = rows_[request][position];
      // Computed again after a pre-emption, a row must be what it was.
      if (!row.empty() && std::memcmp(row.data(), logits.data(), logits.size_bytes()) != 0) ++changed_;
      row.assign(logits.begin(), logits.end());
    };
  }
  Rows rows(uint64_t request) {
    const std::lock_guard lock(mu_);
    return rows_[request];
  }
  int64_t changed() {
    const std::lock_guard lock(mu_);
    return changed_;
  }

 private:
  std::mutex mu_;
  std::map<uint64_t, Rows> rows_;  // guarded by mu_
  int64_t changed_ = 0;            // guarded by mu_
};

}  // namespace deepinfer
