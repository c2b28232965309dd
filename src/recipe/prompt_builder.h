// Appends plain text and control tokens to a RenderedPrompt. Private to the room.
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

  RenderedPrompt take(OutputStage stage) {
    prompt_.output_stage = stage;
    return std::move(prompt_);
  }

 private:
  RenderedPrompt prompt_;
};

// The system text that declares the tools (recipe.md 4.1), without the "\n\n" before it.
void append_tools_block(PromptBuilder& prompt, const std::vector<ToolDefinition>& tools);
// The calls of an earlier assistant turn (recipe.md 4.2), without the "\n\n" before them.
void append_tool_calls(PromptBuilder& prompt, const std::vector<ToolCall>& calls);
// What opens the call block when a call is forced (recipe.md 3.3 step D).
void append_forced_calls_opener(PromptBuilder& prompt);

}  // namespace deepinfer
