// The server on Boost.Asio and Beast. The only file that includes them: they cost seconds to compile.
//
// A Connection lives on its own strand and moves through: reading a request, answering it, and again. While
// it answers, a read stays pending to learn at once that the peer is gone; bytes that arrive meanwhile are
// the next request.
#include "net/http_server.h"

#include <fmt/core.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <type_traits>

#include "base/log.h"
#include "net/content_encoding.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadAheadBytes = 64 << 10;  // of the next request, while one is answered
constexpr size_t kReadBytes = 4 << 10;        // at a time, so that an idle connection stays small
constexpr std::chrono::milliseconds kAcceptRetry{100};
constexpr std::chrono::seconds kLingerTime{2};
constexpr std::chrono::seconds kCloseTime{5};

class Connection;

using Socket = asio::generic::stream_protocol::socket;  // TCP or Unix

// A socket, or TLS over it. As much of Asio's stream as Beast asks for; handlers are functions, so both sides
// of each choice return nothing.
class Stream {
 public:
  using executor_type = Socket::executor_type;

  Stream(Socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  bool has_tls() const { return tls_.has_value(); }

  template <typename Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    socket_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  Socket socket_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
};

// What connections share. Outlives them.
struct ServerState {
  HttpServerOptions options;
  HttpServer::Handler handler;
  std::atomic<bool> draining{false};  // set once, before connections are told; they read it at the end of an answer
  std::mutex mu;
  std::condition_variable all_closed;
  std::set<Connection*> connections;  // guarded by mu
};

std::string_view reason_phrase(int status) {
  if (status == 529) return "Overloaded";  // Anthropic's own
  return http::obsolete_reason(http::int_to_status(status));
}

std::string response_head(const HttpResponse& response, std::string_view framing, bool keep_alive) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Connection: {}\r\n", response.status,
                  reason_phrase(response.status), response.content_type, framing, keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : response.headers) head += fmt::format("{}: {}\r\n", name, value);
  // A client that is asked to retry is told when.
  const bool busy = response.status == 429 || response.status == 503 || response.status == 529;
  head += busy ? "Retry-After: 1\r\n\r\n" : "\r\n";
  return head;
}

