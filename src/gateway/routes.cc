#include "gateway/routes.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "api/models.h"
#include "gateway/kv_admin.h"
#include "gateway/openapi.h"
#include "json/json.h"

namespace deepinfer {
namespace {

// ---- Routes that only tell something ----

void show_health(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  const EngineStats stats = core.tokens().stats();
  std::string body;
  JsonWriter(body)
      .begin_object()
      .member("status", core.stopping() ? "stopping" : "ok")
      .member("model", core.model())
      .member("max_context_tokens", core.tokens().max_context_tokens())
      .member("running", stats.running)
      .member("waiting", stats.waiting)
      .end_object();
  core.respond_json(exchange, std::move(body), core.stopping() ? 503 : 200);
}

void show_metrics(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = core.metrics_text();
  response.body += kv_up_metric_text(core.store() != nullptr);
  if (core.store() != nullptr) response.body += kv_metrics_text(core.store()->stats(), core.tier());
  exchange->respond(std::move(response));
}

void show_status(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = fmt::format("model                 {:>16}\nmax_context_tokens    {:>16}\n", core.model(),
                              core.tokens().max_context_tokens()) +
                  describe(core.tokens().stats());
  for (const auto& [name, value] : name_stats(core.grammar_stats())) {
    response.body += fmt::format("grammar_{:<14}{:>16}\n", name, value);
  }
  response.body += fmt::format("kv_store              {:>16}\n", core.store() != nullptr ? "on" : "off");
  if (core.store() != nullptr) response.body += kv_status_text(core.store()->stats(), core.tier());
  exchange->respond(std::move(response));
}

void list_models(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  core.respond_json(exchange, model_list_to_json(core.model(), core.started_at()));
}

void show_model(GatewayCore& core, const ExchangePtr& exchange, const std::string& name) {
  if (!is_served(name, core.model())) {
    return core.refuse(
        exchange, Error(Code::kNotFound, "The model `{}` does not exist here; this server serves `{}`.", name,
                        core.model()));
  }
  core.respond_json(exchange, model_to_json(name, core.started_at()));
}

void show_openapi(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  core.respond_json(exchange, std::string(openapi_text()));
}

void show_balance(GatewayCore& core, const ExchangePtr& exchange, const std::string&) {
  core.respond_json(exchange, balance_to_json());
}

// ---- Finding the route ----

// A path may then be quoted in a message.
bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// What the '*' of the pattern stands for, "" without one; nullopt when the path is another. Only a '*' at the
// end takes slashes too: model names may hold them.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos)
    return pattern == path ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after)) {
    return std::nullopt;
  }
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - after.size());
  if (name.find('/') != std::string_view::npos && pattern != "/models/*") return std::nullopt;
  return name;
}

struct Found {
  const Route* route = nullptr;
  std::string_view name;
  std::string allowed;  // methods of the path, when no route takes the request's
};

Found find_route(std::string_view method, std::string_view path) {
  Found found;
  for (const Route& route : routes()) {
    const auto name = match(route.pattern, path);
    if (!name) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) return {&route, *name, ""};
    if (!found.allowed.empty()) found.allowed += ", ";
    found.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return found;
}

// ---- What every request passes ----

std::string_view sent_key(const HttpRequest& request) {
  std::string_view sent = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool is_bearer = sent.size() >= kBearer.size() &&
                         std::equal(kBearer.begin(), kBearer.end(), sent.begin(), [](char a, char b) {
                           return a == (b >= 'A' && b <= 'Z' ? b | 0x20 : b);
                         });
  if (is_bearer) return sent.substr(kBearer.size());
  return request.header("x-api-key");
}

// The time it takes does not depend on where the keys differ.
bool has_key(const GatewayCore& core, const HttpRequest& request) {
  const std::string& key = core.options().api_key;
  const std::string_view sent = sent_key(request);
  return key.empty() ||
         (sent.size() == key.size() && CRYPTO_memcmp(sent.data(), key.data(), key.size()) == 0);
}

using Headers = std::vector<std::pair<std::string, std::string>>;

Headers origin_headers(const GatewayCore& core, const HttpRequest& request) {
  const std::string origin = readable_origin(core.web_policy(), request);
  if (origin.empty()) return {};
  Headers headers = {{"Access-Control-Allow-Origin", origin},
                     {"Access-Control-Expose-Headers", "x-request-id, request-id"}};
  if (origin != "*") headers.emplace_back("Vary", "Origin");
  return headers;
}

