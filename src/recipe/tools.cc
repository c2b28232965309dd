// Tool definitions and calls as the model reads them: one JSON object a line, calls in DSML (recipe.md 4).
#include <optional>

#include "recipe/control_tokens.h"
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

// Protocol text that the model was trained on; it must stay byte-exact. The schemas stand between the two
// parts.
constexpr std::string_view kToolsBlockHead = R"(## Tools

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
constexpr std::string_view kToolsBlockTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

std::string definition_line(const ToolDefinition& tool) {
  std::string line;
  JsonWriter writer(line, JsonStyle::kPython);
  writer.begin_object()
      .member("name", tool.name)
      .member("description", tool.description)
      .member("parameters", tool.parameters)
      .end_object();
  return line;
}

void append_parameter(PromptBuilder& prompt, std::string_view name, const JsonValue& value) {
  const std::string* string = value.string();
  prompt.template_text("<｜DSML｜ parameter name=\"");
  prompt.text(name);
  prompt.text(string != nullptr ? "\" string=\"true\">" : "\" string=\"false\">");
  prompt.text(string != nullptr ? *string : to_json(value, JsonStyle::kPython));
  prompt.template_text("</｜DSML｜ parameter>");
}

// Arguments that are no JSON object are shown whole, as one parameter of that name.
void append_arguments(PromptBuilder& prompt, const std::string& arguments) {
  const Result<JsonValue> parsed = parse_json(arguments);
  const JsonValue::Object* object = parsed.ok() ? parsed->object() : nullptr;
  if (object == nullptr) {
    append_parameter(prompt, "arguments", JsonValue(arguments));
    return;
  }
  for (size_t i = 0; i < object->size(); ++i) {
    if (i > 0) prompt.text("\n");
    append_parameter(prompt, (*object)[i].key, (*object)[i].value);
  }
}

}  // namespace

void append_tools_block(PromptBuilder& prompt, const std::vector<ToolDefinition>& tools) {
  prompt.template_text(kToolsBlockHead);
  for (size_t i = 0; i < tools.size(); ++i) {
    if (i > 0) prompt.text("\n");
    prompt.text(definition_line(tools[i]));
  }
  prompt.text(kToolsBlockTail);
}

void append_tool_calls(PromptBuilder& prompt, const std::vector<ToolCall>& calls) {
  prompt.template_text("<｜DSML｜ calls>\n");
  for (const ToolCall& call : calls) {
    prompt.template_text("<｜DSML｜ invoke name=\"");
    prompt.text(call.name);
    prompt.text("\">\n");
    append_arguments(prompt, call.arguments);
    prompt.template_text("\n</｜DSML｜ invoke>\n");
  }
  prompt.template_text("</｜DSML｜ calls>");
}

void append_forced_calls_opener(PromptBuilder& prompt) {
  prompt.template_text("\n\n<｜DSML｜ calls>\n");
}

void PromptBuilder::template_text(std::string_view ours) {
  while (!ours.empty()) {
    size_t begin = std::string_view::npos;
    std::string_view next;
    for (const std::string_view token : {control::kThinkOpen, control::kThinkClose, control::kDsml}) {
      if (const size_t at = ours.find(token); at < begin) begin = at, next = token;
    }
    if (next.empty()) return text(ours);
    text(ours.substr(0, begin));
    control(next);
    ours.remove_prefix(begin + next.size());
  }
}

}  // namespace deepinfer
