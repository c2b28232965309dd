// Content blocks of Messages to turns: a block of a user message is a turn of its own, which the renderer
// joins.
#include "api/messages_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "api/fields.h"
#include "api/images.h"
#include "api/open_calls.h"

namespace deepinfer {
namespace {

// Claude Code's first system block, for Anthropic's accounting: another one in every request. Left out of the prompt,
// which would otherwise begin with it, so that nothing behind it were ever found in the KV cache.
constexpr std::string_view kBillingNote = "x-anthropic-billing-header:";

Error unknown_block(const JsonRef& block, std::string_view type) {
  return Error(Code::kInvalidArgument, "invalid request body: {}: Unsupported content block of type `{}`",
               block["type"].path(), type);
}

Error invalid_url(const JsonRef& block, std::string_view url) {
  constexpr size_t kMostQuoted = 200;
  if (url.size() > kMostQuoted) {
    return Error(Code::kInvalidArgument, "{}: invalid url of {} bytes", block.path(), url.size());
  }
  return Error(Code::kInvalidArgument, "{}: invalid url: \"{}\"", block.path(), url);
}

// {"type": "image", "source": {"type": "base64", "media_type", "data"} or {"type": "url", "url"}}
Result<Image> parse_block_image(const JsonRef& block) {
  const JsonRef source = block["source"];
  if (!source.present()) return missing_field(source);
  if (const auto object = source.object(); !object.ok()) return invalid_body(object.error());
  Image image;
  image.place = block.path();
  ASSIGN_OR_RETURN(const std::string type, required_string(source["type"]));
  if (type == "file") return Error(Code::kInvalidArgument, "{}: {}", block.path(), kNoFileIds);
  if (type == "url") {
    ASSIGN_OR_RETURN(image.source, required_string(source["url"]));
    const Status checked = check_image_source(image.source, block.path(), "");
    const bool too_long = !checked.ok() && checked.error().message().find("too long") != std::string::npos;
    if (!checked.ok()) return too_long ? checked.error() : invalid_url(block, image.source);
    return image;
  }
  if (type != "base64") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected one of `base64`, `url`, `file`",
                 source["type"].path(), type);
  }
  ASSIGN_OR_RETURN(const std::string media_type, required_string(source["media_type"]));
  if (!is_image_type(media_type)) {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected one of `image/jpeg`, `image/jpg`, "
                 "`image/png`, `image/gif`, `image/webp`",
                 source["media_type"].path(), media_type);
  }
  ASSIGN_OR_RETURN(const std::string data, required_string(source["data"]));
  if (!is_base64(data)) return Error(Code::kInvalidArgument, "{}: base64 decode error", block.path());
  image.source = fmt::format("data:{};base64,{}", media_type, data);
  return image;
}

// The texts of documents, references and system blocks in one piece.
class TextJoiner {
 public:
  void add(std::string_view part) {
    if (!first_) text_ += "\n\n";
    first_ = false;
    text_ += part;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool first_ = true;
};

// The text of a document; of others what they are.
Result<std::string> parse_document(const JsonRef& block) {
  const JsonRef type = block["source"]["type"];
  if (given(type) && type.value()->string() != nullptr && *type.value()->string() == "text") {
    return required_string(block["source"]["data"]);
  }
  const JsonRef media_type = block["source"]["media_type"];
  ASSIGN_OR_RETURN(const std::string name, string_or(media_type, "unknown"));
  return fmt::format("[Unsupported document type: {}]", name);
}

// {"type": "search_result", "title", "source", "content": [{"type": "text", "text"}]}
Result<std::string> parse_search_result(const JsonRef& block) {
  TextJoiner joined;
  for (const char* name : {"title", "source"}) {
    ASSIGN_OR_RETURN(const std::string text, string_or(block[name], ""));
    if (!text.empty()) joined.add(text);
  }
  if (given(block["content"])) {
    ASSIGN_OR_RETURN(const auto parts, required_array(block["content"]));
    for (const JsonRef& part : parts) {
      ASSIGN_OR_RETURN(const std::string text, required_string(part["text"]));
      joined.add(text);
    }
  }
  return joined.take();
}

// A string, absent, or blocks. `referred` gets the names of tools that the result brings.
Status parse_result_content(const JsonRef& field, std::vector<std::string>& referred, Message& result) {
  if (!given(field)) return {};
  if (field.value()->string() != nullptr) {
    result.content = *field.value()->string();
    return {};
  }
  ASSIGN_OR_RETURN(const auto blocks, required_array(field));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const JsonRef& block = blocks[i];
    ASSIGN_OR_RETURN(const std::string type, required_string(block["type"]));
    if (type == "image") {
      ASSIGN_OR_RETURN(Image image, parse_block_image(block));
      append_image_part(result, std::move(image), i == 0);
      continue;
    }
    Result<std::string> text = type == "text"             ? required_string(block["text"])
                               : type == "document"       ? parse_document(block)
                               : type == "search_result"  ? parse_search_result(block)
                               : type == "tool_reference" ? required_string(block["tool_name"])
                                                          : Result<std::string>(unknown_block(block, type));
    if (!text.ok()) return text.error();
    if (type == "tool_reference") referred.push_back(*text);
    append_text_part(result, *text, i == 0);
  }
  return {};
}

