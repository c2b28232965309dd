// Where a server is.
#pragma once

#include <string>

#include "base/status.h"

namespace deepinfer {

struct Endpoint {
  bool tls = false;
  std::string host, port;
};

// http://HOST[:PORT] or https://HOST[:PORT], a slash at the end or not. kInvalidArgument.
Result<Endpoint> parse_http_endpoint(const std::string& url);
// What a Host header says: the port is left out where it is the usual one.
std::string http_authority(const Endpoint& endpoint);

}  // namespace deepinfer