HttpRequest to_request(http::request<http::string_body>&& parsed) {
  HttpRequest request;
  request.method = std::string(parsed.method_string());
  std::string_view target = parsed.target();
  if (const size_t host = target.find("://"); host != std::string_view::npos && target.front() != '/') {
    target.remove_prefix(std::min(target.find('/', host + 3), target.size()));  // as proxies are asked
    if (target.empty()) target = "/";
  }
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : parsed) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(parsed.body());
  return request;
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, asio::ssl::context* tls, ServerState& server)
      : server_(server),
        stream_(std::move(socket), tls),
        read_deadline_(stream_.get_executor()),
        write_deadline_(stream_.get_executor()),
        answer_timer_(stream_.get_executor()) {
    error_code ignored;
    stream_.socket().non_blocking(true, ignored);  // for write_now()
  }
  ~Connection() {
    const std::lock_guard lock(server_.mu);
    server_.connections.erase(this);
    if (server_.connections.empty()) server_.all_closed.notify_all();
  }

  // Listed here and not by the constructor: a thread that finds a connection in the list takes a reference to it.
  void start() {
    {
      const std::lock_guard lock(server_.mu);
      server_.connections.insert(this);
    }
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->begin(); });
  }
  void close_if_idle() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (!self->answering_) self->close();
    });
  }
  void close_now() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->close(); });
  }
  Stream::executor_type executor() { return stream_.get_executor(); }

  // The answer, called by the Exchange on the strand.
  void send_whole(HttpResponse response);
  void open_stream(HttpResponse head);
  void add_extra_headers(HttpResponse& response) {
    for (auto& header : extra_headers_) response.headers.push_back(std::move(header));
    extra_headers_.clear();
  }
  void send_piece(std::string bytes);
  void end_stream();
  void set_on_closed(std::function<void()> callback) { on_closed_ = std::move(callback); }
  void set_on_half_closed(std::function<void()> callback);
  void set_on_drained(std::function<void()> callback) { on_drained_ = std::move(callback); }
  void add_header(std::string name, std::string value) {
    extra_headers_.emplace_back(std::move(name), std::move(value));
  }
  size_t unsent_bytes() const { return unsent_bytes_; }
  void run_after(std::chrono::milliseconds delay, std::function<void()> task);

 private:
  // ---- Reading ----
  void begin();
  void refuse_plain_text();
  void read_head();
  void on_head(error_code ec);
  void read_body();
  void on_body(error_code ec);
  void refuse(error_code ec);
  void watch_peer();
  void on_peer_bytes(error_code ec, size_t size);
  void on_half_close();
  // ---- Writing ----
  void queue(std::string bytes);
  void flush();
  bool write_now(std::vector<asio::const_buffer>& buffers);
  void on_written(error_code ec, size_t size);
  void after_write();
  void after_answer();
  void linger();
  void discard();
  // ---- Ending ----
  void close();
  void on_read_timeout();
  void arm_read(std::chrono::milliseconds timeout);
  void arm_write(std::chrono::milliseconds timeout);

  ServerState& server_;  // outlives every connection
  Stream stream_;
  asio::steady_timer read_deadline_;
  asio::steady_timer write_deadline_;
  asio::steady_timer answer_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;

  bool answering_ = false;  // from the whole request until the end of its answer
  bool answer_complete_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool head_only_ = false;     // the answer to HEAD has no body
  bool request_read_ = false;  // nothing of the request is left on the socket
  bool watching_ = false;      // watch_peer's read is pending
  bool reading_ = false;       // a read of a request is pending
  bool timed_out_ = false;
  bool half_closed_ = false;  // the peer sends nothing more
  bool closed_ = false;
  std::function<void()> on_closed_;
  std::function<void()> on_half_closed_;
  std::function<void()> on_drained_;
  std::vector<std::pair<std::string, std::string>> extra_headers_;  // of this answer

  std::vector<std::string> queued_;
  std::vector<std::string> in_flight_;  // being written; empty when no write is pending
  size_t unsent_bytes_ = 0;             // of both
};

class Exchange : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  const std::string& id() const override { return id_; }
  void set_id(std::string id) override { id_ = std::move(id); }
  void respond(HttpResponse response) override { connection_->send_whole(std::move(response)); }
  void begin_stream(HttpResponse head) override { connection_->open_stream(std::move(head)); }
  void write(std::string bytes) override { connection_->send_piece(std::move(bytes)); }
  void end() override { connection_->end_stream(); }
  void on_closed(std::function<void()> callback) override { connection_->set_on_closed(std::move(callback)); }
  void on_half_closed(std::function<void()> callback) override { connection_->set_on_half_closed(std::move(callback)); }
  void on_drained(std::function<void()> callback) override { connection_->set_on_drained(std::move(callback)); }
  size_t unsent_bytes() const override { return connection_->unsent_bytes(); }
  void add_header(std::string name, std::string value) override {
    connection_->add_header(std::move(name), std::move(value));
  }
  void after(std::chrono::milliseconds delay, std::function<void()> task) override {
    connection_->run_after(delay, std::move(task));
  }
  void post(std::function<void()> task) override { asio::post(connection_->executor(), std::move(task)); }

 private:
  const std::shared_ptr<Connection> connection_;  // shared with the reads and writes that are pending on it
  const HttpRequest request_;
  std::string id_;
};

void Connection::arm_read(std::chrono::milliseconds timeout) {
  read_deadline_.expires_after(timeout);
  read_deadline_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = weak.lock();
    if (!ec && self) self->on_read_timeout();
  });
}

void Connection::arm_write(std::chrono::milliseconds timeout) {
  write_deadline_.expires_after(timeout);
  write_deadline_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = weak.lock();
    if (!ec && self) self->close();
  });
}

