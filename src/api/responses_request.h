// POST /v1/responses: the request (docs/spec/recipe.md 8.1).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/generation.h"
#include "json/json.h"

namespace deepinfer {

// What the server brings to a request.
struct ResponsesContext {
  std::string_view served_model;
  bool store_by_default = true;
  // Items of earlier responses, oldest first, when the request names a previous one.
  JsonValue::Array history = {};
  // The text in an encrypted_content that this server made; nullopt for any other. May be empty.
  std::function<std::optional<std::string>(std::string_view)> open_sealed = {};
  // An output item of a stored response by its id; nullopt when there is none. May be empty.
  std::function<std::optional<JsonValue>(const std::string&)> find_item = {};
};

// The settings that the response object repeats, as JSON.
struct ResponsesEcho {
  JsonValue instructions, max_output_tokens,
      metadata = JsonValue(JsonValue::Object{}), previous_response_id, prompt_cache_key, effort, summary,
      text_format = JsonValue(JsonValue::Object{{"type", "text"}}), verbosity, safety_identifier,
      tool_choice = JsonValue("auto"), tools = JsonValue(JsonValue::Array{}),
      truncation = JsonValue("disabled"), user;
  double temperature = 1, top_p = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t top_logprobs = 0;
  bool parallel_tool_calls = true;
  bool store = false;
  bool background = false;
};

struct ResponsesRequest : GenerationRequest {
  ResponsesEcho echo;
  JsonValue::Array input_items;  // of this request alone, each with a type
  bool seals_reasoning = false;  // include: reasoning.encrypted_content
};

// "previous_response_id" of a body; nullopt when it names none. Read before the rest, so that the history is
// at hand.
Result<std::optional<std::string>> previous_response_id(const JsonValue& body);

// Codes as parse_chat_request; faults name their place in the input.
Result<ResponsesRequest> parse_responses_request(const JsonValue& body, const ResponsesContext& context);

}  // namespace deepinfer