// What a browser asks before it sends a request of another origin.
void answer_preflight(const ExchangePtr& exchange) {
  const std::string_view asked = exchange->request().header("access-control-request-headers");
  exchange->add_header("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
  if (!asked.empty()) exchange->add_header("Access-Control-Allow-Headers", std::string(asked));
  exchange->add_header("Access-Control-Max-Age", "86400");
  HttpResponse response;
  response.status = 204;
  exchange->respond(std::move(response));
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return out;
}

std::string plain_ascii(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c >= 0x7f; }, '?');
  return out;
}

const std::vector<Route>& routes() {
  static const std::vector<Route> all = {
      {"GET", "/", show_page, true, true},
      {"GET", "/page.css", show_page, true, true},
      {"GET", "/page.js", show_page, true, true},
      {"GET", "/planner", show_planner, true, true},
      {"GET", "/health", show_health, true, true},
      {"GET", "/metrics", show_metrics, false, true},
      {"GET", "/status", show_status, false, true},
      {"GET", "/models", list_models, false, true},
      {"GET", "/models/*", show_model, false, true},
      {"GET", "/user/balance", show_balance, false, true},
      {"GET", "/openapi.json", show_openapi, true, true},
      {"POST", "/chat/completions", answer_chat},
      {"POST", "/completions", answer_completions},
      {"POST", "/responses", answer_responses},
      {"POST", "/responses/input_tokens", count_response_tokens},
      {"POST", "/responses/compact", refuse_compaction},
      {"GET", "/responses/*", show_response},
      {"DELETE", "/responses/*", delete_response},
      {"GET", "/responses/*/input_items", list_input_items},
      {"POST", "/responses/*/cancel", cancel_response},
      {"POST", "/messages", answer_messages},
      {"POST", "/messages/count_tokens", count_message_tokens},
      {"POST", "/tokenize", tokenize_text},
      {"POST", "/detokenize", detokenize_ids},
      {"POST", "/render", render_prompt},
  };
  return all;
}

HttpAdmission admit(GatewayCore& core, const HttpRequest& head) {
  const auto refuse = [&](const ApiError& error, Headers headers = {}) -> HttpAdmission {
    const std::string id = core.new_id("req_");
    HttpResponse response = core.refusal(head, error, id);
    response.headers = origin_headers(core, head);
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    response.headers.emplace_back("x-request-id", id);
    response.headers.emplace_back("request-id", id);
    return {std::move(response)};
  };
  if (!is_ascii(head.path)) {
    return refuse(http_error(400, "The request path contains non-ASCII bytes; percent-encode them."));
  }
  if (const auto refusal = check_web_policy(core.web_policy(), head)) {
    return refuse(http_error(refusal->status, plain_ascii(refusal->message)));
  }
  const Found found = find_route(head.method, plain_path(head.path));
  if (found.route == nullptr && found.allowed.empty()) {
    return refuse(http_error(404, fmt::format("Unknown path: {} {}.", head.method, head.path)));
  }
  if (head.method == "OPTIONS") return {.refusal = {}, .is_light = true};
  if (found.route == nullptr) {
    return refuse(
        http_error(405, fmt::format("{} does not support {}; use {}.", head.path, head.method, found.allowed)),
        {{"Allow", found.allowed}});
  }
  if (!found.route->open && !has_key(core, head)) {
    return refuse(http_error(401,
                             "The API key is missing or wrong. Send it as `Authorization: Bearer KEY` or "
                             "`x-api-key: KEY`."),
                  {{"WWW-Authenticate", "Bearer"}});
  }
  return {.refusal = {}, .is_light = found.route->light};
}

void route(GatewayCore& core, const ExchangePtr& exchange) {
  const HttpRequest& request = exchange->request();
  exchange->set_id(core.new_id("req_"));
  exchange->add_header("x-request-id", exchange->id());
  exchange->add_header("request-id", exchange->id());
  for (auto& [name, value] : origin_headers(core, request)) exchange->add_header(name, value);
  const Found found = find_route(request.method, plain_path(request.path));
  if (request.method == "OPTIONS") {
    exchange->add_header("Allow", found.allowed + ", OPTIONS");
    return answer_preflight(exchange);
  }
  const std::string name = percent_decoded(found.name);
  if (!is_utf8(name)) {
    return core.refuse(exchange,
                       http_error(400, "The request path is not valid UTF-8 after percent-decoding."));
  }
  found.route->handle(core, exchange, name);
}

}  // namespace deepinfer
