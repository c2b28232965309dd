// An S3 bucket as a tier: one object a block under PREFIX ab/<key in hexadecimal>, requests signed by Signature Version 4,
// several connections that stay open. When a value expires is one of its headers: life cycles of buckets count days.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <ctime>
#include <mutex>

#include "crypto/crypto.h"
#include "store/tiers/s3_signature.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using SteadyClock = std::chrono::steady_clock;
using Body = http::string_body;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

constexpr const char* kExpires = "x-amz-meta-deepinfer-expires";  // seconds since 1970

std::string amz_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return text;
}

struct Endpoint {
  bool tls = false;
  std::string host, port;
  std::string host_header() const {
    return port == (tls ? "443" : "80") ? host : fmt::format("{}:{}", host, port);
  }
};

Result<Endpoint> parse_endpoint(const std::string& url) {
  Endpoint endpoint;
  std::string rest = url;
  if (rest.starts_with("https://")) {
    endpoint.tls = true;
    rest = rest.substr(8);
  } else if (rest.starts_with("http://")) {
    rest = rest.substr(7);
  } else {
    return Error(Code::kInvalidArgument, "S3 endpoint: found '{}', expected http://HOST[:PORT] or https://…", url);
  }
  while (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  endpoint.host = rest.substr(0, colon);
  endpoint.port = colon == std::string::npos ? (endpoint.tls ? "443" : "80") : rest.substr(colon + 1);
  if (endpoint.host.empty() || endpoint.port.empty() || rest.find('/') != std::string::npos) {
    return Error(Code::kInvalidArgument, "S3 endpoint: found '{}', expected http://HOST[:PORT] or https://…", url);
  }
  return endpoint;
}

class S3Tier {
 public:
  S3Tier(S3Options options, Endpoint endpoint)
      : options_(std::move(options)),
        endpoint_(std::move(endpoint)),
        credentials_{options_.access_key, options_.secret_key, options_.region} {
    tls_.set_default_verify_paths();
    tls_.set_verify_mode(asio::ssl::verify_peer);
  }

  // Once: a name server that hangs must not hang a call.
  Status resolve() {
    boost::system::error_code failure;
    addresses_ = Tcp::resolver(io_).resolve(endpoint_.host, endpoint_.port, failure);
    if (failure) return Error(Code::kUnavailable, "KV tier: S3 at {}: {}", options_.endpoint, failure.message());
    return {};
  }

  using Request = http::request<Body>;
  using Response = http::response<Body>;

  // make(i): the unsigned request of key i. judge(i, response): what its answer means.
  template <typename Make, typename Judge>
  void run(size_t count, int64_t timeout_ms, kv_tier_status* status, uint64_t body_limit, Make make, Judge judge) {
    const std::lock_guard lock(mu_);
    const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
    std::fill_n(status, count, KV_TIER_TIMEOUT);
    size_t next = 0;
    if (connections_.empty()) connections_.resize(options_.connections);
    io_.restart();
    for (size_t c = 0; c < std::min(count, connections_.size()); ++c) {
      asio::co_spawn(
          io_,
          [&, c]() -> asio::awaitable<void> {
            while (next < count && SteadyClock::now() < deadline) {
              const size_t i = next++;
              status[i] = co_await exchange(connections_[c], make(i), deadline, body_limit,
                                            [&](const Response& response) { return judge(i, response); });
            }
          },
          asio::detached);
    }
    io_.run();  // every operation ends at the deadline
  }

  Request request(http::verb method, const kv_tier_key& key, std::string body = {}, uint32_t ttl_s = 0) const {
    const std::string name = hex(std::as_bytes(std::span(key.bytes)));
    const std::string path = fmt::format("/{}/{}{}/{}", options_.bucket, options_.prefix, name.substr(0, 2), name);
    Request request(method, path, 11);
    request.set(http::field::host, endpoint_.host_header());
    if (ttl_s > 0) request.set(kExpires, std::to_string(std::time(nullptr) + ttl_s));
    request.body() = std::move(body);
    request.prepare_payload();
    sign(request);
    return request;
  }

 private:
  struct Connection {
    std::unique_ptr<beast::tcp_stream> plain;
    std::unique_ptr<TlsStream> tls;
    beast::flat_buffer buffer;
    bool open() const { return plain != nullptr || tls != nullptr; }
    void close() {
      plain.reset();
      tls.reset();
      buffer.clear();
    }
  };

  void sign(Request& request) const {
    S3Request described{.method = std::string(request.method_string()),
                        .path = std::string(request.target()),
                        .query = {},
                        .headers = {},
                        .payload_sha256 = sha256_hex(as_bytes(request.body()))};
    const std::string time = amz_time();
    request.set("x-amz-content-sha256", described.payload_sha256);
    request.set("x-amz-date", time);
    described.headers = {{"host", endpoint_.host_header()},
                         {"x-amz-content-sha256", described.payload_sha256},
                         {"x-amz-date", time}};
    if (request.find(kExpires) != request.end()) {
      described.headers.emplace_back(kExpires, std::string(request[kExpires]));
    }
    request.set(http::field::authorization, s3_authorization(credentials_, described, time));
  }

  asio::awaitable<void> connect(Connection& connection, SteadyClock::time_point deadline) {
    if (endpoint_.tls) {
      connection.tls = std::make_unique<TlsStream>(io_, tls_);
      SSL_set_tlsext_host_name(connection.tls->native_handle(), endpoint_.host.c_str());
      connection.tls->set_verify_callback(asio::ssl::host_name_verification(endpoint_.host));
      beast::get_lowest_layer(*connection.tls).expires_at(deadline);
      co_await beast::get_lowest_layer(*connection.tls).async_connect(addresses_, asio::use_awaitable);
      co_await connection.tls->async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
    } else {
      connection.plain = std::make_unique<beast::tcp_stream>(io_);
      connection.plain->expires_at(deadline);
      co_await connection.plain->async_connect(addresses_, asio::use_awaitable);
    }
  }

  template <typename Stream>
  asio::awaitable<void> ask(Stream& stream, Connection& connection, const Request& request,
                            http::response_parser<Body>& parser, SteadyClock::time_point deadline) {
    beast::get_lowest_layer(stream).expires_at(deadline);
    co_await http::async_write(stream, request, asio::use_awaitable);
    co_await http::async_read(stream, connection.buffer, parser, asio::use_awaitable);
  }

  // One attempt; a second one only where a connection that had been idle turns out to be closed.
  template <typename Judge>
  asio::awaitable<kv_tier_status> exchange(Connection& connection, Request request, SteadyClock::time_point deadline,
                                           uint64_t body_limit, Judge judge) {
    while (true) {
      const bool was_open = connection.open();
      http::response_parser<Body> parser;
      parser.body_limit(body_limit);
      if (request.method() == http::verb::head) parser.skip(true);
      boost::system::error_code failure;
      try {
        if (!was_open) co_await connect(connection, deadline);
        if (connection.tls != nullptr) {
          co_await ask(*connection.tls, connection, request, parser, deadline);
        } else {
          co_await ask(*connection.plain, connection, request, parser, deadline);
        }
      } catch (const boost::system::system_error& error) {
        failure = error.code();
      }
      if (!failure) {
        const Response response = parser.release();
        if (!response.keep_alive()) connection.close();
        co_return judge(response);
      }
      connection.close();
      if (failure == http::error::body_limit) co_return KV_TIER_TOO_SMALL;
      if (failure == beast::error::timeout) co_return KV_TIER_TIMEOUT;
      if (!was_open || parser.got_some()) co_return KV_TIER_FAILED;
    }
  }

  const S3Options options_;
  const Endpoint endpoint_;
  const S3Credentials credentials_;
  std::mutex mu_;
  asio::io_context io_{1};
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  Tcp::resolver::results_type addresses_;
  std::vector<Connection> connections_;  // guarded by mu_
};

S3Tier& tier_of(void* self) { return *static_cast<S3Tier*>(self); }

kv_tier_status plain_status(const http::response<Body>& response) {
  const unsigned code = response.result_int();
  return code / 100 == 2 ? KV_TIER_OK : code == 404 ? KV_TIER_ABSENT : KV_TIER_FAILED;
}

// Expired values are absent, whatever the bucket still holds.
kv_tier_status live_status(const http::response<Body>& response) {
  const kv_tier_status status = plain_status(response);
  const auto expires = response.find(kExpires);
  if (status != KV_TIER_OK || expires == response.end()) return status;
  return std::strtoll(std::string(expires->value()).c_str(), nullptr, 10) < std::time(nullptr) ? KV_TIER_ABSENT
                                                                                              : KV_TIER_OK;
}

}  // namespace

