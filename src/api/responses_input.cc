// Items to turns: consecutive calls are one assistant turn, which a message of the assistant before them
// begins; a thought belongs to the turn that follows it.
#include "api/responses_input.h"

#include <algorithm>

#include "api/fields.h"
#include "api/images.h"
#include "api/responses_tools.h"

namespace deepinfer {
namespace {

constexpr std::string_view kUnsupportedDocument = "[Unsupported Document]";

// {"type": "input_image", "image_url", "detail"}
Result<Image> parse_input_image(const JsonRef& block) {
  Image image;
  image.place = block.path();
  if (given(block["file_id"])) return Error(Code::kInvalidArgument, "{}: {}", block.path(), kNoFileIds);
  ASSIGN_OR_RETURN(image.source, string_or(block["image_url"], ""));
  if (image.source.empty()) {
    return Error(Code::kInvalidArgument, "{}: input_image must have image_url or file_id", block.path());
  }
  RETURN_IF_ERROR(check_image_source(image.source, block.path(), "image_url "));
  ASSIGN_OR_RETURN(image.detail, parse_image_detail(block["detail"]));
  return image;
}

Result<std::string> parse_text_block(const JsonRef& block, const std::string& type) {
  if (type == "input_text" || type == "output_text" || type == "text") return required_string(block["text"]);
  if (type == "refusal") return required_string(block["refusal"]);
  if (type == "input_file") return std::string(kUnsupportedDocument);
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: unknown variant `{}`, expected one of `input_text`, `output_text`, "
               "`input_image`, `input_file`, `refusal`",
               block["type"].path(), type);
}

Result<Role> parse_item_role(const JsonRef& field) {
  ASSIGN_OR_RETURN(const std::string role, required_string(field));
  if (role == "user") return Role::kUser;
  if (role == "assistant") return Role::kAssistant;
  if (role == "system") return Role::kSystem;
  if (role == "developer") return Role::kDeveloper;
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `user`, `assistant`, `system`, "
      "`developer`",
      field.path(), role);
}

// A string, or an object as clients of other models send it.
Result<std::string> parse_arguments(const JsonRef& field) {
  if (!given(field)) return std::string("{}");
  if (field.value()->object() != nullptr) return to_json(*field.value());
  ASSIGN_OR_RETURN(std::string text, required_string(field));
  return text.empty() || text == "null" ? std::string("{}") : std::move(text);
}

Result<ToolCall> parse_call(const JsonRef& item, const std::string& type) {
  ToolCall call;
  ASSIGN_OR_RETURN(call.id, required_string(item["call_id"]));
  if (type == "local_shell_call") {
    call.name = "local_shell";
    ASSIGN_OR_RETURN(call.arguments, parse_arguments(item["action"]));
    return call;
  }
  if (type == "tool_search_call") {
    call.name = "tool_search";
    call.kind = ToolKind::kToolSearch;
    ASSIGN_OR_RETURN(call.arguments, parse_arguments(item["arguments"]));
    return call;
  }
  ASSIGN_OR_RETURN(call.name, required_string(item["name"]));
  if (type == "custom_tool_call") {
    call.kind = ToolKind::kCustom;
    ASSIGN_OR_RETURN(const std::string input, required_string(item["input"]));
    call.arguments = custom_tool_arguments(input);
    return call;
  }
  ASSIGN_OR_RETURN(call.namespace_name, string_or(item["namespace"], ""));
  ASSIGN_OR_RETURN(call.arguments, parse_arguments(item["arguments"]));
  return call;
}

