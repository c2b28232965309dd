// The "messages" array of a chat request.
#include <set>

#include "api/chat_request.h"
#include "api/fields.h"
#include "api/images.h"

namespace deepinfer {
namespace {

Result<Role> parse_role(const JsonRef& field) {
  ASSIGN_OR_RETURN(const std::string role, required_string(field));
  if (role == "system" || role == "developer") return Role::kSystem;
  if (role == "user") return Role::kUser;
  if (role == "assistant") return Role::kAssistant;
  if (role == "tool" || role == "function") return Role::kTool;
  if (role == "latest_reminder") return Role::kLatestReminder;
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `system`, `developer`, `user`, "
      "`assistant`, `tool`, `latest_reminder`",
      field.path(), role);
}

// {"type": "image_url", "image_url": {"url", "detail"}}; some clients send the link itself.
Result<Image> parse_image_url(const JsonRef& part) {
  const JsonRef field = part["image_url"];
  if (!field.present()) return missing_field(field);
  const bool is_link = field.value()->string() != nullptr;
  Image image;
  image.place = part.path();
  ASSIGN_OR_RETURN(image.source, required_string(is_link ? field : field["url"]));
  if (!is_link) {
    ASSIGN_OR_RETURN(image.detail, parse_image_detail(field["detail"]));
  }
  return image;
}

// {"type": "file", "file_data", "filename"}, also inside of "file", as OpenAI has it.
Result<Image> parse_file(const JsonRef& part) {
  const JsonRef file = given(part["file"]) ? part["file"] : part;
  Image image;
  image.place = part.path();
  if (given(file["file_id"])) return Error(Code::kInvalidArgument, "{}: {}", part.path(), kNoFileIds);
  if (!given(file["file_data"])) {
    return Error(Code::kInvalidArgument, "{}: file must have a file_id or file_data", part.path());
  }
  ASSIGN_OR_RETURN(image.source, required_string(file["file_data"]));
  return image;
}

Status parse_part(const JsonRef& part, Message& message, bool is_first) {
  ASSIGN_OR_RETURN(const std::string type, required_string(part["type"]));
  if (type == "text") {
    ASSIGN_OR_RETURN(const std::string text, required_string(part["text"]));
    append_text_part(message, text, is_first);
    return {};
  }
  if (type == "input_audio") {
    return Error(Code::kUnimplemented, "{}: this model takes text only, found a part of type `{}`",
                 part.path(), type);
  }
  if (type != "image_url" && type != "file") {
    return Error(
        Code::kInvalidArgument,
        "invalid request body: {}: unknown variant `{}`, expected one of `text`, `image_url`, `file`",
        part["type"].path(), type);
  }
  if (message.role == Role::kAssistant) {
    return Error(Code::kInvalidArgument, "Image in assistant message is not supported");
  }
  ASSIGN_OR_RETURN(Image image, type == "file" ? parse_file(part) : parse_image_url(part));
  RETURN_IF_ERROR(check_image_source(image.source, image.place, "image_url "));
  append_image_part(message, std::move(image), is_first);
  return {};
}

// A string, or parts that are joined by an empty line.
Status parse_content(const JsonRef& field, Message& message) {
  if (!field.present()) return missing_field(field);
  if (field.value()->string() != nullptr) {
    message.content = *field.value()->string();
    return {};
  }
  if (field.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: content should be a string or a list",
                 field.path());
  }
  ASSIGN_OR_RETURN(const auto parts, required_array(field));
  for (size_t i = 0; i < parts.size(); ++i) RETURN_IF_ERROR(parse_part(parts[i], message, i == 0));
  return {};
}

// Clients send "", null, nothing or the object itself where the protocol wants JSON text.
Result<std::string> parse_call_arguments(const JsonRef& field) {
  if (!given(field)) return std::string("{}");
  if (field.value()->object() != nullptr) return to_json(*field.value());
  ASSIGN_OR_RETURN(std::string text, required_string(field));
  return text.empty() || text == "null" ? std::string("{}") : std::move(text);
}

Result<ToolCall> parse_tool_call(const JsonRef& field) {
  ToolCall call;
  ASSIGN_OR_RETURN(call.id, required_string(field["id"]));
  ASSIGN_OR_RETURN(const std::string type, string_or(field["type"], "function"));
  if (type == "custom") {
    call.kind = ToolKind::kCustom;
    ASSIGN_OR_RETURN(call.name, required_string(field["custom"]["name"]));
    ASSIGN_OR_RETURN(const std::string input, required_string(field["custom"]["input"]));
    call.arguments = custom_tool_arguments(input);
    return call;
  }
  if (type != "function") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `function` or `custom`",
                 field["type"].path(), type);
  }
  if (!field["function"].present()) return missing_field(field["function"]);
  ASSIGN_OR_RETURN(call.name, required_string(field["function"]["name"]));
  ASSIGN_OR_RETURN(call.arguments, parse_call_arguments(field["function"]["arguments"]));
  return call;
}

