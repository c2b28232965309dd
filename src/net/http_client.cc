#include "net/http_client.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "net/client_socket.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using SteadyClock = std::chrono::steady_clock;
using Body = http::string_body;

struct Connection {
  ClientSocket socket;
  beast::flat_buffer buffer;
  void close() {
    socket.close();
    buffer.clear();
  }
};

HttpAnswer to_answer(http::response<Body> response) {
  HttpAnswer answer{.outcome = HttpAnswer::Outcome::kAnswered, .status = static_cast<int>(response.result_int())};
  for (const auto& field : response) answer.headers.emplace_back(field.name_string(), field.value());
  answer.body = std::move(response.body());
  return answer;
}

class BeastClient final : public HttpClient {
 public:
  BeastClient(const Endpoint& endpoint, size_t num_connections)
      : endpoint_(endpoint), connections_(num_connections) {}

  void run(size_t count, const Limits& limits, const std::function<HttpCall(size_t)>& make,
           const std::function<void(size_t, HttpAnswer)>& take) override {
    size_t next = 0;
    const bool known = find_addresses();
    io_.restart();
    for (Connection& connection : connections_) {
      if (!known) break;
      asio::co_spawn(
          io_,
          [&]() -> asio::awaitable<void> {
            while (next < count && SteadyClock::now() < limits.deadline) {
              const size_t i = next++;
              HttpCall call = make(i);
              HttpAnswer answer = co_await exchange(connection, std::move(call), limits);
              take(i, std::move(answer));
            }
          },
          asio::detached);
      if (count <= 1) break;
    }
    io_.run();  // every operation ends at the deadline
    const auto outcome = known ? HttpAnswer::Outcome::kTimeout : HttpAnswer::Outcome::kFailed;
    for (; next < count; ++next) take(next, {.outcome = outcome});
  }

 private:
  bool find_addresses() {
    if (!addresses_.empty()) return true;
    boost::system::error_code failure;
    addresses_ = asio::ip::tcp::resolver(io_).resolve(endpoint_.host, endpoint_.port, failure);
    return !failure;
  }

  http::request<Body> to_request(HttpCall call) const {
    http::request<Body> request;
    request.version(11);
    request.method_string(call.method);
    request.target(call.target);
    request.set(http::field::host, http_authority(endpoint_));
    for (const auto& [name, value] : call.headers) request.set(name, value);
    request.body() = std::move(call.body);
    request.prepare_payload();
    return request;
  }

  asio::awaitable<HttpAnswer> exchange(Connection& connection, HttpCall call, const Limits& limits) {
    const http::request<Body> request = to_request(std::move(call));
    while (true) {
      const bool was_open = connection.socket.open();
      http::response_parser<Body> parser;
      parser.body_limit(limits.body_bytes);
      if (request.method() == http::verb::head) parser.skip(true);
      boost::system::error_code failure;
      try {
        if (!was_open) co_await connection.socket.connect(io_, tls_, endpoint_, addresses_, limits.deadline);
        connection.socket.expires_at(limits.deadline);
        co_await connection.socket.with([&](auto& stream) -> asio::awaitable<void> {
          co_await http::async_write(stream, request, asio::use_awaitable);
          co_await http::async_read(stream, connection.buffer, parser, asio::use_awaitable);
        });
      } catch (const boost::system::system_error& error) {
        failure = error.code();
      }
      if (!failure) {
        http::response<Body> response = parser.release();
        if (!response.keep_alive()) connection.close();
        co_return to_answer(std::move(response));
      }
      connection.close();
      if (failure == http::error::body_limit) co_return HttpAnswer{.outcome = HttpAnswer::Outcome::kTooLarge};
      if (failure == beast::error::timeout) co_return HttpAnswer{.outcome = HttpAnswer::Outcome::kTimeout};
      if (was_open && !parser.got_some()) continue;
      addresses_ = {};  // the server may have moved
      co_return HttpAnswer{.outcome = HttpAnswer::Outcome::kFailed};
    }
  }

  const Endpoint endpoint_;
  asio::io_context io_{1};
  asio::ssl::context tls_ = client_tls();
  ClientSocket::Addresses addresses_;
  std::vector<Connection> connections_;
};

}  // namespace

std::string_view HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (beast::iequals(key, name)) return value;
  return {};
}

std::unique_ptr<HttpClient> HttpClient::make(const Endpoint& endpoint, size_t num_connections) {
  return std::make_unique<BeastClient>(endpoint, num_connections);
}

Result<Endpoint> parse_http_endpoint(const std::string& url) {
  const Error wrong(Code::kInvalidArgument, "found '{}', expected http://HOST[:PORT] or https://HOST[:PORT]", url);
  Endpoint endpoint;
  std::string rest = url;
  if (rest.starts_with("https://")) {
    endpoint.tls = true;
    rest = rest.substr(8);
  } else if (rest.starts_with("http://")) {
    rest = rest.substr(7);
  } else {
    return wrong;
  }
  while (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  endpoint.host = rest.substr(0, colon);
  endpoint.port = colon == std::string::npos ? (endpoint.tls ? "443" : "80") : rest.substr(colon + 1);
  if (endpoint.host.empty() || endpoint.port.empty() || rest.find('/') != std::string::npos) return wrong;
  return endpoint;
}

std::string http_authority(const Endpoint& endpoint) {
  const bool usual = endpoint.port == (endpoint.tls ? "443" : "80");
  return usual ? endpoint.host : endpoint.host + ":" + endpoint.port;
}

}  // namespace deepinfer
