// The HTTP server over a real socket: whatever a peer sends, it gets whole answers with a status and a
// length, one after another, and the connection then ends. The first byte chooses how the bytes are cut into
// writes.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "net/http_server.h"

namespace deepinfer {
namespace {

constexpr int kPatienceMs = 20'000;

void require(bool condition) {
  if (!condition) abort();
}

std::string socket_path() {
  return "/tmp/deepinfer-http-fuzz-" + std::to_string(getpid()) + ".sock";
}

// Answers whole or as a stream, by the path.
void answer(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.path.size() % 2 == 0) {
    HttpResponse response;
    response.body = std::to_string(request.body.size());
    return exchange->respond(std::move(response));
  }
  exchange->begin_stream({.status = 200, .content_type = "text/plain", .body = "a", .headers = {}});
  exchange->post([exchange] {
    exchange->write("b");
    exchange->end();
  });
}

HttpServer& server() {
  static const std::unique_ptr<HttpServer> running = [] {
    HttpServerOptions options;
    options.host = "";
    options.unix_socket_path = socket_path();
    options.num_threads = 1;
    options.max_header_bytes = 1 << 10;
    options.max_body_bytes = 4 << 10;
    options.error_response = [](int status, std::string message) {
      HttpResponse response;
      response.status = status;
      response.body = std::move(message);
      return response;
    };
    auto started = HttpServer::start(std::move(options), answer);
    require(started.ok());
    return std::move(*started);
  }();
  return *running;
}

std::string exchanged(std::string_view bytes, size_t step) {
  server();
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  socket_path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  require(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), std::min(step, bytes.size()), MSG_NOSIGNAL);
    if (sent <= 0) break;  // it was refused
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  shutdown(fd, SHUT_WR);
  std::string received;
  for (char piece[4096];;) {
    pollfd waiting = {fd, POLLIN, 0};
    require(poll(&waiting, 1, kPatienceMs) == 1);  // nothing hangs
    const ssize_t size = recv(fd, piece, sizeof(piece), 0);
    if (size <= 0) break;
    received.append(piece, static_cast<size_t>(size));
  }
  close(fd);
  return received;
}

size_t number(std::string_view text, int base) {
  size_t value = 0;
  require(std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc());
  return value;
}

// What is left after one chunked body.
std::string_view after_chunks(std::string_view text) {
  for (;;) {
    const size_t size = number(text, 16);
    const size_t line = text.find("\r\n");
    require(line != std::string_view::npos && text.size() >= line + size + 4);
    require(text.substr(line + 2 + size, 2) == "\r\n");
    text.remove_prefix(line + size + 4);
    if (size == 0) return text;
  }
}

void check(std::string_view received) {
  while (!received.empty()) {
    require(received.starts_with("HTTP/1.1 "));
    const size_t end = received.find("\r\n\r\n");
    require(end != std::string_view::npos);
    const std::string_view head = received.substr(0, end + 2);
    const size_t status = number(head.substr(9), 10);
    received.remove_prefix(end + 4);
    if (status == 100) continue;
    require(status == 200 || (status >= 400 && status < 500) || status == 501);
    constexpr std::string_view kLength = "Content-Length: ";
    const size_t length = head.find(kLength);
    if (length != std::string_view::npos) {
      const size_t size = number(head.substr(length + kLength.size()), 10);
      if (received.size() < size) return require(received.empty());  // of HEAD
      received.remove_prefix(received.starts_with("HTTP/1.1 ") && size > 0 ? 0 : size);
    } else if (head.find("Transfer-Encoding: chunked\r\n") != std::string_view::npos) {
      received = received.empty() || received.starts_with("HTTP/1.1 ") ? received : after_chunks(received);
    } else {
      return;  // HTTP/1.0: to the end of the connection
    }
  }
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t step = data[0] == 0 ? std::max<size_t>(bytes.size(), 1) : data[0];
  deepinfer::check(deepinfer::exchanged(bytes, step));
  return 0;
}