// A string or text blocks. `add_tool` reads a tool_addition, which the system text of a request can't hold.
template <typename AddTool>
Result<std::string> parse_system(const JsonRef& field, AddTool add_tool) {
  if (const std::string* text = field.value()->string()) {
    return text->starts_with(kBillingNote) ? text->substr(std::min(text->find('\n'), text->size() - 1) + 1) : *text;
  }
  if (field.value()->array() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: found {}, expected a string or a list",
                 field.path(), field.value()->kind_name());
  }
  ASSIGN_OR_RETURN(const auto blocks, required_array(field));
  TextJoiner joined;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const JsonRef& block = blocks[i];
    ASSIGN_OR_RETURN(const std::string type, required_string(block["type"]));
    if (type == "tool_addition") {
      RETURN_IF_ERROR(add_tool(block, i));
      continue;
    }
    if (type != "text") {
      return Error(Code::kInvalidArgument, "invalid request body: {}: unknown variant `{}`, expected `text`",
                   block["type"].path(), type);
    }
    ASSIGN_OR_RETURN(const std::string text, required_string(block["text"]));
    if (!text.starts_with(kBillingNote)) joined.add(text);
  }
  return joined.take();
}

// Reads the messages one by one; calls wait for their results.
class MessagesReader {
 public:
  // The messages go into the conversation, whose tools they may refer to.
  explicit MessagesReader(Conversation& conversation) : out_(conversation.messages) {
    for (const ToolDefinition& tool : conversation.tools) tools_by_name_.emplace(tool.name, Tool{&tool});
  }

  Status read(const JsonRef& field, size_t index) {
    index_ = index;
    if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
    ASSIGN_OR_RETURN(const std::string role, required_string(field["role"]));
    if (role != "user" && role != "assistant" && role != "system") {
      return Error(
          Code::kInvalidArgument,
          "invalid request body: {}: unknown variant `{}`, expected one of `user`, `assistant`, `system`",
          field["role"].path(), role);
    }
    const JsonRef content = field["content"];
    if (!content.present()) return missing_field(content);
    if (role == "system") {
      if (content.is_null()) return wrong_content(content);
      return read_system(content);
    }
    if (role == "assistant") RETURN_IF_ERROR(check_answered());
    if (content.value()->string() != nullptr) {
      if (role == "user") RETURN_IF_ERROR(check_results_first());
      add(role == "user" ? Role::kUser : Role::kAssistant, *content.value()->string());
      return {};
    }
    if (content.value()->array() == nullptr) return wrong_content(content);
    ASSIGN_OR_RETURN(const auto blocks, required_array(content));
    if (blocks.empty()) {
      return Error(Code::kInvalidArgument, "messages.{}: all messages must have non-empty content", index);
    }
    return role == "user" ? read_user(blocks) : read_assistant(blocks);
  }

  // Every call has its result.
  Status check_answered() const {
    if (calls_.all_answered()) return {};
    return missing_results(fmt::format("messages.{}:", caller_));
  }

