// A connection lives on its own strand and moves through: reading a request, answering it, and again. While it answers,
// a read stays pending to learn at once that the peer is gone; bytes that arrive meanwhile are the next request.
#include "net/connection.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <new>
#include <optional>

#include "base/log.h"
#include "net/content_encoding.h"
#include "net/request_head.h"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadAheadBytes = 64 << 10;  // of the next request, while one is answered
constexpr size_t kReadBytes = 4 << 10;        // at a time, so that an idle connection stays small
constexpr size_t kSmallBufferBytes = 8 << 10;
constexpr size_t kDrainedBodyBytes = 64 << 10;  // of a refused request: read, so that the connection can go on
constexpr size_t kReservedAtOnce = 1 << 20;     // of an announced body; the rest when it begins to come
// Bytes that a chunked body may take on the wire: a chunk of one byte takes six.
constexpr size_t kMostWirePerByte = 8, kFreeWireBytes = 64 << 10;
constexpr size_t kMostWriteBuffers = 64;
// Else the kernel keeps megabytes for a reader that takes nothing.
constexpr int kSendBufferBytes = 128 << 10;
constexpr std::chrono::seconds kLingerTime{2};

// A socket, or TLS over it. As much of Asio's stream as Beast asks for; handlers are functions, so both sides of each
// choice return nothing. A stream that has ended says so again to every read: the system says it once.
class Stream {
 public:
  using executor_type = Socket::executor_type;

  Stream(Socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  bool has_tls() const { return tls_.has_value(); }
  bool has_ended() const { return ended_; }
  size_t bytes_read() const { return bytes_read_; }

  template <typename Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (ended_) {
      return asio::post(socket_.get_executor(),
                        [handler = std::forward<Handler>(handler)]() mutable { handler(asio::error::eof, 0); });
    }
    auto noting = [this, handler = std::forward<Handler>(handler)](error_code ec, size_t size) mutable {
      ended_ = ended_ || ec == asio::error::eof;
      bytes_read_ += size;
      handler(ec, size);
    };
    if (tls_) return tls_->async_read_some(buffers, std::move(noting));
    socket_.async_read_some(buffers, std::move(noting));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    socket_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  Socket socket_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
  bool ended_ = false;
  size_t bytes_read_ = 0;
};

// A body that is charged to the server's budget as it comes.
struct ChargedBody {
  struct value_type {
    std::string text;
    MemoryShare* share = nullptr;  // borrowed from the connection
  };
  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>& length, error_code& ec) {
      ec = {};
      length_ = length.value_or(0);
      body_.text.reserve(std::min<size_t>(length_, kReservedAtOnce));
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      size_t taken = 0;
      for (const asio::const_buffer buffer : boost::beast::buffers_range_ref(buffers)) {
        if (!body_.share->grow_to(body_.text.size() + buffer.size())) {
          ec = make_error_code(boost::system::errc::not_enough_memory);
          return taken;
        }
        taken += append(buffer, ec);
        if (ec) return taken;
      }
      ec = {};
      return taken;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    size_t append(asio::const_buffer buffer, error_code& ec) {
      try {
        if (body_.text.size() + buffer.size() > kReservedAtOnce) body_.text.reserve(length_);
        body_.text.append(static_cast<const char*>(buffer.data()), buffer.size());
        return buffer.size();
      } catch (const std::bad_alloc&) {
        ec = make_error_code(boost::system::errc::not_enough_memory);
        return 0;
      }
    }

    value_type& body_;
    size_t length_ = 0;  // as announced
  };
};

using Parser = http::request_parser<ChargedBody>;

std::string_view reason_phrase(int status) {
  if (status == 529) return "Overloaded";  // Anthropic's own
  return http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
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

// The address without its port.
std::string peer_address(Socket& socket) {
  error_code ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return "";
  char text[INET6_ADDRSTRLEN] = "";
  const sockaddr* address = endpoint.data();
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  }
  return text;
}

// Everything but the body.
HttpRequest to_request(const Parser::value_type& parsed) {
  HttpRequest request;
  request.method = std::string(parsed.method_string());
  std::string_view target = parsed.target();
  request.host = std::string(parsed[http::field::host]);
  if (const size_t host = target.find("://"); host != std::string_view::npos && target.front() != '/') {
    target.remove_prefix(host + 3);  // as proxies are asked
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    request.host = std::string(target.substr(0, end));
    target.remove_prefix(end);
  }
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (request.path.empty()) request.path = "/";
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : parsed) {
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return request;
}

