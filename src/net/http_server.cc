// Listening, accepting and stopping. What a connection does is in connection.cc.
#include "net/http_server.h"

#include <fmt/core.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <system_error>
#include <thread>
#include <type_traits>

#include "base/log.h"
#include "net/connection.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptRetry{100};
constexpr std::chrono::seconds kCloseTime{5};

Error tls_error(const std::string& path, const error_code& ec) {
  return Error(Code::kIo, "TLS: can't use '{}': {}", path, ec.message());
}

class AsioHttpServer : public HttpServer {
 public:
  AsioHttpServer(HttpServerOptions options, Handler handler)
      : state_(std::move(options), std::move(handler)),
        control_(asio::make_strand(io_)),
        tcp_(control_),
        unix_(control_) {}

  // Closing tells every handler, so that nothing outside holds a connection when the sockets' context goes.
  ~AsioHttpServer() override {
    stop_accepting();
    close_all();
    if (!wait_until_closed(kCloseTime)) log::error("connections are still held while the server ends");
    io_.stop();
    threads_.clear();  // joins
    if (unix_bound_) ::unlink(state_.options.unix_socket_path.c_str());
  }

  Status listen() {
    const HttpServerOptions& options = state_.options;
    if (options.host.empty() && options.unix_socket_path.empty()) {
      return Error(Code::kInvalidArgument, "found neither a host nor a Unix socket, expected one to listen on");
    }
    RETURN_IF_ERROR(load_tls());
    if (!options.host.empty()) RETURN_IF_ERROR(listen_tcp());
    if (!options.unix_socket_path.empty()) RETURN_IF_ERROR(listen_unix());
    return start_threads();
  }

  // What listen() would meet, without listening: the port is free for others at once.
  Status try_addresses() {
    const HttpServerOptions& options = state_.options;
    RETURN_IF_ERROR(load_tls());
    if (!options.host.empty()) {
      RETURN_IF_ERROR(bind_tcp());
      error_code ignored;
      tcp_.acceptor.close(ignored);
    }
    error_code ec = asio::error::connection_refused;
    if (!options.unix_socket_path.empty()) {
      asio::local::stream_protocol::socket(io_).connect(options.unix_socket_path, ec);
    }
    if (!ec)
      return Error(Code::kIo, "cannot listen on Unix socket '{}': a server answers there", options.unix_socket_path);
    return {};
  }

  uint16_t port() const override { return port_; }

  void stop_accepting() override {
    state_.draining = true;
    asio::post(control_, [this] {
      error_code ignored;
      tcp_.acceptor.close(ignored);
      unix_.acceptor.close(ignored);
      tcp_.retry.cancel();
      unix_.retry.cancel();
    });
    for (const auto& connection : connections()) connection->close_if_idle();
  }

  bool wait_until_closed(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(state_.mu);
    return state_.all_closed.wait_for(lock, timeout, [this] { return state_.connections.empty(); });
  }

  void close_all() override {
    for (const auto& connection : connections()) connection->close_now();
  }

  HttpServerStats stats() const override {
    const std::lock_guard lock(state_.mu);
    return {state_.connections.size(), state_.budget.used(), state_.budget.limit()};
  }