// "reasoning_content", or what other services call it: "reasoning", "reasoning_details": [{"text"}, ...].
Status parse_reasoning(const JsonRef& field, Message& message) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    if (!given(field[name])) continue;
    ASSIGN_OR_RETURN(message.reasoning, required_string(field[name]));
    return {};
  }
  if (!given(field["reasoning_details"])) return {};
  ASSIGN_OR_RETURN(const auto details, required_array(field["reasoning_details"]));
  for (const JsonRef& detail : details) {
    if (!given(detail["text"])) continue;  // sealed, or a summary
    ASSIGN_OR_RETURN(const std::string text, required_string(detail["text"]));
    if (!message.reasoning) message.reasoning.emplace();
    message.reasoning->append(text);
  }
  return {};
}

// {"name", "arguments"}: the one call of a message, from before calls had ids. Its name stands for it; the result is
// the next message of role `function`.
Status parse_function_call(const JsonRef& field, Message& message) {
  if (!given(field)) return {};
  ToolCall call;
  ASSIGN_OR_RETURN(call.name, required_string(field["name"]));
  ASSIGN_OR_RETURN(call.arguments, parse_call_arguments(field["arguments"]));
  call.id = call.name;
  message.tool_calls.push_back(std::move(call));
  return {};
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
  RETURN_IF_ERROR(parse_function_call(field["function_call"], message));
  if (given(field["content"])) {
    RETURN_IF_ERROR(parse_content(field["content"], message));
  } else if (message.tool_calls.empty()) {
    return Error(Code::kInvalidArgument, "Invalid assistant message: content or tool_calls must be set");
  }
  RETURN_IF_ERROR(parse_reasoning(field, message));
  ASSIGN_OR_RETURN(message.is_prefix, boolean_or(field["prefix"], false));
  return {};
}

// A quick instruction: the model answers with what that task asks for (docs/spec/recipe.md 3.5).
Status parse_task(const JsonRef& field, Message& message) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(message.task, parse_task_name(field));
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
      const bool legacy = *field["role"].string() == "function";
      ASSIGN_OR_RETURN(message.tool_call_id, required_string(field[legacy ? "name" : "tool_call_id"]));
      RETURN_IF_ERROR(parse_content(field["content"], message));
      return message;
    }
    case Role::kSystem:
    case Role::kDeveloper:
    case Role::kSystemReminder:
    case Role::kUser:
      RETURN_IF_ERROR(parse_content(field["content"], message));
      if (message.role == Role::kUser) RETURN_IF_ERROR(parse_task(field["task"], message));
      return message;
  }
  return message;
}

// Calls that no tool message answers get an empty result.
void add_missing_results(std::vector<Message>& messages) {
  std::vector<Message> out;
  std::vector<std::string> open;  // in their order
  std::set<std::string> answered;
  const auto close = [&] {
    for (std::string& id : open) {
      if (answered.count(id) == 0) out.push_back({.role = Role::kTool, .tool_call_id = std::move(id)});
    }
    open.clear();
    answered.clear();
  };
  for (Message& message : messages) {
    if (message.role == Role::kTool) {
      answered.insert(message.tool_call_id);
    } else {
      close();
      for (const ToolCall& call : message.tool_calls) open.push_back(call.id);
    }
    out.push_back(std::move(message));
  }
  close();
  messages = std::move(out);
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

Result<Task> parse_task_name(const JsonRef& field) {
  constexpr std::pair<std::string_view, Task> kTasks[] = {
      {"action", Task::kAction}, {"query", Task::kQuery}, {"authority", Task::kAuthority},
      {"domain", Task::kDomain}, {"title", Task::kTitle}, {"read_url", Task::kReadUrl}};
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  for (const auto& [known, task] : kTasks) {
    if (name == known) return task;
  }
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: unknown variant `{}`, expected one of `action`, `query`, "
               "`authority`, `domain`, `title`, `read_url`",
               field.path(), name);
}

Result<std::vector<Message>> parse_chat_messages(const JsonRef& field, bool lenient_history) {
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
  if (lenient_history) add_missing_results(messages);
  RETURN_IF_ERROR(check_order(messages));
  return messages;
}

}  // namespace deepinfer
