// Routes.
#include "gateway/gateway.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "api/chat_request.h"
#include "api/error.h"
#include "api/models.h"
#include "base/log.h"
#include "gateway/chat_session.h"
#include "gateway/web_page.h"
#include "json/json.h"

namespace deepinfer {
namespace {

HttpResponse json_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse error_response(const ApiError& error) {
  return json_response(error.http_status, to_json(error));
}

// A path may then be quoted in a message.
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// The paths of DeepSeek's service come with and without their version.
std::string_view without_version(std::string_view path) {
  for (const std::string_view prefix : {"/v1/", "/beta/"}) {
    if (path.starts_with(prefix)) return path.substr(prefix.size() - 1);
  }
  return path;
}

// The page is its own three files and this server's API, whatever a model writes into it.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

class HttpGateway : public Gateway {
 public:
  HttpGateway(const GatewayOptions& options, GatewayParts parts, std::vector<TokenId> stop_ids)
      : service_{parts, options.served_model_name, options.system_fingerprint, std::move(stop_ids)},
        started_at_(
            std::chrono::duration_cast<std::chrono::seconds>(parts.clock.wall_now().time_since_epoch())
                .count()) {}
  ~HttpGateway() override {
    cancel_all();
    server_.reset();
  }

  Status listen(HttpServerOptions http) {
    http.error_response = [](int status, std::string message) {
      return error_response(http_error(status, std::move(message)));
    };
    auto server = HttpServer::start(
        std::move(http), [this](std::shared_ptr<HttpExchange> exchange) { route(std::move(exchange)); });
    if (!server.ok()) return server.error();
    server_ = std::move(*server);
    return {};
  }

  uint16_t port() const override { return server_->port(); }

  bool stop(std::chrono::milliseconds timeout) override {
    stopping_ = true;
    server_->stop_accepting();
    cancel_all();
    return server_->wait_until_closed(timeout);
  }

 private:
  using Handle = void (HttpGateway::*)(std::shared_ptr<HttpExchange>);
  struct Route {
    std::string_view method;  // GET also answers HEAD
    std::string_view path;    // without version; one that ends in '/' takes what follows as a name
    Handle handle;
  };
  static constexpr size_t kNumRoutes = 7;
  static const Route kRoutes[kNumRoutes];

  void route(std::shared_ptr<HttpExchange> exchange);
  void show_page(std::shared_ptr<HttpExchange> exchange);
  void show_health(std::shared_ptr<HttpExchange> exchange);
  void list_models(std::shared_ptr<HttpExchange> exchange);
  void show_model(std::shared_ptr<HttpExchange> exchange);
  void complete_chat(std::shared_ptr<HttpExchange> exchange);

  void cancel_all() {
    const std::lock_guard lock(mu_);
    for (const auto& weak : sessions_) {
      if (const auto session = weak.lock()) session->interrupt();
    }
  }
  void remember(const std::shared_ptr<ChatSession>& session) {
    const std::lock_guard lock(mu_);
    std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
    sessions_.push_back(session);
    if (stopping_) session->interrupt();  // it came while cancel_all ran
  }