class Connection : public ListedConnection {
 public:
  Connection(Socket socket, asio::ssl::context* tls, ServerState& server)
      : server_(server),
        peer_(peer_address(socket)),
        number_(++server.last_connection),
        stream_(std::move(socket), tls),
        read_deadline_(stream_.get_executor()),
        write_deadline_(stream_.get_executor()),
        answer_timer_(stream_.get_executor()),
        buffer_(std::max(kReadAheadBytes, 2 * server.options.max_header_bytes) + kReadBytes),
        request_share_(server.budget),
        answer_share_(server.budget) {
    error_code ignored;
    stream_.socket().non_blocking(true, ignored);  // for write_more()
    stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  }
  ~Connection() override {
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
    post([](Connection& self) { self.begin(); });
  }
  void close_if_idle() override {
    post([](Connection& self) {
      if (!self.answering_) self.close();
    });
  }
  void close_now() override {
    post([](Connection& self) { self.close(); });
  }
  std::shared_ptr<Connection> self() { return std::static_pointer_cast<Connection>(shared_from_this()); }

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

  // Runs it on the strand; `task` takes the connection. From any thread.
  template <typename Task>
  void post(Task task) {
    asio::post(stream_.get_executor(), guarded([task = std::move(task)](Connection& self) mutable { task(self); }));
  }
  // The same behind the gate. Each task leaves it, whatever happens in it.
  template <typename Task>
  void post_work(Task task) {
    struct Leaving {
      WorkGate& gate;
      ~Leaving() { gate.leave(); }
    };
    const auto shared = std::make_shared<Task>(std::move(task));  // functions are copied
    server_.gate.enter([self = self(), shared] {
      self->post([shared](Connection& connection) {
        const Leaving leaving{connection.server_.gate};
        (*shared)(connection);
      });
    });
  }

 private:
  // ---- Reading ----
  void begin();
  void refuse_plain_text();
  void read_head();
  void on_head(error_code ec);
  void on_body(error_code ec);
  void serve();
  void refuse(error_code ec);
  void refuse(int status, std::string message);
  void watch_peer();
  void on_peer_bytes(error_code ec, size_t size);
  void on_half_close();
  // ---- Writing ----
  void queue(std::string bytes);
  void flush();
  void write_more();
  bool take_written(size_t size);
  void on_written(error_code ec, size_t size);
  void after_write();
  void after_answer();
  void linger();
  void discard();
  // ---- Ending ----
  void close();
  void on_read_timeout();
  void on_exception(int status, std::string message);
  void arm_read(std::chrono::milliseconds timeout);
  void arm_write();

  // A completion handler that keeps the connection, and ends its request when `function` throws: one request must not
  // be the end of all others.
  template <typename Function>
  auto guarded(Function function) {
    return [self = self(), function = std::move(function)](auto... arguments) mutable {
      try {
        function(*self, arguments...);
      } catch (const std::bad_alloc&) {
        self->on_exception(503, "No memory is left for this request.");
      } catch (const std::exception& exception) {
        self->on_exception(500, fmt::format("The request ended in an exception: {}", exception.what()));
      }
    };
  }

  ServerState& server_;  // outlives every connection
  const std::string peer_;
  const uint64_t number_;
  Stream stream_;
  asio::steady_timer read_deadline_;
  asio::steady_timer write_deadline_;
  asio::steady_timer answer_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void(uint64_t, boost::core::string_view, error_code&)> on_chunk_;  // borrowed by parser_

  HttpRequest request_;  // being read
  HttpAdmission admission_;
  MemoryShare request_share_, answer_share_;

  bool answering_ = false;  // from the whole request until the end of its answer
  bool answer_begun_ = false;
  bool answer_complete_ = false;
  bool is_stream_ = false;
  bool keep_alive_ = false;
  bool chunked_ = false;
  bool head_only_ = false;     // the answer to HEAD has no body
  bool request_read_ = false;  // nothing of the request is left on the socket
  bool watching_ = false;      // watch_peer's read is pending
  bool waiting_for_reset_ = false;
  bool reading_ = false;  // a read of a request is pending
  bool timed_out_ = false;
  bool closed_ = false;
  std::function<void()> on_closed_;
  std::function<void()> on_half_closed_;
  std::function<void()> on_drained_;
  std::vector<std::pair<std::string, std::string>> extra_headers_;  // of this answer

  std::vector<std::string> queued_;
  std::vector<std::string> in_flight_;           // being written; empty when no write is pending
  size_t first_in_flight_ = 0, first_byte_ = 0;  // of it: what is not taken yet begins here
  size_t unsent_bytes_ = 0;                      // of both
};

