// HTTP/1.1 server: keep-alive, limits, timeouts, whole answers and streams that the caller writes piece by
// piece. Knows nothing of JSON or of any API. Boost.Asio and Beast stay inside
// http_server.cc and connection.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as sent, without the query
  std::string query;   // without the '?'
  std::string host;    // whom the client thinks it asks: of the target, else of the Host header
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;         // decompressed
  std::string peer;         // the client's address without its port; empty over a Unix socket
  uint64_t connection = 0;  // the same for all requests of one connection, and never used again

  // The first header of that name in any case; empty when absent. Borrowed from the request.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // more of them
};

// One request and its answer: either respond(), or begin_stream(), write()..., end().
// Lives on one strand of the server's worker threads: the handler and everything given to post() run there,
// one at a time, and only from there may the other functions be called. post() may be called from any thread.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // The body, which the request then no longer holds.
  virtual std::string take_body() = 0;
  // What the server's answer calls this request; set by set_id().
  virtual const std::string& id() const = 0;
  virtual void set_id(std::string id) = 0;
  // One more header for the answer, whichever it will be.
  virtual void add_header(std::string name, std::string value) = 0;
  virtual void respond(HttpResponse response) = 0;

  // Sends status and headers; `head.body` is the first piece when not empty.
  virtual void begin_stream(HttpResponse head) = 0;
  // Queues bytes; all that is queued leaves in one gather write as soon as the socket takes it. Nothing
  // bounds the queue but the caller, who looks at unsent_bytes(). Does nothing once the peer is gone.
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;

  // Bytes that the socket has not taken yet.
  virtual size_t unsent_bytes() const = 0;
  // Called once, on the strand, when nothing is unsent any more. Replaces an earlier callback.
  virtual void on_drained(std::function<void()> callback) = 0;
  // Runs the task on the strand after the delay, unless the answer is over by then. Replaces an earlier one.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;

  // Called once, on the strand, when the peer has said that it sends nothing more. It may still wait for the
  // answer, or be gone: only bytes that are written to it tell. Without this callback a stream counts as unread.
  // Replaces an earlier one.
  virtual void on_half_closed(std::function<void()> callback) = 0;
  // Called once, on the strand, if the connection ends before the answer does. Replaces an earlier callback.
  virtual void on_closed(std::function<void()> callback) = 0;
  virtual void post(std::function<void()> task) = 0;
  // The same for a task that takes long, like reading a large body. Some workers are always left for others.
  virtual void post_work(std::function<void()> task) = 0;
};

// What is decided when the header of a request is here and its body is not.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;  // the answer; the body is not read, unless it is short
  bool is_light = false;                // is answered in no time: waits for no other request
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  // Also, or with an empty host only, at this path. A socket that a dead server left there is replaced.
  std::string unix_socket_path;
  // PEM files; with them every TCP connection speaks TLS.
  std::string tls_certificate_path;
  std::string tls_key_path;
  int num_threads = 2;  // requests that are worked on at once; one thread more moves bytes
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 64 << 20;
  // Bodies from their arrival until their answers begin, and whole answers until they are sent, all together.
  // Nobody may hold more than what is still free, so that those who ask for little are served.
  size_t max_memory_bytes = size_t{256} << 20;
  std::chrono::milliseconds idle_timeout{75'000};     // between requests
  std::chrono::milliseconds request_timeout{60'000};  // for the body to arrive, and for a header to be complete
  // For which a peer may take nothing: of a whole answer, and of a stream.
  std::chrono::milliseconds write_timeout{60'000};
  std::chrono::milliseconds stream_timeout{600'000};
  // Looks at every header; may be empty.
  std::function<HttpAdmission(const HttpRequest& head)> admit;
  // Told the status of every answer; may be empty. Called by any worker.
  std::function<void(int status)> on_answer;
  // Makes the answer to a request that HTTP itself refuses (400, 408, 413, 415, 431, 500, 501, 503).
  std::function<HttpResponse(int status, std::string message)> error_response;
};

struct HttpServerStats {
  size_t connections = 0;
  size_t memory_bytes = 0, max_memory_bytes = 0;
};

// Thread-safe.
class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<HttpExchange>)>;

  // Listens and serves at once. kIo: an address can't be bound, or a file of TLS not read; kInvalidArgument:
  // the host has no address, or there is nothing to listen on.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, Handler handler);
  // Whether start() would find its addresses free and its files readable, for a caller with long work before it.
  static Status check(const HttpServerOptions& options);
  // Closes what is open, which calls on_closed of every running exchange, and joins the workers. No exchange
  // may be held after that.
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;  // 0 without TCP
  // No new connections; idle ones close now, the others after their answer.
  virtual void stop_accepting() = 0;
  // False when connections are left at the deadline.
  virtual bool wait_until_closed(std::chrono::milliseconds timeout) = 0;
  // Closes what is left, answered or not.
  virtual void close_all() = 0;
  virtual HttpServerStats stats() const = 0;
};

}  // namespace deepinfer
