#include "api/responses_tools.h"

#include <set>

#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

Result<ToolDefinition> parse_flat_function(const JsonRef& field) {
  ToolDefinition tool;
  ASSIGN_OR_RETURN(tool.name, required_string(field["name"]));
  RETURN_IF_ERROR(check_tool_name(field["name"], tool.name));
  ASSIGN_OR_RETURN(tool.description, string_or(field["description"], ""));
  ASSIGN_OR_RETURN(tool.parameters, parse_tool_schema(field["parameters"], tool.name));
  ASSIGN_OR_RETURN(tool.strict, boolean_or(field["strict"], false));
  return tool;
}

}  // namespace

// The grammar of a custom tool is shown to the model and enforced. The patch language has a description of its own,
// whatever the client says of it. Chat Completions has the grammar in an object of its own.
Result<ToolDefinition> parse_custom_tool(const JsonRef& field) {
  ASSIGN_OR_RETURN(std::string name, required_string(field["name"]));
  RETURN_IF_ERROR(check_tool_name(field["name"], name));
  ASSIGN_OR_RETURN(std::string description, string_or(field["description"], ""));
  std::string syntax, definition;
  const JsonRef format = field["format"];
  if (given(format)) {
    if (const auto object = format.object(); !object.ok()) return invalid_body(object.error());
    ASSIGN_OR_RETURN(const std::string type, required_string(format["type"]));
    if (type == "grammar") {
      const JsonRef grammar = given(format["grammar"]) ? format["grammar"] : format;
      ASSIGN_OR_RETURN(syntax, required_string(grammar["syntax"]));
      if (syntax != "lark" && syntax != "regex") {
        return Error(Code::kInvalidArgument,
                     "invalid request body: {}: unknown variant `{}`, expected one of `lark`, `regex`",
                     grammar["syntax"].path(), syntax);
      }
      ASSIGN_OR_RETURN(definition, required_string(grammar["definition"]));
      description += fmt::format("\n\nThe input follows this {} grammar:\n{}", syntax, definition);
    } else if (type != "text") {
      return Error(Code::kInvalidArgument,
                   "invalid request body: {}: unknown variant `{}`, expected one of `text`, `grammar`",
                   format["type"].path(), type);
    }
  }
  if (name == "apply_patch") description.clear();
  ToolDefinition tool = custom_tool(std::move(name), std::move(description));
  tool.input_syntax = std::move(syntax);
  tool.input_grammar = std::move(definition);
  return tool;
}

namespace {

Status add_namespace(const JsonRef& field, std::vector<ToolDefinition>& tools) {
  ASSIGN_OR_RETURN(const std::string name, required_string(field["name"]));
  RETURN_IF_ERROR(check_tool_name(field["name"], name));
  ASSIGN_OR_RETURN(const std::string description, string_or(field["description"], ""));
  ASSIGN_OR_RETURN(const auto members, required_array(field["tools"]));
  std::set<std::string> names;
  for (const JsonRef& member : members) {
    ASSIGN_OR_RETURN(const std::string type, required_string(member["type"]));
    if (type != "function") {
      ASSIGN_OR_RETURN(const std::string member_name, string_or(member["name"], ""));
      return Error(Code::kInvalidArgument,
                   "Currently {} tools are not allowed inside a namespace. Found {} tool '{}' in {}.", type,
                   type, member_name, member.path());
    }
    ASSIGN_OR_RETURN(ToolDefinition tool, parse_flat_function(member));
    if (!names.insert(tool.name).second) {
      return Error(Code::kInvalidArgument, "{}: Tool names within a namespace must be unique.", field.path());
    }
    tool.namespace_name = name;
    tool.namespace_description = description;
    tools.push_back(std::move(tool));
  }
  return {};
}

// The client's own search: a function to the model, an item of another type to the client.
Result<ToolDefinition> parse_tool_search(const JsonRef& field) {
  ToolDefinition tool;
  tool.name = "tool_search";
  tool.kind = ToolKind::kToolSearch;
  ASSIGN_OR_RETURN(tool.description, string_or(field["description"], ""));
  ASSIGN_OR_RETURN(tool.parameters, parse_tool_schema(field["parameters"], tool.name));
  return tool;
}

Status choose_allowed_tools(const JsonRef& field, Conversation& conversation) {
  ASSIGN_OR_RETURN(const auto allowed, required_array(field["tools"]));
  std::vector<std::string> names;
  for (const JsonRef& tool : allowed) {
    ASSIGN_OR_RETURN(std::string name, string_or(tool["name"], ""));
    names.push_back(std::move(name));
  }
  return choose_among(names, field, conversation);
}

void add_missing(JsonValue::Object& tool, const JsonValue& from, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (from.find(key) == nullptr) tool.push_back({key, JsonValue()});
  }
}

