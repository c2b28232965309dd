#include "api/responses_request.h"

#include <algorithm>

#include "api/fields.h"
#include "api/request_fields.h"
#include "api/responses_input.h"
#include "api/responses_tools.h"

namespace deepinfer {
namespace {

JsonValue copy_or_null(const JsonRef& field) {
  return given(field) ? *field.value() : JsonValue();
}

Status check_one_of(const JsonRef& field, std::initializer_list<std::string_view> known) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  std::string expected;
  for (const std::string_view candidate : known) {
    if (candidate == name) return {};
    expected += fmt::format("{}`{}`", expected.empty() ? "" : ", ", candidate);
  }
  return Error(Code::kInvalidArgument, "invalid request body: {}: unknown variant `{}`, expected one of {}",
               field.path(), name, expected);
}

// The items of this request; a text is one message of the user.
Result<JsonValue::Array> parse_items(const JsonRef& body) {
  const JsonRef input = body["input"];
  JsonValue::Array items;
  if (!given(input)) {
    if (given(body["instructions"])) return items;
    return Error(Code::kInvalidArgument, "Either input or instructions must be provided");
  }
  if (const std::string* text = input.value()->string()) {
    JsonValue::Object block = {{"type", "input_text"}, {"text", *text}};
    items.emplace_back(JsonValue::Object{
        {"type", "message"}, {"role", "user"}, {"content", JsonValue::Array{JsonValue(std::move(block))}}});
    return items;
  }
  if (input.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: input should be a string or a list of input items", input.path());
  }
  if (input.value()->array()->empty())
    return Error(Code::kInvalidArgument, "Input items array must not be empty");
  for (const JsonValue& item : *input.value()->array()) {
    JsonValue copy = item;
    JsonValue::Object* object = copy.object();
    if (object != nullptr && copy.find("type") == nullptr)
      object->insert(object->begin(), {"type", "message"});
    items.push_back(std::move(copy));
  }
  return items;
}

Status parse_reasoning(const JsonRef& field, ResponsesRequest& request, Thinking& asked) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  RETURN_IF_ERROR(parse_effort(field["effort"], request.conversation, asked));
  RETURN_IF_ERROR(parse_thinking_budget(field["max_tokens"], request));
  RETURN_IF_ERROR(check_one_of(field["summary"], {"auto", "concise", "detailed"}));
  request.echo.effort = copy_or_null(field["effort"]);
  request.echo.summary = copy_or_null(field["summary"]);
  return {};
}

Status parse_text(const JsonRef& field, ResponsesRequest& request) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  RETURN_IF_ERROR(parse_response_format(field["format"], request));
  if (given(field["format"])) request.echo.text_format = *field["format"].value();
  RETURN_IF_ERROR(check_one_of(field["verbosity"], {"low", "medium", "high"}));
  request.echo.verbosity = copy_or_null(field["verbosity"]);
  return {};
}

Status parse_include(const JsonRef& field, ResponsesRequest& request) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const auto names, required_array(field));
  for (const JsonRef& name : names) {
    ASSIGN_OR_RETURN(const std::string text, required_string(name));
    if (text == "reasoning.encrypted_content") request.seals_reasoning = true;
    if (text == "message.output_text.logprobs" && !request.top_logprobs) request.top_logprobs = 0;
  }
  return {};
}

Status parse_logprobs(const JsonRef& field, ResponsesRequest& request) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const int64_t top, integer_field(field));
  if (top < 0 || top > kMaxTopLogprobs) {
    return Error(Code::kInvalidArgument,
                 "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].");
  }
  request.top_logprobs = static_cast<int32_t>(top);
  request.echo.top_logprobs = top;
  return {};
}

Status parse_input(const JsonRef& body, const ResponsesContext& context, ResponsesRequest& request) {
  Conversation& conversation = request.conversation;
  ASSIGN_OR_RETURN(request.input_items, parse_items(body));
  if (given(body["instructions"])) {
    Message& message = conversation.messages.emplace_back();
    message.role = Role::kSystem;
    ASSIGN_OR_RETURN(message.content, required_string(body["instructions"]));
  }
  ResponsesInput input(context, conversation);
  RETURN_IF_ERROR(input.read(context.history, "previous"));
  RETURN_IF_ERROR(input.read(request.input_items, "input"));
  RETURN_IF_ERROR(input.finish());
  if (!conversation.messages.empty()) return {};
  return Error(Code::kInvalidArgument, "input: expected at least one supported item");
}

