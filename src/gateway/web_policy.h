// What keeps web pages away from a server on somebody's own machine. A browser sends requests of any page to any
// address without asking, and a page may give its own name any address (DNS rebinding) and then read the answers too.
// Private to the room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/http_server.h"

namespace deepinfer {

struct WebPolicy {
  // Names under which the server may be asked, beside localhost and bare addresses; "*": any.
  std::vector<std::string> hosts;
  std::string allow_origin;  // whose pages may ask beside the server's own; "*": all, empty: none
  bool checks_hosts = true;  // not where a key is asked for: pages do not have it
};

struct WebRefusal {
  int status;
  std::string message;
};

std::optional<WebRefusal> check_web_policy(const WebPolicy& policy, const HttpRequest& request);
// Whether the answer to this request may be read by the page that asks: its origin, or "*"; empty: there is none to
// name.
std::string readable_origin(const WebPolicy& policy, const HttpRequest& request);

}  // namespace deepinfer