// Tools that a search found, as one line of JSON: members of a namespace stand alone and name it.
std::string found_tools_text(const JsonRef& tools) {
  JsonValue::Array out;
  const auto add = [&out](const JsonValue& tool, const JsonValue* space) {
    JsonValue::Object line;
    for (const char* key : {"type", "name", "description", "parameters", "strict"}) {
      const JsonValue* value = tool.find(key);
      line.push_back({key, value == nullptr ? JsonValue() : *value});
    }
    if (space != nullptr) {
      JsonValue::Object name;
      for (const char* key : {"name", "description"}) {
        const JsonValue* value = space->find(key);
        name.push_back({key, value == nullptr ? JsonValue() : *value});
      }
      line.push_back({"namespace", std::move(name)});
    }
    out.emplace_back(std::move(line));
  };
  if (tools.present() && tools.value()->array() != nullptr) {
    for (const JsonValue& tool : *tools.value()->array()) {
      const JsonValue* members = tool.find("tools");
      if (members == nullptr || members->array() == nullptr) {
        add(tool, nullptr);
        continue;
      }
      for (const JsonValue& member : *members->array()) add(member, &tool);
    }
  }
  return to_json(JsonValue(std::move(out)));
}

bool is_call(const std::string& type) {
  return type == "function_call" || type == "custom_tool_call" || type == "tool_search_call" ||
         type == "local_shell_call";
}

}  // namespace

Status ResponsesInput::read(const JsonValue::Array& items, std::string_view path) {
  const JsonValue list(items);
  const auto elements = JsonRef(list, std::string(path)).array();
  for (const JsonRef& item : *elements) RETURN_IF_ERROR(read_item(item));
  return {};
}

Status ResponsesInput::finish() {
  RETURN_IF_ERROR(check_answered());
  flush_reasoning();
  return {};
}

Status ResponsesInput::read_item(const JsonRef& item) {
  if (const auto object = item.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, string_or(item["type"], "message"));
  if (type == "message") return read_message(item);
  if (type == "reasoning") return read_reasoning(item);
  if (type == "item_reference") return read_reference(item);
  if (is_call(type)) {
    if (type == "local_shell_call" && !given(item["call_id"])) return {};
    ASSIGN_OR_RETURN(ToolCall call, parse_call(item, type));
    return read_call(item, std::move(call));
  }
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    ASSIGN_OR_RETURN(Message result, read_content(Role::kTool, item["output"]));
    return read_result(item, std::move(result));
  }
  if (type == "local_shell_call_output" && given(item["call_id"])) {
    ASSIGN_OR_RETURN(Message result, read_content(Role::kTool, item["output"]));
    return read_result(item, std::move(result));
  }
  if (type == "tool_search_output") {
    ASSIGN_OR_RETURN(std::vector<ToolDefinition> tools,
                     parse_responses_tools(item["tools"], ToolNamesRule::kAny));
    return read_result(item, {.role = Role::kTool, .content = found_tools_text(item["tools"])},
                       std::move(tools));
  }
  return {};  // items of tools that a server runs
}

Result<Message> ResponsesInput::read_content(Role role, const JsonRef& field) const {
  Message message;
  message.role = role;
  if (!field.present()) return missing_field(field);
  if (field.value()->string() != nullptr) {
    message.content = *field.value()->string();
    return message;
  }
  if (field.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: content should be a string or a list of content blocks",
                 field.path());
  }
  ASSIGN_OR_RETURN(const auto blocks, required_array(field));
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string type, required_string(blocks[i]["type"]));
    if (type == "input_image") {
      if (role == Role::kAssistant) {
        return Error(Code::kInvalidArgument, "{}: Image in assistant message is unsupported",
                     blocks[i].path());
      }
      ASSIGN_OR_RETURN(Image image, parse_input_image(blocks[i]));
      append_image_part(message, std::move(image), i == 0);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string part, parse_text_block(blocks[i], type));
    append_text_part(message, part, i == 0);
  }
  return message;
}

Status ResponsesInput::read_message(const JsonRef& item) {
  ASSIGN_OR_RETURN(const Role role, parse_item_role(item["role"]));
  ASSIGN_OR_RETURN(Message message, read_content(role, item["content"]));
  RETURN_IF_ERROR(check_answered());
  if (role != Role::kAssistant) {
    flush_reasoning();
    messages_.push_back(std::move(message));
    return {};
  }
  const bool joins = !reasoning_ && !messages_.empty() && messages_.back().role == Role::kAssistant &&
                     messages_.back().tool_calls.empty();
  if (joins) {
    messages_.back().content += "\n\n" + message.content;
    return {};
  }
  take_reasoning(message);
  messages_.push_back(std::move(message));
  return {};
}

