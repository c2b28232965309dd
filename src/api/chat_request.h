// POST /v1/chat/completions: the request (docs/spec/recipe.md 7.1).
#pragma once

#include <string_view>
#include <vector>

#include "api/generation.h"
#include "base/status.h"
#include "json/json.h"

namespace deepinfer {

struct ChatRequest : GenerationRequest {
  bool include_usage = false;  // every chunk has the field "usage"
  bool usage_apart = false;    // the usage comes in a chunk of its own, without choices, as OpenAI sends it
  bool usage_always = false;   // every chunk has the usage so far
  bool legacy_functions = false;  // declared as `functions`: the answer has a function_call
  std::string echo;               // the answer begins with it: the client's text that it continues
};

// Codes: kInvalidArgument names the JSON path and what was expected; kUnimplemented a parameter that this
// server does not do yet (it is never ignored silently); kNotFound a model that is not served. Unknown fields
// are ignored. `served_model` is the name clients see; the names of DeepSeek's own service are accepted as
// aliases.
//
// A temperature or top_p that the client gives is honoured with thinking on and off, where DeepSeek's service
// fixes or clamps it; the default of both is 1.
Result<ChatRequest> parse_chat_request(std::string_view body, std::string_view served_model);

// The "messages" array alone. `lenient_history`: a call without a result gets an empty one instead of an
// error.
Result<std::vector<Message>> parse_chat_messages(const JsonRef& messages, bool lenient_history = false);

// "action", "query", ...: the "task" of a message.
Result<Task> parse_task_name(const JsonRef& field);

}  // namespace deepinfer