void Connection::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  if (closed_ || answer_complete_) return;
  answer_timer_.expires_after(delay);
  answer_timer_.async_wait([weak = weak_from_this(), task = std::move(task)](error_code ec) {
    const auto self = weak.lock();
    if (!ec && self && !self->closed_ && !self->answer_complete_) task();
  });
}

// A client that began a request learns why it is not served.
void Connection::on_read_timeout() {
  if (!reading_) return close();
  timed_out_ = true;
  stream_.socket().cancel();
}

void Connection::begin() {
  if (!stream_.has_tls()) return read_head();
  arm_read(server_.options.request_timeout);
  stream_.async_handshake([self = shared_from_this()](error_code ec) {
    if (self->closed_) return;
    if (!ec) return self->read_head();
    const bool is_plain_text = ec.category() == asio::error::get_ssl_category() &&
                               ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST;
    is_plain_text ? self->refuse_plain_text() : self->close();
  });
}

// Somebody forgot the s of https.
void Connection::refuse_plain_text() {
  HttpResponse response = server_.options.error_response(400, "This port speaks TLS; use https.");
  const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  in_flight_.push_back(response_head(response, framing, false) + response.body);
  arm_read(kLingerTime);
  asio::async_write(stream_.socket(), asio::buffer(in_flight_.front()),
                    [self = shared_from_this()](error_code, size_t) {
                      error_code ignored;
                      self->stream_.socket().shutdown(Socket::shutdown_send, ignored);
                    });
}

void Connection::read_head() {
  if (server_.draining) return close();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
  parser_->body_limit(server_.options.max_body_bytes);
  request_read_ = false;
  reading_ = true;
  arm_read(server_.options.idle_timeout);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code ec, size_t) { self->on_head(ec); });
}

void Connection::on_head(error_code ec) {
  if (closed_) return;
  if (ec) return refuse(ec);
  arm_read(server_.options.request_timeout);
  const auto expect = parser_->get()[http::field::expect];
  if (boost::beast::iequals(expect, "100-continue") && !parser_->is_done()) {
    queue("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  read_body();
}

void Connection::read_body() {
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code ec, size_t) { self->on_body(ec); });
}

void Connection::on_body(error_code ec) {
  reading_ = false;
  if (closed_) return;
  if (ec) return refuse(ec);
  read_deadline_.cancel();
  request_read_ = true;
  answering_ = true;
  answer_complete_ = false;
  const bool http_1_1 = parser_->get().version() == 11;
  keep_alive_ = parser_->keep_alive() && !server_.draining;
  chunked_ = http_1_1;
  head_only_ = parser_->get().method() == http::verb::head;
  HttpRequest request = to_request(parser_->release());
  Result<std::string> body =
      decode_body(request.header("content-encoding"), std::move(request.body), server_.options.max_body_bytes);
  watch_peer();
  if (!body.ok()) {
    const Code code = body.error().code();
    const int status = code == Code::kUnimplemented ? 415 : code == Code::kResourceExhausted ? 413 : 400;
    return send_whole(server_.options.error_response(status, body.error().message()));
  }
  request.body = std::move(*body);
  auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  server_.handler(std::move(exchange));
}

// The request can't be read. Says why where somebody listens.
void Connection::refuse(error_code ec) {
  reading_ = false;
  const auto answer = [this](int status, std::string message) {
    answering_ = true;
    keep_alive_ = false;
    head_only_ = false;
    send_whole(server_.options.error_response(status, std::move(message)));
  };
  const auto& options = server_.options;
  if (timed_out_ && parser_->got_some()) return answer(408, "The request did not arrive in time.");
  if (ec == http::error::header_limit) {
    return answer(431, fmt::format("The request header is longer than {} bytes.", options.max_header_bytes));
  }
  if (ec == http::error::body_limit) {
    return answer(413, fmt::format("The request body is longer than {} bytes.", options.max_body_bytes));
  }
  const bool nobody_there =
      ec == http::error::end_of_stream || ec.category() != http::make_error_code(http::error::bad_target).category();
  if (nobody_there) return close();
  if (ec == http::error::partial_message) return answer(400, "The request ends before it is complete.");
  answer(400, fmt::format("This is not an HTTP/1.1 request: {}.", ec.message()));
}

