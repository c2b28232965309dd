// Starting and stopping. What happens in between is in routes.cc.
#include "gateway/gateway.h"

#include <algorithm>

#include "base/log.h"
#include "gateway/core.h"
#include "gateway/routes.h"

namespace deepinfer {
namespace {

constexpr std::chrono::seconds kCutTime{5};

class HttpGateway : public Gateway {
 public:
  HttpGateway(GatewayOptions options, GatewayParts parts, std::vector<TokenId> stop_ids,
              std::unique_ptr<ResponseStore> responses, std::string secret)
      : core_(std::move(options), std::move(parts), std::move(stop_ids), std::move(responses),
              std::move(secret)) {}
  ~HttpGateway() override {
    core_.stop();
    server_.reset();
  }

  Status listen() {
    HttpServerOptions http = core_.options().http;
    http.error_response = [](int status, std::string message) {
      HttpResponse response;
      response.status = status;
      response.body = to_json(http_error(status, std::move(message)));
      return response;
    };
    http.admit = [this](const HttpRequest& head) { return admit(core_, head); };
    http.on_answer = [this](int status) { core_.count_answer(status); };
    http.max_body_bytes = core_.options().max_body_bytes;
    http.max_memory_bytes = std::max(http.max_memory_bytes, 2 * http.max_body_bytes);
    log::info("requests: bodies up to {} MiB, bodies and whole answers together up to {} MiB",
              http.max_body_bytes >> 20, http.max_memory_bytes >> 20);
    auto server =
        HttpServer::start(std::move(http), [this](ExchangePtr exchange) { route(core_, exchange); });
    if (!server.ok()) return server.error();
    server_ = std::move(*server);
    core_.watch([this] { return server_->stats(); });
    return {};
  }

  uint16_t port() const override { return server_->port(); }

  bool stop(std::chrono::milliseconds timeout) override {
    server_->stop_accepting();
    core_.stop();
    if (server_->wait_until_closed(timeout)) return true;
    server_->close_all();
    server_->wait_until_closed(kCutTime);
    return false;
  }

 private:
  GatewayCore core_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

size_t body_limit(int64_t context_tokens) {
  constexpr int64_t kBytesPerToken = 128, kLeast = int64_t{8} << 20, kMost = int64_t{64} << 20;
  return static_cast<size_t>(std::clamp(std::min(context_tokens, kMost) * kBytesPerToken, kLeast, kMost));
}

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options, GatewayParts parts) {
  // A prompt of one user message names every control token that a prompt can't do without.
  Conversation probe;
  probe.messages.emplace_back();
  for (const bool thinking : {false, true}) {
    probe.thinking = thinking;
    if (const auto ids = encode(render(probe), parts.tokenizer); !ids.ok()) return ids.error();
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> stop_ids, stop_token_ids(parts.tokenizer));
  ASSIGN_OR_RETURN(std::unique_ptr<ResponseStore> responses,
                   ResponseStore::open({.path = options.response_store_path,
                                        .time_to_live = options.response_time_to_live,
                                        .max_bytes_per_owner = options.max_response_bytes_per_key},
                                       parts.clock));
  settle_unfinished_responses(*responses);
  ASSIGN_OR_RETURN(std::string secret, responses->secret());
  if (options.max_body_bytes == 0) options.max_body_bytes = body_limit(parts.tokens.max_context_tokens());
  auto gateway = std::make_unique<HttpGateway>(std::move(options), std::move(parts), std::move(stop_ids),
                                               std::move(responses), std::move(secret));
  RETURN_IF_ERROR(gateway->listen());
  return std::unique_ptr<Gateway>(std::move(gateway));
}

}  // namespace deepinfer
