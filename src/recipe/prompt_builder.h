// Appends plain text and control tokens to a RenderedPrompt, and the pieces that both profiles share. Private
// to the room.
#pragma once

#include <string_view>
#include <utility>

#include "recipe/recipe.h"

namespace deepinfer {

class PromptBuilder {
 public:
  void text(std::string_view plain) { prompt_.text += plain; }
  // One control token.
  void control(std::string_view spelling) {
    const size_t begin = prompt_.text.size();
    prompt_.text += spelling;
    prompt_.control_ranges.push_back({begin, prompt_.text.size()});
  }
  // Text of our own in which <think>, </think> and ｜DSML｜ are control tokens; nothing a client wrote may
  // stand in it.
  void template_text(std::string_view ours);
  // The content of a message with `placeholder`, a control token, for each image; an empty placeholder puts
  // "[Unsupported Image]" there and forgets the image.
  void content(const Message& message, std::string_view placeholder);
  void json(const JsonValue& value, JsonStyle style) { JsonWriter(prompt_.text, style).value(value); }

  // What was appended last may be written in place, e.g. by a JsonWriter.
  std::string& raw_text() { return prompt_.text; }

  RenderedPrompt take(OutputStage stage) {
    prompt_.output_stage = stage;
    return std::move(prompt_);
  }

 private:
  RenderedPrompt prompt_;
};

// The words of one version.
struct PromptWords {
  std::string_view calls, invoke, parameter;  // tag names after ｜DSML｜
  std::string_view tools_head, tools_tail;    // the schemas stand between the two
  JsonStyle json;                             // of schemas and arguments
  bool empty_line_without_parameters;
};
const PromptWords& words_of(const PromptFormat& format);

inline constexpr std::string_view kResponseFormatHeader =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// What stands before the first message when the model thinks; empty on V4 for a low effort.
std::string effort_text(const Conversation& conversation, const PromptFormat& format);

// A tool as the model reads it, one line of JSON without its end.
void append_definition(PromptBuilder& prompt, const ToolDefinition& tool, std::string_view name,
                       const PromptFormat& format);
// The calls of an earlier assistant turn (docs/spec/recipe.md 4.2), without the "\n\n" before them. `names` is null
// when nothing stands in a namespace.
void append_tool_calls(PromptBuilder& prompt, const std::vector<ToolCall>& calls, const ToolNames* names,
                       const PromptFormat& format);

// A message in its place: what it is shown as may differ from its role.
struct Turn {
  const Message* message;
  Role role;
};
inline bool is_user_turn(const Turn& turn) {
  return turn.role == Role::kUser || turn.role == Role::kSystemReminder || turn.role == Role::kTool;
}
// Inside each run of user turns the results take the order of the calls that they answer, unknown ids first
// (docs/spec/recipe.md 3.3 A3); V4 of profile `recipe` orders them by their ids instead.
enum class ResultOrder { kByCall, kById };
void order_results(std::vector<Turn>& turns, ResultOrder order);

// One a profile.
RenderedPrompt render_recipe(const Conversation& conversation, const PromptFormat& format);
RenderedPrompt render_reference(const Conversation& conversation, const PromptFormat& format);

}  // namespace deepinfer
