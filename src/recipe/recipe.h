// The prompt language of DeepSeek-V4.1: a conversation becomes one prompt, and the model's output becomes
// reasoning, content and tool calls again. Knows no wire format; each API converts to and from the types
// here.
//
// Follows the profile `recipe` of the specification (recipe.md 2-5 with its amendments).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// ---- The conversation (recipe.md 2) ----

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as the client or the model wrote it
};

struct Message {
  Role role = Role::kUser;
  std::string content;
  std::optional<std::string> reasoning;  // assistant
  std::vector<ToolCall> tool_calls;      // assistant
  std::string tool_call_id;              // tool: the call that this answers
  bool is_prefix = false;                // assistant, last message: the answer continues this text
};

struct ToolDefinition {
  std::string name;
  std::string description;
  JsonValue parameters;  // an object: the JSON Schema in the key order of the request
};

enum class ToolChoice { kAuto, kNone, kRequired };
enum class ReasoningEffort { kLow, kHigh, kXhigh, kMax };

struct Conversation {
  std::vector<Message> messages;  // at least one
  bool thinking = true;
  ReasoningEffort reasoning_effort = ReasoningEffort::kHigh;  // read only when thinking
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;

  bool tools_active() const { return tool_choice != ToolChoice::kNone && !tools.empty(); }
};

// ---- The prompt (recipe.md 3, 4) ----

struct TextRange {
  size_t begin = 0;  // bytes, half open
  size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

// Where the model's output begins.
enum class OutputStage {
  kReasoning,              // after <think>
  kReasoningContinuation,  // inside a thought that the client began: leading newlines stay
  kContent,                // after </think>
  kContentContinuation,    // inside an answer that the client began
  kToolCalls,              // inside a call block that the prompt opened
};

struct RenderedPrompt {
  std::string text;
  std::vector<TextRange> control_ranges;  // each is the spelling of one control token; all else is plain text
  OutputStage output_stage = OutputStage::kContent;
};

RenderedPrompt render(const Conversation& conversation);

// Control ranges become their token, plain text is encoded with control spellings as ordinary characters, so
// nothing that a client typed turns into a control token. kNotFound names a control token that the tokenizer
// lacks.
Result<std::vector<TokenId>> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

// Tokens that end an answer: end of sentence, and the tokens that open another turn. Those the tokenizer
// lacks are left out. kNotFound when it has no end of sentence.
Result<std::vector<TokenId>> stop_token_ids(const Tokenizer& tokenizer);

// ---- The output (recipe.md 5) ----

struct OutputOptions {
  OutputStage start = OutputStage::kContent;
  bool parse_tool_calls = false;
  bool single_tool_call = false;            // the first call ends the answer
  std::vector<std::string> stop_sequences;  // matched in content only; empty ones are ignored
};

struct OutputEvent {
  enum class Kind { kReasoning, kContent, kToolCall, kToolArguments };
  Kind kind;
  std::string_view
      text;  // a piece of text; kToolCall: the name of the call that starts. Valid during the callback.
};
using OutputSink = std::function<void(const OutputEvent&)>;

// Why the model stopped, as the engine saw it.
enum class OutputEnd { kStop, kLength };

// Splits output text into events. Concatenated events do not depend on how the text was cut into pieces, and
// no text is held back except what may still become a marker or a stop sequence. Owned by one request; not
// thread-safe.
class OutputParser {
 public:
  explicit OutputParser(OutputOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  void push(std::string_view piece, const OutputSink& sink);
  // Releases held text. kStop also closes the arguments of a call that was left open, so that they are valid
  // JSON; kLength leaves them cut. Call once, at the end.
  void finish(OutputEnd end, const OutputSink& sink);

  bool in_reasoning() const;
  int64_t num_tool_calls() const;
  // A stop sequence was found or the call block is closed: nothing that follows is read.
  bool done() const;
  std::optional<std::string> matched_stop_sequence() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace deepinfer
