// What the parser of an answer needs to know of its request.
#include <algorithm>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

ToolSignature signature_of(const ToolDefinition& tool, std::string printed) {
  ToolSignature signature = {std::move(printed), {}};
  const JsonValue* properties = tool.parameters.find("properties");
  if (properties == nullptr || properties->object() == nullptr) return signature;
  for (const JsonMember& property : *properties->object()) {
    const JsonValue* type = property.value.find("type");
    const bool is_string = type != nullptr && type->string() != nullptr && *type->string() == "string";
    signature.parameters.push_back({property.key, is_string});
  }
  return signature;
}

}  // namespace

OutputOptions output_options(const Conversation& conversation, const RenderedPrompt& prompt,
                             PromptVersion version) {
  OutputOptions options;
  options.start = prompt.output_stage;
  const bool has_tools = std::any_of(
      conversation.tools.begin(), conversation.tools.end(), [version](const ToolDefinition& tool) {
        return version != PromptVersion::kV4 || tool.kind != ToolKind::kToolSearch;
      });
  options.parse_tool_calls = conversation.tools_active() && has_tools;
  options.json_output = conversation.response_format.kind == ResponseFormat::Kind::kJsonObject;
  if (!options.parse_tool_calls) return options;
  const ToolNames names(conversation, version);
  for (size_t i = 0; i < conversation.tools.size(); ++i) {
    options.tools.push_back(signature_of(conversation.tools[i], names.declared()[i]));
  }
  for (const Message& message : conversation.messages) {
    for (const ToolDefinition& tool : message.tools) {
      options.tools.push_back(signature_of(tool, names.printed(tool.namespace_name, tool.name)));
    }
  }
  return options;
}

}  // namespace deepinfer
