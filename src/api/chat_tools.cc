// "tools" and "tool_choice" (recipe.md 4.6, 4.7).
#include "api/chat_tools.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/fields.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxNameBytes = 128;

Status check_name(const JsonRef& field, std::string_view name) {
  if (name.empty()) {
    return Error(Code::kInvalidArgument,
                 "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
                 "string instead.",
                 field.path());
  }
  if (name.size() > kMaxNameBytes) {
    return Error(Code::kInvalidArgument,
                 "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string "
                 "with length "
                 "{} instead.",
                 field.path(), kMaxNameBytes, name.size());
  }
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (plain) return {};
  return Error(Code::kInvalidArgument,
               "Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
               "'^[a-zA-Z0-9_-]+$'.",
               field.path());
}

// The schema as received; absent means no parameters. Whether it is a valid schema matters once it is
// enforced.
Result<JsonValue> parse_parameters(const JsonRef& field, std::string_view tool) {
  if (!given(field)) return JsonValue(JsonValue::Object{});
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  const JsonRef type = field["type"];
  if (type.present() && type.value()->string() != nullptr && *type.value()->string() == "object") {
    return *field.value();
  }
  return Error(
      Code::kInvalidArgument,
      "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
      tool, type.present() ? to_json(*type.value()) : "null");
}

Result<ToolDefinition> parse_tool(const JsonRef& field) {
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type != "function") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `function`", field["type"].path(),
                 type);
  }
  const JsonRef function = field["function"];
  if (!function.present()) return missing_field(function);
  ToolDefinition tool;
  ASSIGN_OR_RETURN(tool.name, required_string(function["name"]));
  RETURN_IF_ERROR(check_name(function["name"], tool.name));
  ASSIGN_OR_RETURN(tool.description, string_or(function["description"], ""));
  ASSIGN_OR_RETURN(tool.parameters, parse_parameters(function["parameters"], tool.name));
  ASSIGN_OR_RETURN(const bool strict, boolean_or(function["strict"], false));
  if (strict) return unsupported(function["strict"].path(), "schemas are not enforced");
  return tool;
}

// A forced call keeps its tool only.
Status choose_named(const JsonRef& field, Conversation& conversation) {
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  ASSIGN_OR_RETURN(const std::string name, required_string(field["function"]["name"]));
  if (type != "function") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `function`", field["type"].path(),
                 type);
  }
  if (conversation.tools.empty()) return {};
  std::erase_if(conversation.tools, [&name](const ToolDefinition& tool) { return tool.name != name; });
  if (conversation.tools.empty()) {
    return Error(
        Code::kInvalidArgument,
        "Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' parameter.",
        name);
  }
  conversation.tool_choice = ToolChoice::kRequired;
  return {};
}

Status parse_choice(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  if (field.value()->object() != nullptr) return choose_named(field, conversation);
  const std::string* choice = field.value()->string();
  constexpr std::pair<std::string_view, ToolChoice> kChoices[] = {
      {"auto", ToolChoice::kAuto}, {"none", ToolChoice::kNone}, {"required", ToolChoice::kRequired}};
  for (const auto& [name, value] : kChoices) {
    if (choice == nullptr || *choice != name) continue;
    conversation.tool_choice = value;
    return {};
  }
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: expected one of `none`, `auto`, `required` or a tool",
               field.path());
}

}  // namespace

Status parse_chat_tools(const JsonRef& body, Conversation& conversation) {
  if (given(body["tools"])) {
    ASSIGN_OR_RETURN(const auto tools, required_array(body["tools"]));
    std::set<std::string> names;
    for (const JsonRef& field : tools) {
      ASSIGN_OR_RETURN(ToolDefinition tool, parse_tool(field));
      if (!names.insert(tool.name).second) return Error(Code::kInvalidArgument, "Tool names must be unique.");
      conversation.tools.push_back(std::move(tool));
    }
  }
  RETURN_IF_ERROR(parse_choice(body["tool_choice"], conversation));
  const bool forced = conversation.tool_choice == ToolChoice::kRequired && conversation.tools_active();
  if (forced && conversation.thinking) {
    return Error(Code::kInvalidArgument, "Thinking mode does not support this tool_choice");
  }
  return {};
}

}  // namespace deepinfer
