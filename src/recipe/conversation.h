// What the model is shown: a conversation, its tools and how much to think. Plain values; each API converts
// to them. Part of the front header recipe.h.
//
// Source: docs/spec/recipe.md 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.h"

namespace deepinfer {

enum class Role {
  kSystem,
  kDeveloper,       // V4.1: a system turn; V4 and profile `reference`: user text
  kSystemReminder,  // a system message inside a Messages conversation. V4.1: a system turn; V4: user text in
                    // a <system-reminder>
  kUser,
  kAssistant,
  kTool,  // the result of a call
  kLatestReminder,
};

// What a call becomes for the client; the model sees functions only.
enum class ToolKind {
  kFunction,
  kCustom,      // one string: the arguments are {"input": TEXT}
  kToolSearch,  // asks the client for deferred tools; V4 does not know it
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;            // JSON text, as the client or the model wrote it
  std::string namespace_name = {};  // empty: none
  ToolKind kind = ToolKind::kFunction;
};

struct ToolDefinition {
  std::string name;
  std::string description;
  JsonValue parameters;  // an object: the JSON Schema in the key order of the request
  std::string namespace_name = {};
  std::string namespace_description = {};
  ToolKind kind = ToolKind::kFunction;
  bool strict = false;      // calls of it must satisfy its parameters
  bool deferred = false;    // V4.1: not shown until a message's `tools` holds it
  JsonValue original = {};  // profile `reference` prints this whole object when it is given
  // What the input of a custom tool keeps to: "lark" or "regex", and the definition. Empty: any text.
  std::string input_syntax = {}, input_grammar = {};
};

// A picture in the content of a message.
struct Image {
  enum class Detail { kLow, kHigh, kOriginal, kAuto };
  size_t offset = 0;   // the byte of `content` before which it stands
  std::string source;  // "https://..." or "data:image/png;base64,..."
  Detail detail = Detail::kHigh;
  std::string place = {};  // where the request holds it, for messages: "messages[0].content[1]"
};

// Quick instructions of the model's training (profile `reference` only).
enum class Task { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct Message {
  Role role = Role::kUser;
  std::string content = {};                       // without a trace of the images
  std::vector<Image> images = {};                 // system, user, tool: in the order of their offsets
  std::optional<std::string> reasoning = {};      // assistant
  std::vector<ToolCall> tool_calls = {};          // assistant
  std::string tool_call_id = {};                  // tool: the call that this answers
  bool cache_point = false;                       // later prompts may part from this one behind it; never shown
  bool is_prefix = false;                         // assistant, last message: the answer continues this text
  std::vector<ToolDefinition> tools = {};         // system: tools that are known from here on
  std::optional<JsonValue> response_format = {};  // system, profile `reference`: printed after the content
  std::optional<Task> task = {};                  // profile `reference`: ends the turn in that task's token
};

// Appends one part of a message, an empty line after the part before it, as every protocol joins them.
// `is_first` says that nothing was appended before, not even an empty text.
void append_text_part(Message& message, std::string_view text, bool is_first);
void append_image_part(Message& message, Image image, bool is_first);  // its offset is set here

enum class ToolChoice { kAuto, kNone, kRequired };
enum class ReasoningEffort { kLow, kHigh, kXhigh, kMax };

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kRegex };
  Kind kind = Kind::kText;
  JsonValue schema = {};  // kJsonSchema, as received
};

struct Conversation {
  std::vector<Message> messages;  // at least one
  bool thinking = true;
  ReasoningEffort reasoning_effort = ReasoningEffort::kHigh;  // read only when thinking
  std::optional<int> effort_number = {};  // 1 to 100; on V4.1 it wins over reasoning_effort
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format = {};

  bool tools_active() const { return tool_choice != ToolChoice::kNone && !tools.empty(); }
};

}  // namespace deepinfer
