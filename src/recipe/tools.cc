// Tool definitions and calls as the model reads them: one JSON object a line, calls in DSML (docs/spec/recipe.md 4).
#include "recipe/control_tokens.h"
#include "recipe/prompt_builder.h"

namespace deepinfer {
namespace {

// Writes "<｜DSML｜NAME" or "</｜DSML｜NAME".
void append_tag(PromptBuilder& prompt, std::string_view open, std::string_view name) {
  prompt.text(open);
  prompt.control(control::kDsml);
  prompt.text(name);
}

// With U+200B after the "</" of each closing tag.
std::string split_call_markup(std::string_view value) {
  constexpr std::string_view kOpen = "</";
  const std::string closing = std::string(kOpen).append(control::kDsml);
  std::string out;
  for (size_t at; (at = value.find(closing)) != std::string_view::npos;) {
    out.append(value.substr(0, at)).append(kOpen).append("\u200B").append(control::kDsml);
    value.remove_prefix(at + closing.size());
  }
  return out.append(value);
}

void append_parameter(PromptBuilder& prompt, std::string_view name, const JsonValue& value,
                      const PromptFormat& format) {
  const PromptWords& words = words_of(format);
  const std::string* string = value.string();
  append_tag(prompt, "<", words.parameter);
  prompt.text(" name=\"");
  prompt.text(name);
  prompt.text(string != nullptr ? "\" string=\"true\">" : "\" string=\"false\">");
  if (string == nullptr) {
    prompt.json(value, words.json);
  } else {
    prompt.text(format.split_call_markup ? split_call_markup(*string) : *string);
  }
  append_tag(prompt, "</", words.parameter);
  prompt.text(">");
}

// Each parameter with its newline. Arguments that are not a JSON object are shown whole, as one parameter of
// that name.
void append_arguments(PromptBuilder& prompt, const std::string& arguments, const PromptFormat& format) {
  const Result<JsonValue> parsed = parse_json(arguments);
  const JsonValue::Object* object = parsed.ok() ? parsed->object() : nullptr;
  if (object == nullptr) {
    append_parameter(prompt, "arguments", JsonValue(arguments), format);
    return prompt.text("\n");
  }
  for (const JsonMember& member : *object) {
    append_parameter(prompt, member.key, member.value, format);
    prompt.text("\n");
  }
  if (object->empty() && words_of(format).empty_line_without_parameters) prompt.text("\n");
}

}  // namespace

CallMarkup call_markup(PromptVersion version) {
  PromptFormat format;
  format.version = version;
  const PromptWords& words = words_of(format);
  return {control::kDsml, words.calls, words.invoke, words.parameter};
}

void append_definition(PromptBuilder& prompt, const ToolDefinition& tool, std::string_view name,
                       const PromptFormat& format) {
  JsonWriter writer(prompt.raw_text(), words_of(format).json);
  if (format.profile == PromptProfile::kReference) {
    if (!tool.original.is_null()) {
      writer.value(tool.original);
      return;
    }
    writer.begin_object().member("name", name);
    if (!tool.description.empty()) writer.member("description", tool.description);
    writer.member("parameters", tool.parameters).end_object();
    return;
  }
  writer.begin_object().member("name", name).key("description");
  const bool described = format.version == PromptVersion::kV41 && !tool.namespace_description.empty();
  if (described) {
    writer.value(tool.namespace_description + "\n" + tool.description);
  } else {
    writer.value(tool.description);
  }
  writer.member("parameters", tool.parameters).end_object();
}

void append_tool_calls(PromptBuilder& prompt, const std::vector<ToolCall>& calls, const ToolNames* names,
                       const PromptFormat& format) {
  const PromptWords& words = words_of(format);
  append_tag(prompt, "<", words.calls);
  prompt.text(">\n");
  for (const ToolCall& call : calls) {
    append_tag(prompt, "<", words.invoke);
    prompt.text(" name=\"");
    prompt.text(call.namespace_name.empty() || names == nullptr
                    ? call.name
                    : names->printed(call.namespace_name, call.name));
    prompt.text("\">\n");
    append_arguments(prompt, call.arguments, format);
    append_tag(prompt, "</", words.invoke);
    prompt.text(">\n");
  }
  append_tag(prompt, "</", words.calls);
  prompt.text(">");
}

}  // namespace deepinfer
