// A client of one HTTP/1.1 server: several connections that stay open, a deadline for every call. Boost.Asio and Beast stay
// inside http_client.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/endpoint.h"

namespace deepinfer {

struct HttpCall {
  std::string method;  // "GET"
  std::string target;  // percent-encoded
  std::vector<std::pair<std::string, std::string>> headers = {};  // Host and Content-Length are the client's
  std::string body = {};
};

struct HttpAnswer {
  enum class Outcome { kAnswered, kTimeout, kFailed, kTooLarge } outcome = Outcome::kFailed;
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};

  // The first header of that name in any case; empty when absent. Borrowed from the answer.
  std::string_view header(std::string_view name) const;
};

// Thread-compatible: one run() at a time.
class HttpClient {
 public:
  static std::unique_ptr<HttpClient> make(const Endpoint& endpoint, size_t num_connections);
  virtual ~HttpClient() = default;

  struct Limits {
    std::chrono::steady_clock::time_point deadline;
    uint64_t body_bytes = 0;  // of an answer; a longer one is kTooLarge
  };
  // `count` calls, several at a time: make(i) before it is sent, take(i, answer) once for each i, on this thread. One attempt
  // each; a second one only where a connection that had been idle turns out to be closed. What was not begun before the
  // deadline is kTimeout. The server's name is looked up with the first call, and again after a failure.
  virtual void run(size_t count, const Limits& limits, const std::function<HttpCall(size_t)>& make,
                   const std::function<void(size_t, HttpAnswer)>& take) = 0;
};

}  // namespace deepinfer
