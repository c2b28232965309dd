// Protocol text that the models were trained on; it must stay byte-exact (docs/spec/recipe.md 3.1, 4.1).
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

constexpr std::string_view kToolsHead = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

// V4 has the same text with other tag names.
constexpr std::string_view kToolsHeadV4 = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";

constexpr std::string_view kEffortHighV4 = R"(Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

)";

constexpr std::string_view kEffortMaxV4 =
    R"(Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

)";

constexpr PromptWords kWordsV41 = {" calls",   " invoke",          " parameter", kToolsHead,
                                   kToolsTail, JsonStyle::kPython, true};
constexpr PromptWords kWordsV4 = {"tool_calls", "invoke",           "parameter", kToolsHeadV4,
                                  kToolsTail,   JsonStyle::kSpaced, false};
// The reference encoder is Python for both.
constexpr PromptWords kWordsReferenceV4 = {"tool_calls", "invoke",           "parameter", kToolsHeadV4,
                                           kToolsTail,   JsonStyle::kPython, true};

int effort_number(ReasoningEffort effort, bool prerelease) {
  switch (effort) {
    case ReasoningEffort::kLow:
      return prerelease ? 25 : 50;
    case ReasoningEffort::kHigh:
      return prerelease ? 50 : 75;
    case ReasoningEffort::kXhigh:
      return 75;
    case ReasoningEffort::kMax:
      return 100;
  }
  return 75;
}

std::string_view effort_text_v4(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow:
      return "";
    case ReasoningEffort::kHigh:
    case ReasoningEffort::kXhigh:
      return kEffortHighV4;
    case ReasoningEffort::kMax:
      return kEffortMaxV4;
  }
  return "";
}

}  // namespace

const PromptWords& words_of(const PromptFormat& format) {
  if (format.version == PromptVersion::kV41) return kWordsV41;
  return format.profile == PromptProfile::kRecipe ? kWordsV4 : kWordsReferenceV4;
}

std::string effort_text(const Conversation& conversation, const PromptFormat& format) {
  if (!conversation.thinking) return "";
  if (format.version == PromptVersion::kV4) return std::string(effort_text_v4(conversation.reasoning_effort));
  return fmt::format(
      "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
      conversation.effort_number.value_or(
          effort_number(conversation.reasoning_effort, format.prerelease_efforts)));
}

}  // namespace deepinfer
