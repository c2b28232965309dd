// POST /v1/chat/completions: the request (recipe.md 7.1 with its amendments).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "recipe/recipe.h"
#include "sampling/sampling.h"

namespace deepinfer {

struct ChatRequest {
  Conversation conversation;
  SamplingParams sampling;       // sampling.seed is left 0; see seed
  std::optional<uint64_t> seed;  // absent: the server takes any
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop_sequences;
  bool parallel_tool_calls = true;
  bool stream = false;
  bool include_usage = false;
};

// Codes: kInvalidArgument names the JSON path and what was expected; kUnimplemented a parameter that this
// server does not do yet (it is never ignored silently); kNotFound a model that is not served. Unknown fields
// are ignored. `served_model` is the name clients see; the names of DeepSeek's own service are accepted as
// aliases.
//
// A temperature or top_p that the client gives is honoured with thinking on and off, where DeepSeek's service
// fixes or clamps it; the default of both is 1.
Result<ChatRequest> parse_chat_request(std::string_view body, std::string_view served_model);

// The "messages" array alone.
Result<std::vector<Message>> parse_chat_messages(const JsonRef& messages);

// How many tokens may be generated: what the request says, or 8192 without thinking, 65536 with, 131072 with
// effort max, lowered to what the context leaves (amendment B23). kInvalidArgument when prompt and answer do
// not fit.
Result<int64_t> resolve_max_tokens(const ChatRequest& request, int64_t prompt_tokens, int64_t context_tokens);

}  // namespace deepinfer
