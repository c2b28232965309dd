// "tools" and "tool_choice" (docs/spec/recipe.md 4.6, 4.7).
#include "api/chat_tools.h"

#include <set>
#include <utility>

#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

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
  RETURN_IF_ERROR(check_tool_name(function["name"], tool.name));
  ASSIGN_OR_RETURN(tool.description, string_or(function["description"], ""));
  ASSIGN_OR_RETURN(tool.parameters, parse_tool_schema(function["parameters"], tool.name));
  ASSIGN_OR_RETURN(tool.strict, boolean_or(function["strict"], false));
  return tool;
}

Status choose_named(const JsonRef& field, Conversation& conversation) {
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  ASSIGN_OR_RETURN(const std::string name, required_string(field["function"]["name"]));
  if (type != "function") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `function`", field["type"].path(),
                 type);
  }
  return choose_tool(name, conversation);
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
  return parse_choice(body["tool_choice"], conversation);
}

}  // namespace deepinfer