Result<kv_tier> make_s3_tier(const S3Options& options) {
  if (options.bucket.empty() || options.connections == 0) {
    return Error(Code::kInvalidArgument, "S3: no bucket, or no connections");
  }
  ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(options.endpoint));
  auto s3 = std::make_unique<S3Tier>(options, std::move(endpoint));
  RETURN_IF_ERROR(s3->resolve());
  constexpr uint64_t kErrorText = 64 << 10;
  kv_tier tier{};
  tier.abi = DEEPINFER_KV_TIER_ABI;
  tier.name = "s3";
  tier.self = s3.release();
  tier.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    one.run(
        count, timeout_ms, status, kErrorText, [&](size_t i) { return one.request(http::verb::head, keys[i]); },
        [](size_t, const S3Tier::Response& response) { return live_status(response); });
  };
  tier.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t timeout_ms,
                kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    uint64_t largest = kErrorText;
    for (size_t i = 0; i < count; ++i) largest = std::max<uint64_t>(largest, buffers[i].size);
    one.run(
        count, timeout_ms, status, largest, [&](size_t i) { return one.request(http::verb::get, keys[i]); },
        [&](size_t i, const S3Tier::Response& response) {
          const kv_tier_status live = live_status(response);
          if (live != KV_TIER_OK) return live;
          if (response.body().size() > buffers[i].size) return KV_TIER_TOO_SMALL;
          std::memcpy(buffers[i].data, response.body().data(), response.body().size());
          buffers[i].size = response.body().size();
          return KV_TIER_OK;
        });
  };
  tier.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t ttl_s,
                int64_t timeout_ms, kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    one.run(
        count, timeout_ms, status, kErrorText,
        [&](size_t i) {
          return one.request(http::verb::put, keys[i],
                             std::string(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size), ttl_s);
        },
        [](size_t, const S3Tier::Response& response) { return plain_status(response); });
  };
  tier.remove = [](void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms, kv_tier_status* status) {
    S3Tier& one = tier_of(self);
    one.run(
        count, timeout_ms, status, kErrorText, [&](size_t i) { return one.request(http::verb::delete_, keys[i]); },
        [](size_t, const S3Tier::Response& response) { return plain_status(response); });
  };
  tier.close = [](void* self) { delete static_cast<S3Tier*>(self); };
  return tier;
}

}  // namespace deepinfer::store