class Exchange : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
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
  void post(std::function<void()> task) override {
    connection_->post([task = std::move(task)](Connection&) { task(); });
  }
  void post_work(std::function<void()> task) override {
    connection_->post_work([task = std::move(task)](Connection&) { task(); });
  }

 private:
  const std::shared_ptr<Connection> connection_;  // shared with the reads and writes that are pending on it
  HttpRequest request_;
  std::string id_;
};

void Connection::arm_read(std::chrono::milliseconds timeout) {
  read_deadline_.expires_after(timeout);
  read_deadline_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto alive = weak.lock();
    if (!ec && alive) std::static_pointer_cast<Connection>(alive)->on_read_timeout();
  });
}

void Connection::arm_write() {
  write_deadline_.expires_after(is_stream_ ? server_.options.stream_timeout : server_.options.write_timeout);
  write_deadline_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto alive = weak.lock();
    if (!ec && alive) std::static_pointer_cast<Connection>(alive)->close();
  });
}

void Connection::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  if (closed_ || answer_complete_) return;
  answer_timer_.expires_after(delay);
  answer_timer_.async_wait([weak = weak_from_this(), task = std::move(task)](error_code ec) {
    const auto alive = weak.lock();
    if (ec || !alive) return;
    std::static_pointer_cast<Connection>(alive)->guarded([&task](Connection& self) {
      if (!self.closed_ && !self.answer_complete_) task();
    })();
  });
}

// A client that began a request learns why it is not served.
void Connection::on_read_timeout() {
  if (!reading_) return close();
  timed_out_ = true;
  stream_.socket().cancel();
}

// Whoever waits for the answer hears that there is none, and is told so himself while that can be said.
void Connection::on_exception(int status, std::string message) {
  try {
    log::error("http: {}", message);
    keep_alive_ = false;
    if (closed_ || !answering_ || answer_begun_) return close();
    if (const auto callback = std::exchange(on_closed_, nullptr)) callback();
    send_whole(server_.options.error_response(status, std::move(message)));
  } catch (const std::exception&) {
    close();
  }
}

void Connection::begin() {
  if (!stream_.has_tls()) return read_head();
  arm_read(server_.options.request_timeout);
  stream_.async_handshake(guarded([](Connection& self, error_code ec) {
    if (self.closed_) return;
    if (!ec) return self.read_head();
    const bool is_plain_text = ec.category() == asio::error::get_ssl_category() &&
                               ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST;
    is_plain_text ? self.refuse_plain_text() : self.close();
  }));
}

// Somebody forgot the s of https.
void Connection::refuse_plain_text() {
  HttpResponse response = server_.options.error_response(400, "This port speaks TLS; use https.");
  const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  in_flight_.push_back(response_head(response, framing, false) + response.body);
  arm_read(kLingerTime);
  asio::async_write(stream_.socket(), asio::buffer(in_flight_.front()),
                    guarded([](Connection& self, error_code, size_t) {
                      error_code ignored;
                      self.stream_.socket().shutdown(Socket::shutdown_send, ignored);
                    }));
}

void Connection::read_head() {
  if (server_.draining) return close();
  if (buffer_.size() == 0 && buffer_.capacity() > kSmallBufferBytes) buffer_.shrink_to_fit();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
  parser_->body_limit(server_.options.max_body_bytes);
  request_read_ = false;
  reading_ = true;
  arm_read(server_.options.idle_timeout);
  http::async_read_header(stream_, buffer_, *parser_,
                          guarded([](Connection& self, error_code ec, size_t) { self.on_head(ec); }));
}