Status ResponsesInput::read_reasoning(const JsonRef& item) {
  std::optional<std::string> text;
  if (given(item["content"])) {
    ASSIGN_OR_RETURN(const auto parts, required_array(item["content"]));
    for (const JsonRef& part : parts) {
      ASSIGN_OR_RETURN(const std::string piece, required_string(part["text"]));
      if (text) text->append("\n");
      if (!text) text.emplace();
      text->append(piece);
    }
  }
  const JsonRef sealed = item["encrypted_content"];
  if (!text && given(sealed) && context_.open_sealed) {
    ASSIGN_OR_RETURN(const std::string blob, required_string(sealed));
    text = context_.open_sealed(blob);
  }
  if (!text) return {};
  if (reasoning_) {
    reasoning_->append("\n").append(*text);
  } else {
    reasoning_ = std::move(text);
  }
  return {};
}

void ResponsesInput::take_reasoning(Message& message) {
  if (reasoning_) message.reasoning = std::move(*reasoning_);
  reasoning_.reset();
}

void ResponsesInput::flush_reasoning() {
  if (!reasoning_) return;
  Message& message = messages_.emplace_back();
  message.role = Role::kAssistant;
  take_reasoning(message);
}

// The turn that calls belong to.
Message& ResponsesInput::assistant_turn() {
  const bool continues = !reasoning_ && !messages_.empty() && messages_.back().role == Role::kAssistant;
  if (continues) return messages_.back();
  Message& message = messages_.emplace_back();
  message.role = Role::kAssistant;
  take_reasoning(message);
  return message;
}

Status ResponsesInput::read_call(const JsonRef& item, ToolCall call) {
  if (results_begun_) RETURN_IF_ERROR(check_answered());
  results_begun_ = false;
  if (call.id.empty()) return Error(Code::kInvalidArgument, "{}: found an empty 'call_id'", item.path());
  if (calls_.is_open(call.id) || calls_.is_answered(call.id)) {
    return Error(Code::kInvalidArgument, "{}: Duplicate 'call_id': {}.", item.path(), call.id);
  }
  calls_.open(call.id);
  assistant_turn().tool_calls.push_back(std::move(call));
  return {};
}

Status ResponsesInput::read_result(const JsonRef& item, Message result, std::vector<ToolDefinition> tools) {
  ASSIGN_OR_RETURN(const std::string id, required_string(item["call_id"]));
  if (!calls_.is_open(id)) {
    if (calls_.is_answered(id))
      return Error(Code::kInvalidArgument, "{}: Duplicate tool output for call_id: {}.", item.path(), id);
    return Error(Code::kInvalidArgument, "{}: No tool call found for tool output with call_id {}.",
                 item.path(), id);
  }
  calls_.answer(id);
  results_begun_ = true;
  result.tool_call_id = id;
  messages_.push_back(std::move(result));
  if (!tools.empty()) {  // known to the model from here on
    Message& news = messages_.emplace_back();
    news.role = Role::kSystem;
    news.tools = std::move(tools);
  }
  return {};
}

// {"type": "item_reference", "id"}: an item that this server made and keeps.
Status ResponsesInput::read_reference(const JsonRef& item) {
  ASSIGN_OR_RETURN(const std::string id, required_string(item["id"]));
  if (!referred_.insert(id).second) {
    return Error(Code::kInvalidArgument, "{}: found the item '{}' twice, expected each once", item.path(), id);
  }
  const std::optional<JsonValue> found = context_.find_item ? context_.find_item(id) : std::nullopt;
  if (!found) {
    return Error(Code::kInvalidArgument, "{}: no stored item has the id '{}'; send the item itself",
                 item.path(), id);
  }
  return read_item(JsonRef(*found, item.path()));
}

Status ResponsesInput::check_answered() const {
  if (calls_.all_answered()) return {};
  return Error(Code::kInvalidArgument, "No tool output found for tool call {}.", calls_.first_open());
}

}  // namespace deepinfer
