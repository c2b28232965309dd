// Which handler answers which method and path. Private to the room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gateway/core.h"

namespace deepinfer {

// `name` is what stands in the place of the pattern's '*', percent-decoded.
using RouteHandler = void (*)(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);

struct Route {
  std::string_view method;   // GET also answers HEAD
  std::string_view pattern;  // a plain path; one '*' stands for a name
  RouteHandler handle;
  bool open = false;  // needs no API key
};
const std::vector<Route>& routes();

// Everything that comes in: request ids, keys, origins, then the route's handler.
void route(GatewayCore& core, const ExchangePtr& exchange);

// ---- Handlers that have files of their own ----
void show_page(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_chat(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_messages(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void count_message_tokens(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);

}  // namespace deepinfer