void Connection::watch_peer() {
  if (watching_ || closed_ || half_closed_ || buffer_.size() >= kReadAheadBytes) return;
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](error_code ec, size_t size) { self->on_peer_bytes(ec, size); });
}

void Connection::on_peer_bytes(error_code ec, size_t size) {
  watching_ = false;
  if (closed_) return;
  const bool next_request_waits = ec == asio::error::operation_aborted && !answering_;
  if (ec == asio::error::eof && answering_) return on_half_close();
  if (ec && !next_request_waits) return close();
  buffer_.commit(size);
  answering_ ? watch_peer() : read_head();
}

// An answer goes on: a peer that is gone refuses its bytes, which ends the wait below or a write.
void Connection::on_half_close() {
  half_closed_ = true;
  if (answer_complete_) return;  // what is left of it is on its way
  if (!on_half_closed_) return close();
  stream_.socket().async_wait(Socket::wait_error, [self = shared_from_this()](error_code ec) {
    if (!ec) self->close();
  });
  std::exchange(on_half_closed_, nullptr)();
}

void Connection::set_on_half_closed(std::function<void()> callback) {
  if (half_closed_) return callback();
  on_half_closed_ = std::move(callback);
}

void Connection::send_whole(HttpResponse response) {
  if (closed_ || answer_complete_) return;
  add_extra_headers(response);
  queue(response_head(response, fmt::format("Content-Length: {}\r\n", response.body.size()), keep_alive_));
  if (!head_only_) queue(std::move(response.body));
  answer_complete_ = true;
  flush();
}

// HTTP/1.0 has no chunks: the end of the connection ends the answer.
void Connection::open_stream(HttpResponse head) {
  if (closed_) return;
  if (!chunked_) keep_alive_ = false;
  add_extra_headers(head);
  queue(response_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_));
  send_piece(std::move(head.body));
  flush();
}

void Connection::send_piece(std::string bytes) {
  if (closed_ || answer_complete_ || bytes.empty() || head_only_) return;
  if (chunked_) {
    char head[20];
    bytes.insert(0, head, static_cast<size_t>(fmt::format_to(head, "{:x}\r\n", bytes.size()) - head));
    bytes += "\r\n";
  }
  queue(std::move(bytes));
  flush();
}

void Connection::end_stream() {
  if (closed_ || answer_complete_) return;
  if (chunked_ && !head_only_) queue("0\r\n\r\n");
  answer_complete_ = true;
  in_flight_.empty() && queued_.empty() ? after_answer() : flush();
}

void Connection::queue(std::string bytes) {
  unsent_bytes_ += bytes.size();
  queued_.push_back(std::move(bytes));
}

// One gather write of all that is queued; what comes meanwhile waits for the next. As a rule the socket takes
// it at once, and nothing has to be waited for.
void Connection::flush() {
  if (closed_ || !in_flight_.empty() || queued_.empty()) return;
  in_flight_.swap(queued_);
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(in_flight_.size());
  for (const std::string& piece : in_flight_) buffers.push_back(asio::buffer(piece));
  if (!stream_.has_tls() && write_now(buffers)) return;
  arm_write(server_.options.write_timeout);
  asio::async_write(stream_, buffers,
                    [self = shared_from_this()](error_code ec, size_t size) { self->on_written(ec, size); });
}

// Takes from the front of `buffers` what the socket takes; true when that is all.
bool Connection::write_now(std::vector<asio::const_buffer>& buffers) {
  error_code ec;
  size_t size = stream_.socket().write_some(buffers, ec);
  if (ec) return false;  // full, or broken, which the write that waits will tell
  unsent_bytes_ -= size;
  auto left = buffers.begin();
  for (; left != buffers.end() && size >= left->size(); ++left) size -= left->size();
  if (left != buffers.end()) *left += size;
  buffers.erase(buffers.begin(), left);
  if (!buffers.empty()) return false;
  in_flight_.clear();
  // Not from here: the caller of a write does not expect to be called back.
  if (on_drained_ || answer_complete_) {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->after_write(); });
  }
  return true;
}

