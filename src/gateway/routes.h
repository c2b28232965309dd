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
  bool open = false;   // needs no API key
  bool light = false;  // takes no time: waits for no other request
};
const std::vector<Route>& routes();

// What can be said before a body is read: paths, methods, keys, hosts, origins.
HttpAdmission admit(GatewayCore& core, const HttpRequest& head);
// Everything that was admitted: request ids, then the route's handler.
void route(GatewayCore& core, const ExchangePtr& exchange);

// ---- Handlers that have files of their own ----
void show_page(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void show_planner(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_chat(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_messages(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void count_message_tokens(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_completions(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void answer_responses(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void count_response_tokens(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void refuse_compaction(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void show_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id);
void delete_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id);
void list_input_items(GatewayCore& core, const ExchangePtr& exchange, const std::string& id);
void cancel_response(GatewayCore& core, const ExchangePtr& exchange, const std::string& id);
// Says of responses that ran when an earlier server ended that they failed.
void settle_unfinished_responses(ResponseStore& store);
void tokenize_text(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void detokenize_ids(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);
void render_prompt(GatewayCore& core, const ExchangePtr& exchange, const std::string& name);

// ---- Text of a request's path and query ----
// An invalid escape stays as it is.
std::string percent_decoded(std::string_view text);
// For a message: non-ASCII bytes become question marks.
std::string plain_ascii(std::string_view text);

}  // namespace deepinfer
