// Owns the model, the sequences and the thread that runs them. First version: requests run one after another
// in order of arrival; continuous batching replaces the loop behind this same face.
//
// Knows token ids only: no text, no JSON, no HTTP.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/status.h"
#include "sampling/penalties.h"
#include "sampling/sampling.h"

namespace deepinfer {

class Model;

enum class FinishReason { kStop, kLength, kCancelled, kError };

// What one request asks for. Plain data.
struct EngineRequest {
  std::vector<int32_t> prompt_ids;  // at least one; ids below the model's vocab_size
  int64_t max_tokens = 0;           // at least one new token
  std::vector<int32_t> stop_ids;    // ends the answer; the stop token itself is counted, not delivered
  SamplingParams sampling;
  // Answers to this one prompt. Answer i has the request id `first id + i` and draws with sampling.seed + i,
  // so answer 0 is the one that n = 1 gives.
  int32_t n = 1;
  // Present: every kToken carries its log probability and those of so many likeliest tokens (0 to 20), from
  // the raw logits: before temperature, penalties, biases and filters.
  std::optional<int32_t> top_logprobs = {};
  std::string cache_salt = {};  // requests share cached prompts only when their salts are equal
};

// What the engine reports for each answer, in this order: any number of kToken, then exactly one kFinished.
struct EngineEvent {
  enum class Kind { kToken, kFinished };
  Kind kind = Kind::kToken;
  int32_t answer_index = 0;                          // 0 .. n - 1
  int32_t token_id = 0;                              // kToken
  FinishReason finish_reason = FinishReason::kStop;  // kFinished
  std::optional<Error> error = {};                   // kFinished with kError
  int64_t prompt_tokens = 0;                         // kFinished
  int64_t cached_tokens = 0;                         // kFinished; of the prompt, found in the KV cache
  int64_t completion_tokens = 0;                     // kFinished
  std::shared_ptr<const TokenLogprobs> logprobs = {};  // kToken, when asked for
};

// Called on the engine thread for each event of one request; must be quick and must not call back into the
// engine.
using EventSink = std::function<void(const EngineEvent&)>;

struct EngineOptions {
  int64_t max_queued_requests = 1024;  // submit answers kResourceExhausted beyond that
};

struct EngineStats {
  int64_t running = 0;
  int64_t waiting = 0;
};

// Thread-safe. The destructor cancels what is left (each request gets its kFinished) and joins the thread.
class Engine {
 public:
  using RequestId = uint64_t;

  // Takes the model; borrows the counters, which outlive the engine. Counts requests, prompt_tokens,
  // completion_tokens, cancelled and errors.
  Engine(std::unique_ptr<Model> model, EngineOptions options, Counters& counters);
  ~Engine();

  // Checks the request and queues it; the id of its first answer. kInvalidArgument: empty prompt, id out of
  // range, no room for one new token in the context, max_tokens or n below 1, bad sampling parameters.
  // kResourceExhausted: the queue is full.
  Result<RequestId> submit(EngineRequest request, EventSink sink);
  // Ends one answer soon with FinishReason::kCancelled; unknown or finished ids are ignored.
  void cancel(RequestId id);

  EngineStats stats() const;
  int64_t max_context_tokens() const;  // prompt and answer together
  int64_t vocab_size() const;

 private:
  struct Job;
  void loop(std::stop_token stop);
  void run(Job& job);

  std::unique_ptr<Model> model_;
  const EngineOptions options_;
  Counters& counters_;
  Sampler sampler_;  // engine thread only
  mutable std::mutex mu_;
  std::condition_variable_any work_;
  std::deque<std::shared_ptr<Job>> queue_;  // guarded by mu_
  std::shared_ptr<Job> running_;            // guarded by mu_
  RequestId next_id_ = 1;                   // guarded by mu_
  std::jthread thread_;                     // last member: joined before the rest goes
};

}  // namespace deepinfer