Status parse_switches(const JsonRef& body, const ResponsesContext& context, ResponsesRequest& request) {
  ResponsesEcho& echo = request.echo;
  ASSIGN_OR_RETURN(request.stream, boolean_or(body["stream"], false));
  ASSIGN_OR_RETURN(const bool store, boolean_or(body["store"], true));
  echo.store = store && context.store_by_default;
  ASSIGN_OR_RETURN(echo.background, boolean_or(body["background"], false));
  if (echo.background && request.stream) {
    return unsupported("background", "with stream; read the response by its id instead");
  }
  if (echo.background && !echo.store) {
    return Error(Code::kInvalidArgument,
                 "background: it requires `store: true`");
  }
  ASSIGN_OR_RETURN(request.parallel_tool_calls, boolean_or(body["parallel_tool_calls"], true));
  echo.parallel_tool_calls = request.parallel_tool_calls;
  RETURN_IF_ERROR(check_one_of(body["truncation"], {"auto", "disabled"}));
  ASSIGN_OR_RETURN(const std::string truncation, string_or(body["truncation"], "disabled"));
  request.drops_old_turns = truncation == "auto";
  return {};
}

// What is repeated as it came.
void copy_echo(const JsonRef& body, ResponsesRequest& request) {
  ResponsesEcho& echo = request.echo;
  echo.instructions = copy_or_null(body["instructions"]);
  echo.max_output_tokens = copy_or_null(body["max_output_tokens"]);
  echo.previous_response_id = copy_or_null(body["previous_response_id"]);
  echo.prompt_cache_key = copy_or_null(body["prompt_cache_key"]);
  echo.safety_identifier = copy_or_null(body["safety_identifier"]);
  echo.user = copy_or_null(body["user"]);
  echo.tools = echo_tools(body["tools"]);
  if (given(body["tool_choice"])) echo.tool_choice = *body["tool_choice"].value();
  if (given(body["metadata"])) echo.metadata = *body["metadata"].value();
  if (given(body["truncation"])) echo.truncation = *body["truncation"].value();
  echo.temperature = request.sampling.temperature;
  echo.top_p = request.sampling.top_p;
  echo.presence_penalty = request.sampling.presence_penalty;
  echo.frequency_penalty = request.sampling.frequency_penalty;
}

}  // namespace

Result<std::optional<std::string>> previous_response_id(const JsonValue& body) {
  const JsonRef field = JsonRef(body)["previous_response_id"];
  if (!given(field)) return std::optional<std::string>();
  ASSIGN_OR_RETURN(std::string id, required_string(field));
  return std::optional<std::string>(std::move(id));
}

Result<ResponsesRequest> parse_responses_request(const JsonValue& json, const ResponsesContext& context) {
  const JsonRef body(json);
  RETURN_IF_ERROR(check_unsupported(body, kResponsesPath));
  ResponsesRequest request;
  Conversation& conversation = request.conversation;
  Thinking asked = Thinking::kDefault;
  RETURN_IF_ERROR(parse_model(body["model"], context.served_model, ModelNames::kDeepSeek, conversation));
  RETURN_IF_ERROR(parse_thinking_switches(body, conversation, asked));
  RETURN_IF_ERROR(parse_reasoning(body["reasoning"], request, asked));
  RETURN_IF_ERROR(parse_input(body, context, request));
  ASSIGN_OR_RETURN(conversation.tools, parse_responses_tools(body["tools"], ToolNamesRule::kUnique));
  RETURN_IF_ERROR(parse_responses_choice(body["tool_choice"], conversation));
  settle_tool_choice(asked, conversation);
  RETURN_IF_ERROR(parse_sampling(body, request));
  RETURN_IF_ERROR(parse_max_tokens(body, "max_output_tokens", request));
  RETURN_IF_ERROR(parse_stop(body["stop"], request));
  RETURN_IF_ERROR(parse_logprobs(body["top_logprobs"], request));
  RETURN_IF_ERROR(parse_include(body["include"], request));
  RETURN_IF_ERROR(parse_text(body["text"], request));
  RETURN_IF_ERROR(parse_grammar_fields(body, request));
  RETURN_IF_ERROR(parse_switches(body, context, request));
  ASSIGN_OR_RETURN(request.user_id, string_or(body["user_id"], ""));
  copy_echo(body, request);
  return request;
}

}  // namespace deepinfer
