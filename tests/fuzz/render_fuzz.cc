// The renderer on messages of any JSON, in every version and profile: control ranges are in order and spell
// tokens, and each image has its placeholder. The first byte chooses the conversation's switches.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

void require(bool condition) {
  if (!condition) abort();
}

std::string text_of(const JsonRef& field) {
  if (!field.present()) return "";
  return field.value()->string() != nullptr ? *field.value()->string() : to_json(*field.value());
}

std::vector<JsonRef> elements_of(const JsonRef& field) {
  auto elements = field.array();
  return elements.ok() ? std::move(*elements) : std::vector<JsonRef>();
}

ToolDefinition tool_of(const JsonRef& field) {
  ToolDefinition tool;
  tool.name = text_of(field["name"]);
  tool.description = text_of(field["description"]);
  if (field["parameters"].present()) tool.parameters = *field["parameters"].value();
  tool.namespace_name = text_of(field["namespace"]);
  tool.deferred = field["deferred"].present();
  return tool;
}

Message message_of(const JsonRef& field) {
  Message message;
  message.role = static_cast<Role>(text_of(field["role"]).size() % 7);
  message.content = text_of(field["content"]);
  for (const JsonRef& image : elements_of(field["images"])) {
    append_image_part(message, {.source = text_of(image)}, message.content.empty());
  }
  if (field["reasoning"].present()) message.reasoning = text_of(field["reasoning"]);
  for (const JsonRef& call : elements_of(field["calls"])) {
    message.tool_calls.push_back(
        {text_of(call["id"]), text_of(call["name"]), text_of(call["arguments"]), text_of(call["namespace"])});
  }
  message.tool_call_id = text_of(field["id"]);
  message.is_prefix = field["prefix"].present();
  for (const JsonRef& tool : elements_of(field["tools"])) message.tools.push_back(tool_of(tool));
  if (field["task"].present()) message.task = static_cast<Task>(text_of(field["task"]).size() % 6);
  return message;
}

bool is_control(std::string_view spelling) {
  return spelling == "<think>" || spelling == "</think>" || spelling == "｜DSML｜" ||
         (spelling.starts_with("<｜") && spelling.ends_with("｜>"));
}

void check(const Conversation& conversation, const PromptFormat& format) {
  const RenderedPrompt prompt = render(conversation, format);
  size_t at = 0, images = 0;
  for (const TextRange& range : prompt.control_ranges) {
    require(range.begin >= at && range.end > range.begin && range.end <= prompt.text.size());
    const std::string_view spelling =
        std::string_view(prompt.text).substr(range.begin, range.end - range.begin);
    require(is_control(spelling));
    if (images < prompt.images.size() && prompt.images[images].offset == range.begin) ++images;
    at = range.end;
  }
  require(images == prompt.images.size());
  (void)output_options(conversation, prompt, format.version);
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  if (size < 1) return 0;
  const Result<JsonValue> json = parse_json({reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!json.ok()) return 0;
  const JsonRef document(*json);
  Conversation conversation;
  conversation.thinking = (data[0] & 1) != 0;
  conversation.tool_choice = static_cast<ToolChoice>(data[0] / 2 % 3);
  conversation.response_format.kind = static_cast<ResponseFormat::Kind>(data[0] / 8 % 4);
  for (const JsonRef& message : elements_of(document["messages"])) {
    conversation.messages.push_back(message_of(message));
  }
  for (const JsonRef& tool : elements_of(document["tools"])) conversation.tools.push_back(tool_of(tool));
  for (const auto version : {PromptVersion::kV4, PromptVersion::kV41}) {
    for (const auto profile : {PromptProfile::kRecipe, PromptProfile::kReference}) {
      PromptFormat format;
      format.version = version;
      format.profile = profile;
      check(conversation, format);
    }
  }
  return 0;
}