JsonValue echo_tool(const JsonValue& tool, std::string_view type) {
  JsonValue copy = tool;
  if (copy.object() == nullptr) return copy;
  if (type == "function") add_missing(*copy.object(), tool, {"description", "parameters", "strict"});
  if (type == "tool_search") add_missing(*copy.object(), tool, {"description", "parameters"});
  return copy;
}

// Its members, which have none themselves, come last.
JsonValue echo_namespace(const JsonValue& tool) {
  JsonValue::Object out;
  JsonValue::Array members;
  for (const JsonMember& member : *tool.object()) {
    if (member.key != "tools") {
      out.push_back(member);
    } else if (const JsonValue::Array* tools = member.value.array()) {
      for (const JsonValue& one : *tools) members.push_back(echo_tool(one, "function"));
    }
  }
  add_missing(out, tool, {"description"});
  out.push_back({"tools", std::move(members)});
  return out;
}

}  // namespace

Result<std::vector<ToolDefinition>> parse_responses_tools(const JsonRef& field, ToolNamesRule rule) {
  std::vector<ToolDefinition> tools;
  if (!given(field)) return tools;
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  std::set<std::string> names;
  for (const JsonRef& element : elements) {
    if (const auto object = element.object(); !object.ok()) return invalid_body(object.error());
    ASSIGN_OR_RETURN(const std::string type, required_string(element["type"]));
    if (type == "namespace") {
      RETURN_IF_ERROR(add_namespace(element, tools));
      continue;
    }
    const bool client_search = type == "tool_search" && element["execution"].string().ok() &&
                               *element["execution"].string() == "client";
    if (type != "function" && type != "custom" && !client_search) continue;  // tools that a server would run
    ASSIGN_OR_RETURN(ToolDefinition tool, type == "function" ? parse_flat_function(element)
                                          : type == "custom" ? parse_custom_tool(element)
                                                             : parse_tool_search(element));
    if (rule == ToolNamesRule::kUnique && !names.insert(tool.name).second) {
      return Error(Code::kInvalidArgument, "Tool names must be unique.");
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

Status parse_responses_choice(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  if (const std::string* name = field.value()->string()) {
    if (*name == "auto") return {};
    if (*name == "none" || *name == "required") {
      conversation.tool_choice = *name == "none" ? ToolChoice::kNone : ToolChoice::kRequired;
      return check_forced(field, conversation);
    }
  }
  if (field.value()->object() == nullptr) {
    return Error(
        Code::kInvalidArgument,
        "invalid request body: {}: expected one of `none`, `auto`, `required` or a tool choice object",
        field.path());
  }
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type == "function" || type == "custom") {
    ASSIGN_OR_RETURN(const std::string name, required_string(field["name"]));
    return choose_tool(name, field, conversation);
  }
  if (type == "allowed_tools") return choose_allowed_tools(field, conversation);
  return {};  // tools that a server would run
}

JsonValue echo_tools(const JsonRef& field) {
  JsonValue::Array out;
  if (!given(field) || field.value()->array() == nullptr) return out;
  for (const JsonValue& tool : *field.value()->array()) {
    const JsonValue* type = tool.find("type");
    const std::string* name = type == nullptr ? nullptr : type->string();
    const bool has_members = name != nullptr && *name == "namespace";
    out.push_back(has_members ? echo_namespace(tool) : echo_tool(tool, name == nullptr ? "" : *name));
  }
  return out;
}

}  // namespace deepinfer