 private:
  static Error wrong_content(const JsonRef& content) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: found {}, expected a string or a list",
                 content.path(), content.value()->kind_name());
  }

  Message& add(Role role, std::string content) {
    Message& message = out_.emplace_back();
    message.role = role;
    message.content = std::move(content);
    return message;
  }

  Error missing_results(std::string_view place) const {
    return Error(
        Code::kInvalidArgument,
        "{}`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` "
        "block must have a corresponding `tool_result` block in the next message.",
        place, fmt::join(calls_.open_ids(), ", "));
  }
  Status check_results_first() const {
    if (calls_.all_answered()) return {};
    return missing_results(fmt::format("messages.{}: ", index_));
  }

  Status read_system(const JsonRef& content) {
    std::vector<ToolDefinition> added;
    ASSIGN_OR_RETURN(std::string text,
                     parse_system(content, [&](const JsonRef& block, size_t position) -> Status {
                       ASSIGN_OR_RETURN(const std::string name, required_string(block["tool"]["name"]));
                       ASSIGN_OR_RETURN(
                           ToolDefinition tool,
                           bring(name,
                                 fmt::format("messages.{}.content.{}: `tool_addition` references unknown tool '{}'",
                                             index_, position, name)));
                       added.push_back(std::move(tool));
                       return {};
                     }));
    add(Role::kSystemReminder, std::move(text)).tools = std::move(added);
    return {};
  }

  // Tools that the results of a message brought are known to the model behind all of it.
  void flush_referred() {
    if (!referred_.empty()) add(Role::kSystem, "").tools = std::exchange(referred_, {});
  }

  Status read_user(const std::vector<JsonRef>& blocks) {
    calls_.forget_answered();
    for (size_t i = 0; i < blocks.size(); ++i) {
      const JsonRef& block = blocks[i];
      ASSIGN_OR_RETURN(const std::string type, required_string(block["type"]));
      if (type == "tool_result") {
        RETURN_IF_ERROR(read_result(block, i));
        continue;
      }
      RETURN_IF_ERROR(check_results_first());
      if (type == "image") {
        ASSIGN_OR_RETURN(Image image, parse_block_image(block));
        append_image_part(add(Role::kUser, ""), std::move(image), true);
        continue;
      }
      ASSIGN_OR_RETURN(std::string text, user_text(block, type));
      add(Role::kUser, std::move(text));
    }
    flush_referred();
    return check_answered();
  }

  Result<std::string> user_text(const JsonRef& block, const std::string& type) const {
    if (type == "text") return required_string(block["text"]);
    if (type == "document") return parse_document(block);
    if (type == "search_result") return parse_search_result(block);
    if (type == "tool_use") {
      return Error(Code::kInvalidArgument,
                   "messages.{}: `tool_use` blocks can only be in `assistant` messages", index_);
    }
    if (type == "tool_addition") {
      return Error(Code::kInvalidArgument,
                   "messages.{}: `tool_addition` blocks can only be in `system` messages", index_);
    }
    if (type == "thinking" || type == "redacted_thinking") {
      return Error(Code::kInvalidArgument, "messages.{}: `{}` blocks can only be in `assistant` messages",
                   index_, type);
    }
    return unknown_block(block, type);
  }

  Status read_result(const JsonRef& block, size_t position) {
    ASSIGN_OR_RETURN(const std::string id, required_string(block["tool_use_id"]));
    if (!calls_.is_open(id)) {
      if (calls_.is_answered(id)) {
        return Error(
            Code::kInvalidArgument,
            "messages.{}.content.{}: each tool_use must have a single result. Found multiple `tool_result` "
            "blocks with id: {}",
            index_, position, id);
      }
      return Error(Code::kInvalidArgument,
                   "messages.{}.content.{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each "
                   "`tool_result` block must have a corresponding `tool_use` block in the previous message.",
                   index_, position, id);
    }
    calls_.answer(id);
    Message& result = add(Role::kTool, "");
    result.tool_call_id = id;
    std::vector<std::string> names;
    RETURN_IF_ERROR(parse_result_content(block["content"], names, result));
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(
          ToolDefinition tool,
          bring(name, fmt::format("messages.{}.content.{}: tool reference '{}' not found in available tools", index_,
                                  position, name)));
      referred_.push_back(std::move(tool));
    }
    return {};
  }

  // A copy of the tool. A request can name a large one often; together the copies are no larger than a body.
  Result<ToolDefinition> bring(const std::string& name, const std::string& unknown) {
    const auto found = tools_by_name_.find(name);
    if (found == tools_by_name_.end()) return Error(Code::kInvalidArgument, "{}", unknown);
    const ToolDefinition& tool = *found->second.tool;
    size_t& bytes = found->second.bytes;
    if (bytes == 0) bytes = name.size() + tool.description.size() + to_json(tool.parameters).size();
    brought_bytes_ += bytes;
    if (brought_bytes_ <= kMostBroughtBytes) return tool;
    return Error(Code::kInvalidArgument, "messages.{}: found tools referred to that take more than {} bytes together",
                 index_, kMostBroughtBytes);
  }

  // Blocks of kinds that this server does not make are left out: server tools, hidden thinking.
  Status read_assistant(const std::vector<JsonRef>& blocks) {
    caller_ = index_;
    TextJoiner text;
    TextJoiner reasoning;
    bool has_reasoning = false;
    Message message;
    message.role = Role::kAssistant;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const JsonRef& block = blocks[i];
      ASSIGN_OR_RETURN(const std::string type, required_string(block["type"]));
      if (type == "text") {
        ASSIGN_OR_RETURN(const std::string part, required_string(block["text"]));
        text.add(part);
      } else if (type == "thinking") {
        ASSIGN_OR_RETURN(const std::string part, required_string(block["thinking"]));
        if (part.empty()) continue;  // hidden from the client: whoever remembers it may put it back
        reasoning.add(part);
        has_reasoning = true;
      } else if (type == "tool_use") {
        ASSIGN_OR_RETURN(ToolCall call, read_call(block, i));
        message.tool_calls.push_back(std::move(call));
      } else if (type == "image") {
        return Error(Code::kInvalidArgument, "{}: Image in assistant message is unsupported", block.path());
      } else if (type == "tool_result") {
        return Error(Code::kInvalidArgument,
                     "messages.{}: `tool_result` blocks can only be in `user` messages", index_);
      } else if (type != "redacted_thinking" && type != "server_tool_use" &&
                 !type.ends_with("_tool_result")) {
        return unknown_block(block, type);
      }
    }
    message.content = text.take();
    if (has_reasoning) message.reasoning = reasoning.take();
    out_.push_back(std::move(message));
    return {};
  }

  Result<ToolCall> read_call(const JsonRef& block, size_t position) {
    ToolCall call;
    ASSIGN_OR_RETURN(call.id, required_string(block["id"]));
    ASSIGN_OR_RETURN(call.name, required_string(block["name"]));
    if (calls_.is_open(call.id)) {
      return Error(Code::kInvalidArgument, "messages.{}.content.{}: `tool_use` ids must be unique", index_,
                   position);
    }
    calls_.open(call.id);
    const JsonRef input = block["input"];
    call.arguments = given(input) ? to_json(*input.value()) : "{}";
    return call;
  }

  static constexpr size_t kMostBroughtBytes = 64 << 20;
  struct Tool {
    const ToolDefinition* tool;
    size_t bytes = 0;  // of a copy, once it was made
  };

  std::vector<Message>& out_;
  std::map<std::string, Tool, std::less<>> tools_by_name_;
  size_t brought_bytes_ = 0;
  std::vector<ToolDefinition> referred_;   // tools that the results of this message brought
  size_t index_ = 0;                       // of the message being read
  size_t caller_ = 0;                      // of the last assistant message
  OpenCalls calls_;                        // those that are answered: in this message
};