void Connection::on_written(error_code ec, size_t size) {
  if (closed_) return;
  write_deadline_.cancel();
  in_flight_.clear();
  unsent_bytes_ -= size;
  if (ec) return close();
  after_write();
}

void Connection::after_write() {
  if (closed_ || !in_flight_.empty()) return;
  if (queued_.empty()) {
    if (const auto callback = std::exchange(on_drained_, nullptr)) callback();
  }
  if (closed_) return;
  if (!queued_.empty()) return flush();
  if (answer_complete_ && in_flight_.empty()) after_answer();
}

void Connection::after_answer() {
  answering_ = false;
  answer_complete_ = false;
  on_closed_ = nullptr;
  on_half_closed_ = nullptr;
  on_drained_ = nullptr;
  extra_headers_.clear();
  answer_timer_.cancel();
  if (!request_read_) return linger();
  if (!keep_alive_ || server_.draining) return close();
  if (!watching_) return read_head();
  // The pending read brings the next request; it gives way when that is here already.
  arm_read(server_.options.idle_timeout);
  if (buffer_.size() > 0) stream_.socket().cancel();
}

// Closing with unread bytes would reset the connection and could destroy the answer on its way.
void Connection::linger() {
  error_code ignored;
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  arm_read(kLingerTime);
  discard();
}

void Connection::discard() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](error_code ec, size_t) {
    if (self->closed_) return;
    ec ? self->close() : self->discard();
  });
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  stream_.socket().shutdown(Socket::shutdown_both, ignored);
  stream_.socket().close(ignored);
  read_deadline_.cancel();
  write_deadline_.cancel();
  answer_timer_.cancel();
  on_half_closed_ = nullptr;
  // What waited for the peer may be all that keeps the answer alive: it goes after the answer was told.
  const auto waiting = std::exchange(on_drained_, nullptr);
  if (const auto callback = std::exchange(on_closed_, nullptr)) callback();
}

Error tls_error(const std::string& path, const error_code& ec) {
  return Error(Code::kIo, "TLS: can't use '{}': {}", path, ec.message());
}

class AsioHttpServer : public HttpServer {
 public:
  AsioHttpServer(HttpServerOptions options, Handler handler)
      : control_(asio::make_strand(io_)), tcp_(control_), unix_(control_) {
    state_.options = std::move(options);
    state_.handler = std::move(handler);
  }

  // Closing tells every handler, so that nothing outside holds a connection when the sockets' context goes.
  ~AsioHttpServer() override {
    stop_accepting();
    for (const auto& connection : connections()) connection->close_now();
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
    for (int i = 0; i < options.num_threads; ++i) threads_.emplace_back([this] { io_.run(); });
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

 private:
  // Held outside the lock: the last reference may be ours, and the destructor takes the lock.
  std::vector<std::shared_ptr<Connection>> connections() {
    std::vector<std::shared_ptr<Connection>> alive;
    const std::lock_guard lock(state_.mu);
    for (Connection* connection : state_.connections) {
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

  Status listen_tcp() {
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
    if (!ec) tcp_.acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (ec) return Error(Code::kIo, "cannot listen on {}:{}: {}", options.host, options.port, ec.message());
    port_ = tcp_.acceptor.local_endpoint().port();
    accept(tcp_);
    return {};
  }

  // A socket file to which nobody answers was left by a server that died.
  Status listen_unix() {
    const std::string& path = state_.options.unix_socket_path;
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Error(Code::kInvalidArgument, "Unix socket '{}': found {} bytes, expected at most {}", path, path.size(),
                   sizeof(sockaddr_un::sun_path) - 1);
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
      std::make_shared<Connection>(Socket(std::move(peer)), tls, state_)->start();
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
    if (boost::beast::iequals(key, name)) return value;
  }
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, Handler handler) {
  auto server = std::make_unique<AsioHttpServer>(std::move(options), std::move(handler));
  RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace deepinfer
