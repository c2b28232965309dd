// The "messages" array of a chat request.
#include <set>

#include "api/chat_request.h"
#include "api/fields.h"

namespace deepinfer {
namespace {

Result<Role> parse_role(const JsonRef& field) {
  ASSIGN_OR_RETURN(const std::string role, required_string(field));
  if (role == "system" || role == "developer") return Role::kSystem;
  if (role == "user") return Role::kUser;
  if (role == "assistant") return Role::kAssistant;
  if (role == "tool") return Role::kTool;
  if (role == "latest_reminder") return Role::kLatestReminder;
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `system`, `developer`, `user`, "
      "`assistant`, `tool`, `latest_reminder`",
      field.path(), role);
}

Result<std::string> parse_part(const JsonRef& part) {
  ASSIGN_OR_RETURN(const std::string type, required_string(part["type"]));
  if (type == "text") return required_string(part["text"]);
  if (type == "image_url" || type == "file") {
    return Error(Code::kUnimplemented, "{}: this server takes text only, found a part of type `{}`",
                 part.path(), type);
  }
  return Error(Code::kInvalidArgument, "invalid request body: {}: unknown variant `{}`, expected `text`",
               part["type"].path(), type);
}

// A string, or text parts that are joined by an empty line.
Result<std::string> parse_content(const JsonRef& field) {
  if (field.present() && field.value()->string() != nullptr) return *field.value()->string();
  if (!field.present()) return missing_field(field);
  if (field.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: content should be a string or a list",
                 field.path());
  }
  ASSIGN_OR_RETURN(const auto parts, required_array(field));
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string part, parse_part(parts[i]));
    if (i > 0) text += "\n\n";
    text += part;
  }
  return text;
}

// Clients send "", null, nothing or the object itself where the protocol wants JSON text.
Result<std::string> parse_call_arguments(const JsonRef& field) {
  if (!given(field)) return std::string("{}");
  if (field.value()->object() != nullptr) return to_json(*field.value());
  return required_string(field);
}

Result<ToolCall> parse_tool_call(const JsonRef& field) {
  ToolCall call;
  ASSIGN_OR_RETURN(call.id, required_string(field["id"]));
  ASSIGN_OR_RETURN(const std::string type, string_or(field["type"], "function"));
  if (type != "function") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `function`", field["type"].path(),
                 type);
  }
  if (!field["function"].present()) return missing_field(field["function"]);
  ASSIGN_OR_RETURN(call.name, required_string(field["function"]["name"]));
  ASSIGN_OR_RETURN(call.arguments, parse_call_arguments(field["function"]["arguments"]));
  return call;
}

Status parse_assistant(const JsonRef& field, Message& message) {
  const JsonRef calls_field = field["tool_calls"];
  if (given(calls_field)) {
    ASSIGN_OR_RETURN(const auto calls, required_array(calls_field));
    if (calls.empty()) {
      return Error(Code::kInvalidArgument,
                   "Invalid '{}': empty array. Expected an array with minimum length 1, but got an empty "
                   "array instead.",
                   calls_field.path());
    }
    for (const JsonRef& call : calls) {
      ASSIGN_OR_RETURN(ToolCall parsed, parse_tool_call(call));
      message.tool_calls.push_back(std::move(parsed));
    }
  }
  if (given(field["content"])) {
    ASSIGN_OR_RETURN(message.content, parse_content(field["content"]));
  } else if (message.tool_calls.empty()) {
    return Error(Code::kInvalidArgument, "Invalid assistant message: content or tool_calls must be set");
  }
  const JsonRef reasoning =
      given(field["reasoning_content"]) ? field["reasoning_content"] : field["reasoning"];
  if (given(reasoning)) {
    ASSIGN_OR_RETURN(message.reasoning, required_string(reasoning));
  }
  ASSIGN_OR_RETURN(message.is_prefix, boolean_or(field["prefix"], false));
  return {};
}

Result<Message> parse_message(const JsonRef& field) {
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  Message message;
  ASSIGN_OR_RETURN(message.role, parse_role(field["role"]));
  switch (message.role) {
    case Role::kAssistant:
      RETURN_IF_ERROR(parse_assistant(field, message));
      return message;
    case Role::kLatestReminder: {
      ASSIGN_OR_RETURN(message.content, required_string(field["content"]));
      return message;
    }
    case Role::kTool: {
      ASSIGN_OR_RETURN(message.tool_call_id, required_string(field["tool_call_id"]));
      ASSIGN_OR_RETURN(message.content, parse_content(field["content"]));
      return message;
    }
    case Role::kSystem:
    case Role::kDeveloper:
    case Role::kSystemReminder:
    case Role::kUser: {
      ASSIGN_OR_RETURN(message.content, parse_content(field["content"]));
      return message;
    }
  }
  return message;
}

// Every call is answered once, directly after its message.
Status check_results(const std::vector<Message>& messages, size_t caller) {
  constexpr std::string_view kRule =
      "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
      "'tool_call_id'";
  std::set<std::string_view> open;
  for (const ToolCall& call : messages[caller].tool_calls) {
    if (!open.insert(call.id).second) {
      return Error(Code::kInvalidArgument, "Duplicate value for 'tool_call_id' of {} in message[{}]", call.id,
                   caller);
    }
  }
  for (size_t i = caller + 1; !open.empty(); ++i) {
    if (i == messages.size() || messages[i].role != Role::kTool) {
      return Error(Code::kInvalidArgument, "{}. (insufficient tool messages following tool_calls message)",
                   kRule);
    }
    if (open.erase(messages[i].tool_call_id) == 0) {
      return Error(Code::kInvalidArgument,
                   "{}, The following tool_call_ids did not have response messages: {}", kRule,
                   messages[i].tool_call_id);
    }
  }
  return {};
}

Status check_order(const std::vector<Message>& messages) {
  size_t answered_until = 0;  // tool messages before this index belong to a checked call
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].tool_calls.empty()) {
      RETURN_IF_ERROR(check_results(messages, i));
      answered_until = i + 1 + messages[i].tool_calls.size();
    }
    if (messages[i].role == Role::kTool && i >= answered_until) {
      return Error(Code::kInvalidArgument,
                   "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'");
    }
    if (messages[i].is_prefix && i + 1 != messages.size()) {
      return Error(Code::kInvalidArgument,
                   "Invalid completion message: prefix set true with message which is not final message or "
                   "message role "
                   "is not assistant");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Message>> parse_chat_messages(const JsonRef& field) {
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  if (elements.empty()) {
    return Error(
        Code::kInvalidArgument,
        "Invalid '{}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        field.path());
  }
  std::vector<Message> messages;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(Message message, parse_message(element));
    messages.push_back(std::move(message));
  }
  RETURN_IF_ERROR(check_order(messages));
  return messages;
}

}  // namespace deepinfer