// A client that marks a block expects others to share what stands before.
bool is_marked(const JsonRef& blocks) {
  if (!blocks.present() || blocks.value()->array() == nullptr) return false;
  const auto list = required_array(blocks);
  return list.ok() && std::any_of(list->begin(), list->end(), [](const JsonRef& block) {
           return block.value()->object() != nullptr && given(block["cache_control"]);
         });
}

}  // namespace

Status parse_messages_input(const JsonRef& body, Conversation& conversation) {
  if (given(body["system"])) {
    const auto refuse = [](const JsonRef& block, size_t) -> Status {
      return Error(Code::kInvalidArgument,
                   "invalid request body: {}: unknown variant `tool_addition`, expected `text`",
                   block["type"].path());
    };
    ASSIGN_OR_RETURN(std::string system, parse_system(body["system"], refuse));
    Message& message = conversation.messages.emplace_back();
    message.role = Role::kSystem;
    message.content = std::move(system);
    message.cache_point = is_marked(body["system"]);
  }
  ASSIGN_OR_RETURN(const auto elements, required_array(body["messages"]));
  if (elements.empty()) {
    return Error(Code::kInvalidArgument, "messages: at least one message is required");
  }
  MessagesReader reader(conversation);
  for (size_t i = 0; i < elements.size(); ++i) {
    RETURN_IF_ERROR(reader.read(elements[i], i));
    if (!conversation.messages.empty() && is_marked(elements[i]["content"])) conversation.messages.back().cache_point = true;
  }
  RETURN_IF_ERROR(reader.check_answered());
  // The answer goes on where a last message of the assistant ends.
  Message& last = conversation.messages.back();
  last.is_prefix = last.role == Role::kAssistant;
  return {};
}

}  // namespace deepinfer