void Connection::on_head(error_code ec) {
  if (closed_) return;
  if (ec) return refuse(ec);
  request_ = to_request(parser_->get());
  request_.peer = peer_;
  request_.connection = number_;
  const bool is_http_1_0 = parser_->get().version() == 10;
  if (auto fault = check_request_head(request_, is_http_1_0)) return refuse(fault->status, std::move(fault->message));
  admission_ = server_.options.admit ? server_.options.admit(request_) : HttpAdmission();
  chunked_ = !is_http_1_0;
  head_only_ = parser_->get().method() == http::verb::head;
  const bool asks_first =
      boost::beast::iequals(parser_->get()[http::field::expect], "100-continue") && !parser_->is_done();
  if (admission_.refusal && !parser_->is_done()) {
    const auto length = parser_->content_length();
    if (asks_first || !length || *length > kDrainedBodyBytes) {
      reading_ = false;
      answering_ = true;
      keep_alive_ = false;
      return send_whole(std::move(*admission_.refusal));
    }
  }
  if (asks_first) {
    queue("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  const size_t begin = stream_.bytes_read();
  on_chunk_ = [this, begin](uint64_t, boost::core::string_view, error_code& fault) {
    const size_t body_bytes = parser_->get().body().text.size();
    if (stream_.bytes_read() - begin > kFreeWireBytes + kMostWirePerByte * body_bytes) fault = http::error::bad_chunk;
  };
  parser_->on_chunk_header(on_chunk_);
  parser_->get().body().share = &request_share_;
  arm_read(server_.options.request_timeout);
  if (parser_->is_done()) return on_body({});
  http::async_read(stream_, buffer_, *parser_,
                   guarded([](Connection& self, error_code ec, size_t) { self.on_body(ec); }));
}

void Connection::on_body(error_code ec) {
  if (closed_) return;
  if (ec) return refuse(ec);
  reading_ = false;
  read_deadline_.cancel();
  request_read_ = true;
  answering_ = true;
  keep_alive_ = parser_->keep_alive() && !server_.draining;
  request_.body = std::move(parser_->get().body().text);
  parser_.reset();
  watch_peer();
  if (admission_.refusal) return send_whole(std::move(*admission_.refusal));
  if (admission_.is_light) return serve();
  post_work([](Connection& self) {
    if (!self.closed_) self.serve();
  });
}

void Connection::serve() {
  Result<std::string> body =
      decode_body(request_.header("content-encoding"), std::move(request_.body), server_.options.max_body_bytes);
  if (!body.ok()) {
    const Code code = body.error().code();
    const int status = code == Code::kUnimplemented ? 415 : code == Code::kResourceExhausted ? 413 : 400;
    return send_whole(server_.options.error_response(status, body.error().message()));
  }
  if (!request_share_.grow_to(body->size())) return refuse(make_error_code(boost::system::errc::not_enough_memory));
  request_.body = std::move(*body);
  server_.handler(std::make_shared<Exchange>(self(), std::move(request_)));
}

// The request can't be read. Says why where somebody listens.
void Connection::refuse(error_code ec) {
  const auto& options = server_.options;
  if (timed_out_ && (!parser_ || parser_->got_some())) return refuse(408, "The request did not arrive in time.");
  if (ec == http::error::header_limit) {
    return refuse(431, fmt::format("The request header is longer than {} bytes.", options.max_header_bytes));
  }
  if (ec == http::error::body_limit) {
    return refuse(413, fmt::format("The request body is longer than {} bytes.", options.max_body_bytes));
  }
  if (ec == boost::system::errc::not_enough_memory) {
    return refuse(503, fmt::format("Requests in work hold most of the {} MiB that they may hold together; come back "
                                   "later, or send less.",
                                   options.max_memory_bytes >> 20));
  }
  if (ec == http::error::buffer_overflow || ec == http::error::bad_chunk) {
    return refuse(400, "The chunks of the request body are damaged, or nearly all frame and no body.");
  }
  const bool nobody_there =
      ec == http::error::end_of_stream || ec.category() != http::make_error_code(http::error::bad_target).category();
  if (nobody_there) return close();
  if (ec == http::error::partial_message) return refuse(400, "The request ends before it is complete.");
  refuse(400, fmt::format("This is not an HTTP/1.1 request: {}.", ec.message()));
}

void Connection::refuse(int status, std::string message) {
  parser_.reset();  // and what it holds of the body
  reading_ = false;
  answering_ = true;
  keep_alive_ = false;
  head_only_ = false;
  send_whole(server_.options.error_response(status, std::move(message)));
}

void Connection::watch_peer() {
  if (watching_ || closed_) return;
  if (stream_.has_ended()) return on_half_close();
  if (buffer_.size() >= kReadAheadBytes) return;
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          guarded([](Connection& self, error_code ec, size_t size) { self.on_peer_bytes(ec, size); }));
}

void Connection::on_peer_bytes(error_code ec, size_t size) {
  watching_ = false;
  if (closed_) return;
  const bool next_request_waits = ec == asio::error::operation_aborted && !answering_;
  const bool has_ended = ec == asio::error::eof;  // what came before is read all the same
  if (ec && !has_ended && !next_request_waits) return close();
  buffer_.commit(size);
  if (!answering_) return read_head();
  has_ended ? on_half_close() : watch_peer();
}

// An answer goes on: a peer that is gone refuses its bytes, which ends the wait below or a write.
void Connection::on_half_close() {
  if (answer_complete_) return;  // what is left of it is on its way
  if (answer_begun_ && !on_half_closed_) return close();
  if (!std::exchange(waiting_for_reset_, true)) {
    stream_.socket().async_wait(Socket::wait_error, guarded([](Connection& self, error_code ec) {
                                  self.waiting_for_reset_ = false;
                                  if (!ec) self.close();
                                }));
  }
  if (const auto callback = std::exchange(on_half_closed_, nullptr)) callback();
}

void Connection::set_on_half_closed(std::function<void()> callback) {
  if (stream_.has_ended()) return callback();
  on_half_closed_ = std::move(callback);
}

void Connection::send_whole(HttpResponse response) {
  if (closed_ || answer_complete_ || answer_begun_) return;
  if (!head_only_ && !answer_share_.grow_to(response.body.size())) {
    response = server_.options.error_response(
        503, fmt::format("This answer has {} bytes, more than is left of the {} MiB that answers on their way may hold "
                         "together; come back later.",
                         response.body.size(), server_.options.max_memory_bytes >> 20));
  }
  add_extra_headers(response);
  if (server_.options.on_answer) server_.options.on_answer(response.status);
  queue(response_head(response, fmt::format("Content-Length: {}\r\n", response.body.size()), keep_alive_));
  if (!head_only_) queue(std::move(response.body));
  request_share_.release();
  answer_begun_ = answer_complete_ = true;
  flush();
}

// HTTP/1.0 has no chunks: the end of the connection ends the answer.
void Connection::open_stream(HttpResponse head) {
  if (closed_ || answer_complete_ || answer_begun_) return;
  if (!chunked_) keep_alive_ = false;
  add_extra_headers(head);
  if (server_.options.on_answer) server_.options.on_answer(head.status);
  queue(response_head(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keep_alive_));
  request_share_.release();
  answer_begun_ = is_stream_ = true;
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

// Gather writes of all that is queued; what comes meanwhile waits for the next. As a rule the socket takes it at once,
// and nothing has to be waited for.
void Connection::flush() {
  if (closed_ || !in_flight_.empty() || queued_.empty()) return;
  in_flight_.swap(queued_);
  first_in_flight_ = first_byte_ = 0;
  write_more();
}

void Connection::write_more() {
  std::vector<asio::const_buffer> buffers;
  while (true) {
    buffers.clear();
    for (size_t i = first_in_flight_; i < in_flight_.size() && buffers.size() < kMostWriteBuffers; ++i) {
      buffers.push_back(asio::buffer(in_flight_[i]));
    }
    buffers.front() += first_byte_;
    if (stream_.has_tls()) break;
    error_code ec;
    const size_t size = stream_.socket().write_some(buffers, ec);
    if (ec) break;  // full, or broken, which the write that waits will tell
    if (!take_written(size)) continue;
    // Not from here: the caller of a write does not expect to be called back.
    if (on_drained_ || answer_complete_) post([](Connection& self) { self.after_write(); });
    return;
  }
  arm_write();
  stream_.async_write_some(buffers,
                           guarded([](Connection& self, error_code ec, size_t size) { self.on_written(ec, size); }));
}

// True when that was all.
bool Connection::take_written(size_t size) {
  unsent_bytes_ -= size;
  first_byte_ += size;
  while (first_in_flight_ < in_flight_.size() && first_byte_ >= in_flight_[first_in_flight_].size()) {
    first_byte_ -= in_flight_[first_in_flight_].size();
    in_flight_[first_in_flight_++] = {};
  }
  if (first_in_flight_ < in_flight_.size()) return false;
  in_flight_.clear();
  return true;
}

void Connection::on_written(error_code ec, size_t size) {
  if (closed_) return;
  write_deadline_.cancel();
  if (ec) return close();
  take_written(size) ? after_write() : write_more();
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
  answering_ = answer_begun_ = answer_complete_ = is_stream_ = false;
  on_closed_ = nullptr;
  on_half_closed_ = nullptr;
  on_drained_ = nullptr;
  extra_headers_.clear();
  answer_timer_.cancel();
  answer_share_.release();
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
  parser_.reset();
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  arm_read(kLingerTime);
  discard();
}

void Connection::discard() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes), guarded([](Connection& self, error_code ec, size_t) {
                            if (self.closed_) return;
                            ec ? self.close() : self.discard();
                          }));
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
  request_share_.release();
  answer_share_.release();
  // What waited for the peer may be all that keeps the answer alive: it goes after the answer was told.
  const auto waiting = std::exchange(on_drained_, nullptr);
  if (const auto callback = std::exchange(on_closed_, nullptr)) callback();
}

}  // namespace

void start_connection(Socket socket, asio::ssl::context* tls, ServerState& server) {
  std::make_shared<Connection>(std::move(socket), tls, server)->start();
}

}  // namespace deepinfer
