#include "api/messages_request.h"

#include <algorithm>
#include <set>

#include "api/fields.h"
#include "api/messages_input.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

// A server tool names its kind; "custom" is the explicit default.
bool is_server_tool(const JsonRef& type) {
  return given(type) && (type.value()->string() == nullptr || *type.value()->string() != "custom");
}

Status parse_tools(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const auto tools, required_array(field));
  std::set<std::string> names;
  for (const JsonRef& tool : tools) {
    if (const auto object = tool.object(); !object.ok()) return invalid_body(object.error());
    if (is_server_tool(tool["type"])) continue;
    ToolDefinition definition;
    ASSIGN_OR_RETURN(definition.name, required_string(tool["name"]));
    RETURN_IF_ERROR(check_tool_name(tool["name"], definition.name));
    ASSIGN_OR_RETURN(definition.description, string_or(tool["description"], ""));
    if (!given(tool["input_schema"])) {
      return Error(Code::kInvalidArgument, "{}: missing input_schema", tool.path());
    }
    ASSIGN_OR_RETURN(definition.parameters, parse_tool_schema(tool["input_schema"], definition.name));
    ASSIGN_OR_RETURN(definition.strict, boolean_or(tool["strict"], false));
    ASSIGN_OR_RETURN(definition.deferred, boolean_or(tool["defer_loading"], false));
    if (!names.insert(definition.name).second)
      return Error(Code::kInvalidArgument, "Tool names must be unique.");
    conversation.tools.push_back(std::move(definition));
  }
  const auto is_deferred = [](const ToolDefinition& tool) { return tool.deferred; };
  if (!conversation.tools.empty() &&
      std::all_of(conversation.tools.begin(), conversation.tools.end(), is_deferred)) {
    return Error(Code::kInvalidArgument,
                 "tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
  }
  return {};
}

Status parse_choice(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  Conversation& conversation = request.conversation;
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const bool serial, boolean_or(field["disable_parallel_tool_use"], false));
  request.parallel_tool_calls = !serial;
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  constexpr std::pair<std::string_view, ToolChoice> kChoices[] = {
      {"auto", ToolChoice::kAuto}, {"none", ToolChoice::kNone}, {"any", ToolChoice::kRequired}};
  for (const auto& [name, value] : kChoices) {
    if (type != name) continue;
    conversation.tool_choice = value;
    return check_forced(field, conversation);
  }
  if (type == "tool") {
    ASSIGN_OR_RETURN(const std::string name, required_string(field["name"]));
    return choose_tool(name, field, conversation);
  }
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `auto`, `any`, `tool`, `none`",
      field["type"].path(), type);
}

// Thinking is never summarised: what is shown is all of it.
Status parse_display(const JsonRef& field, MessagesRequest& request) {
  ASSIGN_OR_RETURN(const std::string display, string_or(field, "summarized"));
  request.hides_thinking = display == "omitted";
  if (request.hides_thinking || display == "summarized") return {};
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: unknown variant `{}`, expected one of `summarized`, `omitted`", field.path(),
               display);
}

Status parse_limits(const JsonRef& body, GenerationRequest& request) {
  if (given(body["max_tokens"])) {
    ASSIGN_OR_RETURN(const int64_t value, integer_field(body["max_tokens"]));
    if (value < 1) return out_of_range("max_tokens", fmt::format("[1, {}]", kMaxTokensBound));
    request.max_tokens = std::min(value, kMaxTokensBound);
  } else {
    RETURN_IF_ERROR(parse_max_tokens(body, "max_tokens", request));
  }
  const JsonRef stops = body["stop_sequences"];
  if (given(stops) && stops.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: found {}, expected a list of strings",
                 stops.path(), stops.value()->kind_name());
  }
  return parse_stop(stops, request);
}

Status parse_output_config(const JsonRef& field, GenerationRequest& request, Thinking& asked) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  RETURN_IF_ERROR(parse_effort(field["effort"], request.conversation, asked));
  return parse_response_format(field["format"], request);
}

// What can't be kept to when the client has begun the answer.
Status check_prefix(const GenerationRequest& request) {
  const Conversation& conversation = request.conversation;
  if (!conversation.messages.back().is_prefix) return {};
  const bool strict =
      conversation.tools_active() && std::any_of(conversation.tools.begin(), conversation.tools.end(),
                                                 [](const ToolDefinition& tool) { return tool.strict; });
  const char* beside = conversation.response_format.kind != ResponseFormat::Kind::kText ? "a format of the answer"
                       : strict                                                         ? "strict tools"
                       : conversation.tool_choice == ToolChoice::kRequired              ? "a forced call"
                                                                                        : nullptr;
  if (beside == nullptr) return {};
  return Error(Code::kInvalidArgument,
               "messages: found {} beside a last message of the assistant, which the answer "
               "continues; expected one of both",
               beside);
}

}  // namespace

Result<MessagesRequest> parse_messages_request(std::string_view text, std::string_view served_model) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_request_body(text));
  const JsonRef body(json);
  RETURN_IF_ERROR(check_unsupported(body, kMessagesPath));
  if (given(body["thread"])) return Error(Code::kUnimplemented, "{}", kNoThreads);
  MessagesRequest request;
  Conversation& conversation = request.conversation;
  RETURN_IF_ERROR(parse_model(body["model"], served_model, ModelNames::kDeepSeekAndClaude, conversation));
  Thinking asked = Thinking::kDefault;
  RETURN_IF_ERROR(parse_thinking_switches(body, conversation, asked));
  RETURN_IF_ERROR(parse_output_config(body["output_config"], request, asked));
  RETURN_IF_ERROR(parse_thinking(body["thinking"], request, asked));
  RETURN_IF_ERROR(parse_display(body["thinking"]["display"], request));
  RETURN_IF_ERROR(parse_tools(body["tools"], conversation));
  RETURN_IF_ERROR(parse_messages_input(body, conversation));
  if (conversation.messages.back().is_prefix && asked == Thinking::kDefault) conversation.thinking = false;
  RETURN_IF_ERROR(parse_choice(body["tool_choice"], request));
  settle_tool_choice(asked, conversation);
  RETURN_IF_ERROR(parse_response_format(body["output_format"], request));
  RETURN_IF_ERROR(check_prefix(request));
  RETURN_IF_ERROR(parse_grammar_fields(body, request));
  RETURN_IF_ERROR(parse_sampling(body, request));
  RETURN_IF_ERROR(parse_limits(body, request));
  ASSIGN_OR_RETURN(request.stream, boolean_or(body["stream"], false));
  if (given(body["metadata"])) {
    if (const auto object = body["metadata"].object(); !object.ok()) return invalid_body(object.error());
    ASSIGN_OR_RETURN(request.user_id, string_or(body["metadata"]["user_id"], ""));
  }
  return request;
}

}  // namespace deepinfer