 private:
  // One more than may be at work: it moves bytes while the others think.
  Status start_threads() {
    try {
      for (int i = 0; i <= state_.options.num_threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error& error) {
      return Error(Code::kResourceExhausted, "can't start {} threads for HTTP: {}", state_.options.num_threads + 1,
                   error.what());
    }
    return {};
  }

  // What no connection has caught ends the one connection that it came from.
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& exception) {
        log::error("http: a connection ended in an exception: {}", exception.what());
      }
    }
  }

  // Held outside the lock: the last reference may be ours, and the destructor takes the lock.
  std::vector<std::shared_ptr<ListedConnection>> connections() {
    std::vector<std::shared_ptr<ListedConnection>> alive;
    const std::lock_guard lock(state_.mu);
    for (ListedConnection* connection : state_.connections) {
      if (auto held = connection->weak_from_this().lock()) alive.push_back(std::move(held));
    }
    return alive;
  }

  Status load_tls() {
    const HttpServerOptions& options = state_.options;
    if (options.tls_certificate_path.empty() != options.tls_key_path.empty()) {
      return Error(Code::kInvalidArgument, "TLS: found a certificate or a key alone, expected both");
    }
    if (options.tls_certificate_path.empty()) return {};
    tls_.emplace(asio::ssl::context::tls_server);
    error_code ec;
    tls_->set_options(
        asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
    tls_->use_certificate_chain_file(options.tls_certificate_path, ec);
    if (ec) return tls_error(options.tls_certificate_path, ec);
    tls_->use_private_key_file(options.tls_key_path, asio::ssl::context::pem, ec);
    if (ec) return tls_error(options.tls_key_path, ec);
    return {};
  }

  Status bind_tcp() {
    const HttpServerOptions& options = state_.options;
    error_code ec;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, ec);
    if (ec || found.empty()) {
      return Error(Code::kInvalidArgument, "host '{}' has no address: {}", options.host, ec.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    tcp_.acceptor.open(endpoint.protocol(), ec);
    if (!ec) tcp_.acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) tcp_.acceptor.bind(endpoint, ec);
    if (ec) return tcp_error(ec);
    return {};
  }

  Error tcp_error(error_code ec) const {
    return Error(Code::kIo, "cannot listen on {}:{}: {}", state_.options.host, state_.options.port, ec.message());
  }

  Status listen_tcp() {
    RETURN_IF_ERROR(bind_tcp());
    error_code ec;
    tcp_.acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) return tcp_error(ec);
    port_ = tcp_.acceptor.local_endpoint().port();
    accept(tcp_);
    return {};
  }

  // A socket to which nobody answers was left by a server that died. Any other file is somebody's.
  Status listen_unix() {
    const std::string& path = state_.options.unix_socket_path;
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Error(Code::kInvalidArgument, "Unix socket '{}': found {} bytes, expected at most {}", path, path.size(),
                   sizeof(sockaddr_un::sun_path) - 1);
    }
    struct stat file = {};
    if (lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) {
      return Error(Code::kIo, "cannot listen on Unix socket '{}': a file that is not a socket exists there", path);
    }
    const asio::local::stream_protocol::endpoint endpoint(path);
    error_code ec;
    asio::local::stream_protocol::socket probe(io_);
    probe.connect(endpoint, ec);
    if (ec == asio::error::connection_refused) ::unlink(path.c_str());
    ec = {};
    unix_.acceptor.open(endpoint.protocol(), ec);
    if (!ec) unix_.acceptor.bind(endpoint, ec);
    unix_bound_ = !ec;
    if (!ec) unix_.acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) return Error(Code::kIo, "cannot listen on Unix socket '{}': {}", path, ec.message());
    accept(unix_);
    return {};
  }

  // Each has a timer of its own: one that waits must not be called off by the other.
  template <typename Protocol>
  struct Listener {
    template <typename Executor>
    explicit Listener(const Executor& executor) : acceptor(executor), retry(executor) {}
    typename Protocol::acceptor acceptor;
    asio::steady_timer retry;
  };

  template <typename Protocol>
  void accept(Listener<Protocol>& listener) {
    using Peer = typename Protocol::socket;
    listener.acceptor.async_accept(asio::make_strand(io_), [this, &listener](error_code ec, Peer peer) {
      if (!listener.acceptor.is_open() || state_.draining) return;
      if (ec) return retry_accept(listener, ec);  // out of file descriptors, as a rule
      asio::ssl::context* tls = nullptr;
      if constexpr (std::is_same_v<Peer, tcp::socket>) {
        error_code ignored;
        peer.set_option(tcp::no_delay(true), ignored);
        if (tls_) tls = &*tls_;
      }
      try {
        start_connection(Socket(std::move(peer)), tls, state_);
      } catch (const std::exception& exception) {
        log::warn("a connection can't be served: {}", exception.what());
      }
      accept(listener);
    });
  }

  template <typename Protocol>
  void retry_accept(Listener<Protocol>& listener, error_code ec) {
    log::warn("accepting a connection failed: {}", ec.message());
    listener.retry.expires_after(kAcceptRetry);
    listener.retry.async_wait([this, &listener](error_code aborted) {
      if (!aborted) accept(listener);
    });
  }

  ServerState state_;  // before io_: destroying io_ destroys the last connections
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_;
  // Threads that find no work leave for good, and with them whatever is posted later. So there is always some.
  const asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  const asio::strand<asio::io_context::executor_type> control_;  // of accepting
  Listener<tcp> tcp_;
  Listener<asio::local::stream_protocol> unix_;
  bool unix_bound_ = false;
  uint16_t port_ = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() && strncasecmp(key.data(), name.data(), name.size()) == 0) return value;
  }
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Handler handler) {
  auto server = std::make_unique<AsioHttpServer>(std::move(options), std::move(handler));
  RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

Status HttpServer::check(const HttpServerOptions& options) {
  return AsioHttpServer(options, {}).try_addresses();
}

}  // namespace deepinfer
