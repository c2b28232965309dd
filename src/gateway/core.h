// What every route works with: the service, ways to answer, and the answers that run. Private to the room.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "gateway/answer_session.h"
#include "gateway/fair_share.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "gateway/response_store.h"
#include "gateway/sealed_text.h"
#include "gateway/web_policy.h"
#include "grammar/grammar.h"

namespace deepinfer {

using ExchangePtr = std::shared_ptr<HttpExchange>;

// Thread-safe.
class GatewayCore {
 public:
  GatewayCore(GatewayOptions options, GatewayParts parts, std::vector<TokenId> stop_ids,
              std::unique_ptr<ResponseStore> responses, std::string secret);

  const GatewayOptions& options() const { return options_; }
  const AnswerService& service() const { return service_; }
  const std::string& model() const { return service_.served_model_name; }
  store::Store* store() const { return service_.parts.store; }
  store::GuardedTier* tier() const { return service_.parts.tier; }
  TokenSource& tokens() const { return service_.parts.tokens; }
  const Tokenizer& tokenizer() const { return service_.parts.tokenizer; }
  const WebPolicy& web_policy() const { return web_policy_; }
  void count_answer(int status) { metrics_.on_answer(status); }
  // The text of GET /metrics, without that of the KV store.
  std::string metrics_text() const;
  void watch(std::function<HttpServerStats()> http_stats) { http_stats_ = std::move(http_stats); }
  GrammarStats grammar_stats() const { return grammars_->stats(); }
  int64_t started_at() const { return started_at_; }  // seconds since 1970
  int64_t now_s() const;

  // ---- Answers to a request ----
  void respond_json(const ExchangePtr& exchange, std::string body, int status = 200) const;
  // In the error shape of the path's protocol; counted where the path is one that answers.
  HttpResponse refusal(const HttpRequest& request, const ApiError& error, const std::string& id);
  void refuse(const ExchangePtr& exchange, const ApiError& error) {
    exchange->respond(refusal(exchange->request(), error, exchange->id()));
  }
  void refuse(const ExchangePtr& exchange, const Error& error) { refuse(exchange, to_api_error(error)); }

  // An id of a prefix and 32 hexadecimal digits.
  std::string new_id(std::string_view prefix) const;
  AnswerIdentity new_identity(std::string_view id_prefix, const GenerationRequest& request) const;
  // Compiles what the request's answers have to keep to, without holding up this thread, and goes on with
  // `then` on the strand of the exchange; or refuses the request. At once when there is nothing to compile.
  // A request that ends meanwhile is forgotten.
  void constrain(const ExchangePtr& exchange, const GenerationRequest& request,
                 std::function<void(std::shared_ptr<const OutputConstraint>, bool is_shaped)> then);
  // Runs the request and answers it, or refuses it. The session, or null. One that has a name can be
  // cancelled by it.
  std::shared_ptr<AnswerSession> run(const ExchangePtr& exchange, AnswerJob job,
                                     const std::string& name = {});

  // ---- Responses ----
  ResponseStore& responses() { return *responses_; }
  const TextSealer& sealer() const { return sealer_; }
  // Whose responses these are: all clients hold the same key. A digest of it.
  const std::string& owner() const { return owner_; }
  // Whether what was asked of the store is done; a failure is logged when it is the first in a row.
  bool kept(const Status& done);
  // Ends the answer of that name where it is; `then` runs when it is over, on any thread. False: none runs.
  bool cancel(const std::string& name, std::function<void()> then);

  // ---- Stopping ----
  bool stopping() const { return stopping_; }
  // Ends running answers where they are and refuses new ones. Afterwards no grammar is being compiled for
  // anyone.
  void stop();

 private:
  void forget_running(const std::string& name);

  const GatewayOptions options_;
  const WebPolicy web_policy_;
  ServiceMetrics metrics_;
  std::function<HttpServerStats()> http_stats_;  // set once, before a request can ask
  FairShare fair_share_;
  ReasoningMemory reasoning_memory_;
  const AnswerService service_;
  const std::unique_ptr<GrammarCompiler> grammars_;
  const int64_t started_at_;
  std::atomic<bool> stopping_{
      false};  // set before stop() takes mu_, read under mu_ after a session is listed
  const std::unique_ptr<ResponseStore> responses_;
  const TextSealer sealer_;
  const std::string owner_;
  std::atomic<bool> store_fails_{false};
  std::mutex mu_;
  std::map<std::string, std::weak_ptr<AnswerSession>>
      named_;  // guarded by mu_; those that run and have a name
  std::vector<std::weak_ptr<AnswerSession>>
      sessions_;          // guarded by mu_; those that are gone are swept now and then
  size_t sweep_at_ = 64;  // guarded by mu_
};

// The path without the prefixes of other services: /v1, /beta, /anthropic.
std::string_view plain_path(std::string_view path);
bool is_messages_path(std::string_view path);

}  // namespace deepinfer
