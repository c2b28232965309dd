// One request from its tokens to the last byte of its answer, in any protocol. Private to the room.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/generation.h"
#include "api/token_attribution.h"
#include "gateway/fair_share.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "gateway/prompt.h"
#include "gateway/reasoning_memory.h"

namespace deepinfer {

// What sessions share. Outlives them.
struct AnswerService {
  GatewayParts parts;
  std::string served_model_name;
  std::string system_fingerprint;
  ContextMode context_mode = ContextMode::kStable;
  std::string tenant;  // whose KV blocks they are; a name made from the API key
  std::vector<TokenId> stop_ids;
  std::chrono::milliseconds keep_alive_interval;
  size_t max_unsent_bytes;
  ServiceMetrics* metrics;
  FairShare* fair_share;
  PromptFormat prompt_format;
  LongAnswer long_answer;
  ReasoningMemory* reasoning_memory;
  size_t longest_token_bytes;

  PromptSettings prompt_settings() const { return {prompt_format, parts.tokens.max_context_tokens()}; }
};

// What a route hands over.
struct AnswerJob {
  Protocol protocol = Protocol::kChat;
  GenerationRequest request;
  std::unique_ptr<AnswerWriter> writer;
  uint64_t call_id_key = 0;  // of the writer's identity
  // What the answers keep to; null: nothing. `is_shaped`: their text is the grammar's, the parser need not
  // look for JSON.
  std::shared_ptr<const OutputConstraint> constraint = {};
  bool is_shaped = false;
  bool detached = false;  // the exchange is answered by the route; the writer's bytes go nowhere
  // The answer is over, however it came to its end. On the exchange's strand, once. May be empty.
  std::function<void()> on_over = {};
};

// Lives on the strand of its exchange, except for on_engine_event(). Kept alive by the engine until its last
// event, and after it by the exchange while a slow reader has not taken all.
class AnswerSession : public std::enable_shared_from_this<AnswerSession> {
 public:
  AnswerSession(const AnswerService& service, std::shared_ptr<HttpExchange> exchange, AnswerJob job);
  ~AnswerSession();
  // Asks the engine and begins to answer. Set: refused, nothing has been sent, and the session is over.
  std::optional<ApiError> begin();

  // Ends the answer where it is, because the server stops. Callable from any thread.
  void interrupt();
  // The same, because its client asks so by another request. `then` runs when the answer is over, in whatever
  // way, and stored; on any thread.
  void cancel(std::function<void()> then);

 private:
  struct Answer;
  // An event of the engine and the prompt that it belongs to.
  struct Event {
    size_t first_answer = 0;
    EngineEvent event;
  };

  std::optional<ApiError> prepare_and_submit();
  std::optional<ApiError> submit(std::vector<PreparedPrompt> prompts);
  // Called on the engine thread: stores the event and wakes the strand, nothing else.
  void on_engine_event(size_t first_answer, const EngineEvent& event);
  void open_answer();
  void begin_body();
  void drain();
  bool is_peer_slow() const;
  void pause();
  void take_event(const Event& event);
  void take_token(Answer& answer, const EngineEvent& event);
  void take_end(Answer& answer, const EngineEvent& event);
  void on_output(Answer& answer, const OutputEvent& event);
  void remember_reasoning(const Answer& answer);
  void finish(Answer& answer, OutputEnd end, bool interrupted);
  void fail(const ApiError& error);
  void complete(int status);
  void cancel_running();
  // On the strand, unless the answer is over: then nothing runs and false comes back.
  bool post(std::function<void(AnswerSession&)> task);
  void send_pending();
  void keep_alive();
  void say_alive();
  void leave(Outcome outcome);  // the answer is over: lets go of the connection

  const AnswerService& service_;
  AnswerJob job_;  // once submitted, without what the client said
  std::vector<std::unique_ptr<Answer>> answers_;
  const bool remembers_reasoning_;
  Usage usage_;
  std::string pending_;  // what this drain has to say
  bool body_begun_ = false;
  bool over_ = false;
  bool paused_ = false;
  bool is_cancelled_ = false;  // by its client
  std::vector<std::function<void()>> when_over_;
  Clock::time_point last_sent_;
  RequestTimes times_;

  std::vector<Event> batch_;  // being drained, from next_
  size_t next_ = 0;

  std::mutex mu_;
  std::shared_ptr<HttpExchange> exchange_;  // written under mu_ on the strand; null when the answer is over
  std::vector<Event> inbox_;                // guarded by mu_
  bool drain_posted_ = false;               // guarded by mu_
};

}  // namespace deepinfer
