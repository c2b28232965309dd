// Namespaces and custom tools (docs/spec/recipe.md 4.4, 4.5).
#include "recipe/recipe.h"

namespace deepinfer {
namespace {

// Our own wording of the patch language that Codex and its relatives speak.
constexpr std::string_view kApplyPatch =
    R"(Edits files with a patch. The input is the patch alone: no JSON, no quotes, no Markdown fence.

A patch begins with the line `*** Begin Patch` and ends with the line `*** End Patch`. Between them stands one section for each file, and every section begins with one of these headers:

*** Add File: <path>
    A new file. Every line of it follows with a `+` in front.
*** Delete File: <path>
    Removes the file. Nothing follows.
*** Update File: <path>
    Changes the file. The next line may be `*** Move to: <new path>`, which renames it. Then come one or more hunks.

A hunk begins with a line `@@`, which may go on with the class or function that contains the change. Each line of the hunk begins with one character: a space for a line that stays, `-` for a line that goes, `+` for a line that comes. `*** End of File` after a hunk says that it reaches the end of the file.

Show three unchanged lines before and after each change. If they do not occur only once in the file, add `@@` lines that name the class and then the function. Do not repeat the context that two close changes share.

Paths are relative, never absolute.

Example:

*** Begin Patch
*** Add File: notes/today.txt
+Water the beds.
*** Update File: src/garden.py
*** Move to: src/beds.py
@@ class Garden
@@     def water(self):
     for bed in self.beds:
-        bed.water()
+        bed.water(litres=2)
     return True
*** Delete File: old.txt
*** End Patch
)";

JsonValue object_of(std::vector<JsonMember> members) {
  return JsonValue(JsonValue::Object(std::move(members)));
}

}  // namespace

ToolDefinition custom_tool(std::string name, std::string description) {
  if (description.empty() && name == "apply_patch") description = kApplyPatch;
  const bool is_patch = name == "apply_patch";
  ToolDefinition tool;
  tool.name = std::move(name);
  tool.description = std::move(description);
  tool.kind = ToolKind::kCustom;
  tool.parameters = object_of(
      {{"type", "object"},
       {"additionalProperties", false},
       {"properties",
        object_of({{"input", object_of({{"type", "string"},
                                        {"description",
                                         is_patch ? "The whole patch" : "The whole input, as it is"}})}})},
       {"required", JsonValue(JsonValue::Array{"input"})}});
  return tool;
}

std::string custom_tool_arguments(std::string_view input) {
  std::string arguments = "{\"input\": ";
  append_json_string(arguments, input);
  return arguments + "}";
}

ToolNames::ToolNames(const Conversation& conversation, PromptVersion version)
    : separator_(version == PromptVersion::kV41 ? "::" : "__") {
  // Plain names first: a member of a namespace gives way to them.
  for (const ToolDefinition& tool : conversation.tools) {
    if (tool.namespace_name.empty()) targets_[tool.name] = {"", tool.name, tool.kind};
  }
  for (const Message& message : conversation.messages) {
    for (const ToolDefinition& tool : message.tools) {
      if (tool.namespace_name.empty()) targets_.try_emplace(tool.name, Target{"", tool.name, tool.kind});
    }
  }
  for (const ToolDefinition& tool : conversation.tools) {
    declared_.push_back(tool.namespace_name.empty() ? tool.name : declare(tool));
  }
  for (const Message& message : conversation.messages) {
    for (const ToolDefinition& tool : message.tools) {
      const bool known = printed_.count({tool.namespace_name, tool.name}) > 0;
      if (!tool.namespace_name.empty() && !known) declare(tool);
    }
  }
}

std::string ToolNames::declare(const ToolDefinition& tool) {
  const std::string plain = plain_name(tool.namespace_name, tool.name);
  int& suffix = num_suffixes_[plain];
  std::string printed = plain;
  if (suffix > 0) printed = fmt::format("{}_{}", plain, suffix);
  while (targets_.count(printed) > 0) printed = fmt::format("{}_{}", plain, ++suffix);
  targets_[printed] = {tool.namespace_name, tool.name, tool.kind};
  printed_.try_emplace({tool.namespace_name, tool.name}, printed);
  return printed;
}

std::string ToolNames::plain_name(std::string_view namespace_name, std::string_view name) const {
  return std::string(namespace_name).append(separator_).append(name);
}

ToolNames::Target ToolNames::target(std::string_view printed) const {
  if (const auto found = targets_.find(printed); found != targets_.end()) return found->second;
  return {"", std::string(printed), ToolKind::kFunction};
}

std::string ToolNames::printed(std::string_view namespace_name, std::string_view name) const {
  if (namespace_name.empty()) return std::string(name);
  const auto found = printed_.find({std::string(namespace_name), std::string(name)});
  if (found != printed_.end()) return found->second;
  const std::string plain = plain_name(namespace_name, name);
  std::string candidate = plain;
  for (int i = 1; targets_.count(candidate) > 0; ++i) candidate = fmt::format("{}_{}", plain, i);
  return candidate;
}

}  // namespace deepinfer
