// One chat request from its tokens to the last byte of its answer. Private to the room.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "gateway/gateway.h"

namespace deepinfer {

// What sessions share. Outlives them.
struct ChatService {
  GatewayParts parts;
  std::string served_model_name;
  std::string system_fingerprint;
  std::vector<TokenId> stop_ids;
};

// Lives on the strand of its exchange, except for on_engine_event(). Kept alive by the engine until its last
// event.
class ChatSession : public std::enable_shared_from_this<ChatSession> {
 public:
  // Answers the request, or refuses it at once and returns nullptr.
  static std::shared_ptr<ChatSession> start(const ChatService& service,
                                            std::shared_ptr<HttpExchange> exchange,
                                            const ChatRequest& request);

  // The server wants to stop: the answer ends where it is. Callable from any thread.
  void interrupt();

  ChatSession(const ChatService& service, std::shared_ptr<HttpExchange> exchange, const ChatRequest& request,
              OutputStage stage);

 private:
  // Called on the engine thread: stores the event and wakes the strand, nothing else.
  void on_engine_event(const EngineEvent& event);
  Status submit(EngineRequest request);
  void open_answer();
  void drain();
  void take_token(TokenId id);
  void take_end(const EngineEvent& event);
  void finish(OutputEnd end, bool interrupted);
  void fail(const ApiError& error);
  void on_output(const OutputEvent& event);
  void on_client_gone();
  void send_pending();
  void leave();  // the answer is over: lets go of the connection

  const ChatService& service_;
  const bool stream_;
  const bool thinking_;
  OutputParser parser_;
  const OutputSink output_sink_;
  IncrementalDecoder decoder_;
  const AnswerIdentity identity_;
  ChatStreamWriter writer_;
  ChatCompletion completion_;
  Usage usage_;
  uint64_t engine_id_ = 0;
  std::string pending_;  // frames of this drain
  bool over_ = false;

  std::mutex mu_;
  std::shared_ptr<HttpExchange> exchange_;  // written under mu_ on the strand; null when the answer is over
  std::vector<EngineEvent> inbox_;          // guarded by mu_
  bool drain_posted_ = false;               // guarded by mu_
};

}  // namespace deepinfer
