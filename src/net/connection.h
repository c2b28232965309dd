// One connection: reads a request, answers it, and again. Private to the room; includes Boost.Asio.
#pragma once

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "net/http_server.h"
#include "net/memory_budget.h"
#include "net/work_gate.h"

namespace deepinfer {

using Socket = boost::asio::generic::stream_protocol::socket;  // TCP or Unix

// What the server asks of a connection. Callable from any thread.
class ListedConnection : public std::enable_shared_from_this<ListedConnection> {
 public:
  virtual ~ListedConnection() = default;
  virtual void close_if_idle() = 0;
  virtual void close_now() = 0;
};

// What connections share. Outlives them.
struct ServerState {
  ServerState(HttpServerOptions given, HttpServer::Handler answer)
      : options(std::move(given)),
        handler(std::move(answer)),
        budget(options.max_memory_bytes),
        gate(options.num_threads) {}

  const HttpServerOptions options;
  const HttpServer::Handler handler;
  MemoryBudget budget;
  WorkGate gate;
  std::atomic<bool> draining{false};  // set once, before connections are told; they read it at the end of an answer
  std::atomic<uint64_t> last_connection{0};
  mutable std::mutex mu;
  std::condition_variable all_closed;
  std::set<ListedConnection*> connections;  // guarded by mu
};

// Serves the socket until either side closes it. `tls` may be null.
void start_connection(Socket socket, boost::asio::ssl::context* tls, ServerState& server);

}  // namespace deepinfer