  const ChatService service_;
  const int64_t started_at_;
  std::atomic<bool> stopping_{
      false};  // set before cancel_all takes mu_, read under mu_ after a session is listed
  std::mutex mu_;
  std::vector<std::weak_ptr<ChatSession>> sessions_;  // guarded by mu_; for stop()
  std::unique_ptr<HttpServer> server_;
};

const HttpGateway::Route HttpGateway::kRoutes[kNumRoutes] = {
    {"GET", "/", &HttpGateway::show_page},
    {"GET", "/page.css", &HttpGateway::show_page},
    {"GET", "/page.js", &HttpGateway::show_page},
    {"GET", "/health", &HttpGateway::show_health},
    {"GET", "/models", &HttpGateway::list_models},
    {"GET", "/models/", &HttpGateway::show_model},
    {"POST", "/chat/completions", &HttpGateway::complete_chat},
};

void HttpGateway::route(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (!is_ascii(request.path)) {
    return exchange->respond(error_response(
        http_error(400, "The request path holds bytes that are no ASCII; they must be percent-encoded.")));
  }
  const std::string_view path = without_version(request.path);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : kRoutes) {
    const bool takes_name = route.path.size() > 1 && route.path.ends_with('/');
    if (takes_name ? !path.starts_with(route.path) || path.size() == route.path.size() : path != route.path)
      continue;
    if (method == route.method) return (this->*route.handle)(std::move(exchange));
    HttpResponse refusal = error_response(http_error(
        405, fmt::format("{} does not take {}; it takes {}.", request.path, request.method, route.method)));
    refusal.headers = {{"Allow", route.method == "GET" ? "GET, HEAD" : std::string(route.method)}};
    return exchange->respond(std::move(refusal));
  }
  exchange->respond(error_response(
      http_error(404, fmt::format("There is nothing at {} {}.", request.method, request.path))));
}

void HttpGateway::show_page(std::shared_ptr<HttpExchange> exchange) {
  const auto& files = web_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const WebFile& candidate) {
    return candidate.path == without_version(exchange->request().path);
  });
  if (file == files.end()) return exchange->respond(error_response(http_error(404, "No such file.")));
  HttpResponse response;
  response.content_type = std::string(file->content_type);
  response.body = std::string(file->body);
  response.headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", kPagePolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  exchange->respond(std::move(response));
}

void HttpGateway::show_health(std::shared_ptr<HttpExchange> exchange) {
  const EngineStats stats = service_.parts.tokens.stats();
  std::string body;
  JsonWriter(body)
      .begin_object()
      .member("status", stopping_ ? "stopping" : "ok")
      .member("model", service_.served_model_name)
      .member("max_context_tokens", service_.parts.tokens.max_context_tokens())
      .member("running", stats.running)
      .member("waiting", stats.waiting)
      .end_object();
  exchange->respond(json_response(stopping_ ? 503 : 200, std::move(body)));
}

void HttpGateway::list_models(std::shared_ptr<HttpExchange> exchange) {
  exchange->respond(json_response(200, model_list_to_json(service_.served_model_name, started_at_)));
}

void HttpGateway::show_model(std::shared_ptr<HttpExchange> exchange) {
  std::string_view name = without_version(exchange->request().path);
  name.remove_prefix(std::string_view("/models/").size());
  if (name != service_.served_model_name) {
    return exchange->respond(error_response(
        to_api_error(Error(Code::kNotFound, "The model `{}` does not exist here; this server serves `{}`.",
                           name, service_.served_model_name))));
  }
  exchange->respond(json_response(200, model_to_json(name, started_at_)));
}

void HttpGateway::complete_chat(std::shared_ptr<HttpExchange> exchange) {
  if (stopping_) {
    return exchange->respond(
        error_response(to_api_error(Error(Code::kUnavailable, "The server is stopping."))));
  }
  const Result<ChatRequest> request =
      parse_chat_request(exchange->request().body, service_.served_model_name);
  if (!request.ok()) return exchange->respond(error_response(to_api_error(request.error())));
  if (const auto session = ChatSession::start(service_, std::move(exchange), *request)) remember(session);
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options, GatewayParts parts) {
  // A prompt of one user message names every control token that a prompt can't do without.
  Conversation probe;
  probe.messages.emplace_back();
  for (const bool thinking : {false, true}) {
    probe.thinking = thinking;
    if (const auto ids = encode(render(probe), parts.tokenizer); !ids.ok()) return ids.error();
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> stop_ids, stop_token_ids(parts.tokenizer));
  auto gateway = std::make_unique<HttpGateway>(options, parts, std::move(stop_ids));
  RETURN_IF_ERROR(gateway->listen(std::move(options.http)));
  return std::unique_ptr<Gateway>(std::move(gateway));
}

}  // namespace deepinfer
