// Request fields that several protocols have. Private to the room. Each reader leaves what is absent or null
// alone and names the JSON path of a fault.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "api/generation.h"
#include "json/json.h"

namespace deepinfer {

inline constexpr int64_t kMaxTokensBound = 393216;
inline constexpr int32_t kMaxAnswers = 128;  // `n`
inline constexpr int64_t kMaxTopLogprobs = 20;

// The body as an object: kInvalidArgument "invalid JSON request: ..." or "invalid request body: ...".
Result<JsonValue> parse_request_body(std::string_view text);

// Which names a path takes beside the served model's own.
enum class ModelNames { kDeepSeek, kDeepSeekAndClaude };
// Sets the default of the thinking switch. kNotFound: a model that is not served.
Status parse_model(const JsonRef& field, std::string_view served_model, ModelNames names,
                   Conversation& conversation);

// Whether the client itself asked for thinking. A forced tool choice then is an error; without it, it turns
// thinking off.
enum class Thinking { kDefault, kAsked };

// An effort by name, or a number from 1 to 100; "none" turns thinking off.
Status parse_effort(const JsonRef& field, Conversation& conversation, Thinking& asked);
// {"type": "enabled" | "adaptive" | "disabled", "budget_tokens": n}; wins over an effort.
Status parse_thinking(const JsonRef& field, GenerationRequest& request, Thinking& asked);
// The most tokens of thinking.
Status parse_thinking_budget(const JsonRef& field, GenerationRequest& request);

Error out_of_range(std::string_view name, std::string_view range);
Result<int64_t> integer_field(const JsonRef& field);

// enable_thinking and think, as other servers take them: a boolean, or an effort by name.
Status parse_thinking_switches(const JsonRef& body, Conversation& conversation, Thinking& asked);

// temperature, top_p, top_k, min_p, seed, penalties, logit_bias; what ends an answer and what it may hold by token ids;
// whose cache it shares; the switches `salvage` and `speculation`, and `context_mode`.
Status parse_sampling(const JsonRef& body, GenerationRequest& request);

// Where a field is not done. kUnimplemented names the first one that asks for something.
enum Path : unsigned { kChatPath = 1, kResponsesPath = 2, kMessagesPath = 4, kCompletionsPath = 8, kAnyPath = 15 };
Status check_unsupported(const JsonRef& body, Path path);
// The field `name` of the path, or one of the names that other services and servers have for it.
Status parse_max_tokens(const JsonRef& body, std::string_view name, GenerationRequest& request);
// Answers are not ranked: anything but n is kUnimplemented.
Status check_best_of(const JsonRef& field, int32_t n);
// A string or at most 16 strings, none of them empty.
Status parse_stop(const JsonRef& field, GenerationRequest& request);

// ---- Tools ----

Status check_tool_name(const JsonRef& field, std::string_view name);
// The schema as received; absent means no parameters.
Result<JsonValue> parse_tool_schema(const JsonRef& field, std::string_view tool);
// Keeps that tool only and forces it. `field`: the choice, for messages.
Status choose_tool(std::string_view name, const JsonRef& field, Conversation& conversation);
// Keeps the tools of these names; {"mode": "auto" | "required"} says whether one is forced.
Status choose_among(const std::vector<std::string>& names, const JsonRef& field, Conversation& conversation);
// A call is forced only where there is a tool to call.
Status check_forced(const JsonRef& field, const Conversation& conversation);
// Tools and choice together: thinking that nobody asked for gives way to a forced choice.
void settle_tool_choice(Thinking asked, Conversation& conversation);

// ---- Formats ----

// {"type": "text" | "json_object" | "json_schema" | "regex", ...}: shown to the model and enforced. The
// schema stands in `json_schema.schema` (Chat Completions) or in `schema` (the others).
Status parse_response_format(const JsonRef& field, GenerationRequest& request);
// Grammars under the names of other servers: structured_outputs and guided_* (vLLM), regex, ebnf and json_schema
// (SGLang), grammar (llama.cpp), so_args (DeepInfer).
Status parse_grammar_fields(const JsonRef& body, GenerationRequest& request);

}  // namespace deepinfer
