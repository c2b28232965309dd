// Bytes to and from a server over TCP or TLS, for protocols that are not HTTP. Every call has a deadline that holds for the
// whole of it, however slowly the server drips.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "net/endpoint.h"

namespace deepinfer {

// Thread-compatible. After an error the connection is of no more use.
class ClientStream {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Looks the name up, connects, shakes hands. kUnavailable; kDeadlineExceeded (a name server that hangs may hold it longer).
  static Result<std::unique_ptr<ClientStream>> connect(const Endpoint& endpoint, TimePoint deadline);
  virtual ~ClientStream() = default;

  virtual Status write(std::span<const std::byte> bytes, TimePoint deadline) = 0;  // all of them
  // What has come, at least one byte. kUnavailable when the server closed.
  virtual Result<size_t> read(std::span<std::byte> out, TimePoint deadline) = 0;
};

}  // namespace deepinfer
