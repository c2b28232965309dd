// "tools" and "tool_choice" (docs/spec/recipe.md 4.6, 4.7).
#include "api/chat_tools.h"

#include <set>
#include <utility>

#include "api/fields.h"
#include "api/request_fields.h"
#include "api/responses_tools.h"

namespace deepinfer {
namespace {

Error unknown_type(const JsonRef& field, std::string_view type, std::string_view expected) {
  return Error(Code::kInvalidArgument, "invalid request body: {}: unknown variant `{}`, expected {}", field.path(),
               type, expected);
}

Result<ToolDefinition> parse_function(const JsonRef& function) {
  if (!function.present()) return missing_field(function);
  ToolDefinition tool;
  ASSIGN_OR_RETURN(tool.name, required_string(function["name"]));
  RETURN_IF_ERROR(check_tool_name(function["name"], tool.name));
  ASSIGN_OR_RETURN(tool.description, string_or(function["description"], ""));
  ASSIGN_OR_RETURN(tool.parameters, parse_tool_schema(function["parameters"], tool.name));
  ASSIGN_OR_RETURN(tool.strict, boolean_or(function["strict"], false));
  return tool;
}

// {"type": "function", "function": {...}} or {"type": "custom", "custom": {...}}
Result<ToolDefinition> parse_tool(const JsonRef& field) {
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type == "function") return parse_function(field["function"]);
  if (type == "custom") {
    if (!field["custom"].present()) return missing_field(field["custom"]);
    return parse_custom_tool(field["custom"]);
  }
  return unknown_type(field["type"], type, "`function` or `custom`");
}

// The tool that such an object names.
Result<std::string> named_tool(const JsonRef& field) {
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type == "function" || type == "custom") return required_string(field[type]["name"]);
  return unknown_type(field["type"], type, "`function`, `custom` or `allowed_tools`");
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools": [...]}}
Status choose_allowed(const JsonRef& field, Conversation& conversation) {
  ASSIGN_OR_RETURN(const auto elements, required_array(field["tools"]));
  std::vector<std::string> names;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(std::string name, named_tool(element));
    names.push_back(std::move(name));
  }
  return choose_among(names, field, conversation);
}

Status choose_object(const JsonRef& field, Conversation& conversation) {
  const JsonRef type = field["type"];
  const bool allows = type.present() && type.value()->string() != nullptr && *type.value()->string() == "allowed_tools";
  if (allows) return choose_allowed(field["allowed_tools"], conversation);
  ASSIGN_OR_RETURN(const std::string name, named_tool(field));
  return choose_tool(name, field, conversation);
}

Status parse_choice(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  if (field.value()->object() != nullptr) return choose_object(field, conversation);
  const std::string* choice = field.value()->string();
  constexpr std::pair<std::string_view, ToolChoice> kChoices[] = {
      {"auto", ToolChoice::kAuto}, {"none", ToolChoice::kNone}, {"required", ToolChoice::kRequired}};
  for (const auto& [name, value] : kChoices) {
    if (choice == nullptr || *choice != name) continue;
    conversation.tool_choice = value;
    return check_forced(field, conversation);
  }
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: expected one of `none`, `auto`, `required` or a tool",
               field.path());
}

template <typename ParseTool>
Status parse_list(const JsonRef& field, ParseTool parse, std::vector<ToolDefinition>& out) {
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  std::set<std::string> names;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(ToolDefinition tool, parse(element));
    if (!names.insert(tool.name).second) return Error(Code::kInvalidArgument, "Tool names must be unique.");
    out.push_back(std::move(tool));
  }
  return {};
}

// "none", "auto" or {"name"}
Status parse_function_call(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  if (field.value()->object() != nullptr) {
    ASSIGN_OR_RETURN(const std::string name, required_string(field["name"]));
    return choose_tool(name, field, conversation);
  }
  ASSIGN_OR_RETURN(const std::string choice, required_string(field));
  if (choice == "none") conversation.tool_choice = ToolChoice::kNone;
  if (choice == "none" || choice == "auto") return {};
  return unknown_type(field, choice, "`none`, `auto` or a name");
}

}  // namespace

Result<bool> parse_chat_tools(const JsonRef& body, Conversation& conversation) {
  const bool legacy = given(body["functions"]) || given(body["function_call"]);
  if (!legacy) {
    if (given(body["tools"])) RETURN_IF_ERROR(parse_list(body["tools"], parse_tool, conversation.tools));
    RETURN_IF_ERROR(parse_choice(body["tool_choice"], conversation));
    return false;
  }
  if (given(body["tools"]) || given(body["tool_choice"])) {
    return Error(Code::kInvalidArgument, "functions: found together with `tools`, expected one of the two");
  }
  if (given(body["functions"])) RETURN_IF_ERROR(parse_list(body["functions"], parse_function, conversation.tools));
  RETURN_IF_ERROR(parse_function_call(body["function_call"], conversation));
  return true;
}

}  // namespace deepinfer
