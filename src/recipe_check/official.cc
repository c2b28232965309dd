// The areas of the package made by running deepseek_recipe 0.2.0, but for its streams.
#include "recipe_check/replay.h"

namespace deepinfer {
namespace {

const Tokenizer* tokenizer_of(const JsonRef& record, const CheckTokenizers& tokenizers) {
  return version_of(record) == PromptVersion::kV4 ? tokenizers.v4 : tokenizers.v41;
}

// The option that turns thinking off by default is a model name here.
std::string body_of(const JsonRef& input) {
  if (input["request_text"].present()) return text_of(input["request_text"]);
  JsonValue request = value_of(input["request"]);
  const JsonRef thinks = input["options"]["default_thinking_mode"];
  JsonValue* model = request.find("model");
  if (model != nullptr && thinks.present() && !flag_of(thinks)) *model = JsonValue("deepseek-chat");
  return to_json(request);
}

std::string_view model_of(const JsonRef& record) {
  return version_of(record) == PromptVersion::kV4 ? "DeepSeek-V4-Pro" : "DeepSeek-V4.1-Flash";
}

JsonValue images_json(const RenderedPrompt& prompt) {
  constexpr std::string_view kDetails[] = {"low", "high", "original", "auto"};
  JsonValue::Array images;
  for (const Image& image : prompt.images) {
    images.push_back(
        JsonValue(JsonValue::Object{{"kind", image.source.starts_with("data:") ? "data_url" : "url"},
                                    {"detail", kDetails[static_cast<size_t>(image.detail)]}}));
  }
  return JsonValue(std::move(images));
}

JsonValue without_path(const JsonRef& images) {
  JsonValue::Array out;
  for (const JsonRef& image : elements_of(images)) {
    out.push_back(JsonValue(
        JsonValue::Object{{"kind", value_of(image["kind"])}, {"detail", value_of(image["detail"])}}));
  }
  return JsonValue(std::move(out));
}

JsonValue namespaces_json(const ToolNames& names) {
  JsonValue::Object out;
  for (const auto& [printed, target] : names.targets()) {
    if (target.namespace_name.empty()) continue;
    out.push_back({printed, JsonValue(JsonValue::Array{target.namespace_name, target.name})});
  }
  return JsonValue(std::move(out));
}

template <typename T>
JsonValue optional_json(const std::optional<T>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

// Sampling is ours to decide (docs/recipe.md), and output_constraint is the package's interface to a grammar
// engine.
void compare_options(const GenerationRequest& request, const RenderedPrompt& prompt, PromptVersion version,
                     const JsonRef& expected, Comparison& compare) {
  const JsonRef inference = expected["inference"];
  if (inference.present()) {
    compare.same("max_tokens", optional_json(request.max_tokens), value_of(inference["max_tokens"]));
    compare.same("seed", optional_json(request.seed), value_of(inference["seed"]));
    compare.same("logprobs", JsonValue(request.top_logprobs.has_value()), value_of(inference["logprobs"]));
  }
  const JsonRef parsing = expected["parsing"];
  const OutputOptions options = output_options(request.conversation, prompt, version);
  compare.same("parse_tool_calls", JsonValue(options.parse_tool_calls),
               value_of(parsing["parse_tool_calls"]));
  compare.same("parse_json_output", JsonValue(options.json_output), value_of(parsing["parse_json_output"]));
  compare.same("starts_in_tool_calls", JsonValue(options.start == OutputStage::kToolCalls),
               value_of(parsing["starts_in_tool_calls"]));
  compare.same("stop_sequences",
               JsonValue(JsonValue::Array(request.stop_sequences.begin(), request.stop_sequences.end())),
               value_of(parsing["stop_sequences"]));
  compare.same("stream", JsonValue(request.stream), value_of(expected["stream"]));
  compare.same("thinking_mode", JsonValue(request.conversation.thinking),
               value_of(expected["thinking_mode"]));
}

void check_render(const JsonRef& record, const CheckTokenizers& tokenizers, Comparison& compare) {
  const JsonRef input = record["input"];
  const Result<ReplayedRequest> replayed =
      convert_request(text_of(input["protocol"]), body_of(input), model_of(record));
  if (!replayed.ok()) {
    if (replayed.error().code() == Code::kUnimplemented) return compare.skip(replayed.error().message());
    return compare.differs("request", replayed.error().message(), "a request that is accepted");
  }
  const GenerationRequest& request = replayed->request;
  PromptFormat format;
  format.version = version_of(record);
  const RenderedPrompt prompt = render(request.conversation, format);
  compare_prompt(prompt, record["expected"], tokenizer_of(record, tokenizers), compare);
  compare.same("images", images_json(prompt), without_path(record["expected"]["images"]));
  compare_options(request, prompt, format.version, record["expected"], compare);
  const JsonRef namespaces = record["expected"]["namespace_tool_map"];
  if (namespaces.present()) {
    compare.same("namespace_tool_map", namespaces_json(ToolNames(request.conversation, format.version)),
                 value_of(namespaces));
  }
}

void check_error(const JsonRef& record, Comparison& compare) {
  const JsonRef input = record["input"];
  const JsonRef expected = record["expected"]["error"];
  const Result<ReplayedRequest> replayed =
      convert_request(text_of(input["protocol"]), body_of(input), model_of(record));
  if (replayed.ok())
    return compare.differs("request", "a request that is accepted", text_of(expected["message"]));
  const Error& error = replayed.error();
  if (error.code() == Code::kUnimplemented) return compare.skip(error.message());
  // The words of their JSON parser are their own; and a path may stand before a message of ours.
  if (text_of(expected["type"]) != "ConversionError") return;
  if (!says_the_same(error.message(), text_of(expected["message"]))) {
    compare.differs("message", error.message(), text_of(expected["message"]));
  }
}

void check_max_tokens(const JsonRef& record, Comparison& compare) {
  const JsonRef input = record["input"];
  const Result<ReplayedRequest> replayed =
      convert_request(text_of(input["protocol"]), body_of(input), model_of(record));
  if (!replayed.ok()) return compare.differs("request", replayed.error().message(), "accepted");
  const Result<int64_t> tokens =
      resolve_max_tokens(replayed->request, int_of(input["prompt_tokens"]), int_of(input["context_limit"]));
  const JsonRef expected = record["expected"];
  if (expected["error"].present()) {
    return compare.equal("error", tokens.ok() ? std::to_string(*tokens) : tokens.error().message(),
                         text_of(expected["error"]["message"]));
  }
  if (!tokens.ok()) return compare.differs("error", tokens.error().message(), "none");
  compare.same("max_tokens", JsonValue(*tokens), value_of(expected["max_tokens"]));
}

// How a number of a tool's schema is printed in the prompt.
void check_number(const JsonRef& record, Comparison& compare) {
  const JsonRef input = record["input"];
  const Result<ReplayedRequest> replayed =
      convert_request("chat_completions", body_of(input), model_of(record));
  const JsonRef expected = record["expected"];
  if (!replayed.ok()) {
    if (expected["error"].present()) return;
    return compare.differs("request", replayed.error().message(), "accepted");
  }
  if (expected["error"].present()) return compare.differs("request", "accepted", "refused");
  PromptFormat format;
  format.version = version_of(record);
  const std::string prompt = render(replayed->request.conversation, format).text;
  const size_t at = prompt.find("\"v\": ") + 5;
  compare.equal("printed", std::string_view(prompt).substr(at, prompt.find('}', at) - at),
                text_of(expected["printed"]));
}

void check_encode(const JsonRef& record, const CheckTokenizers& tokenizers, Comparison& compare) {
  const Tokenizer* tokenizer = tokenizer_of(record, tokenizers);
  if (tokenizer == nullptr) return compare.skip("needs a tokenizer (--tokenizer)");
  const JsonRef input = record["input"];
  const JsonValue& expected = value_of(record["expected"]["token_ids"]);
  if (input["text"].present()) {
    return compare.same("token_ids", ids_json(tokenizer->encode(text_of(input["text"]))), expected);
  }
  Conversation conversation;
  conversation.thinking = flag_of(input["thinking_mode"]);
  conversation.messages.emplace_back().content = text_of(input["user_text"]);
  PromptFormat format;
  format.version = version_of(record);
  const auto ids = encode(render(conversation, format), *tokenizer);
  compare.same("token_ids", ids.ok() ? ids_json(*ids) : JsonValue(ids.error().message()), expected);
}

}  // namespace

bool check_official(std::string_view area, const JsonRef& record, const CheckTokenizers& tokenizers,
                    Comparison& compare) {
  if (area.starts_with("render.") || area == "options" || area == "accepted") {
    check_render(record, tokenizers, compare);
  } else if (area == "error") {
    check_error(record, compare);
  } else if (area.starts_with("stream.")) {
    check_stream(record, tokenizers, compare);
  } else if (area == "max_tokens") {
    check_max_tokens(record, compare);
  } else if (area == "number") {
    check_number(record, compare);
  } else if (area == "encode" || area == "encode_full") {
    check_encode(record, tokenizers, compare);
  } else if (area == "image_tokens") {
    const JsonRef input = record["input"];
    compare.same("token_count", JsonValue(image_token_count(int_of(input["width"]), int_of(input["height"]))),
                 value_of(record["expected"]["token_count"]));
  } else if (area == "image" || area == "image_resolve") {
    compare.skip("images are not decoded yet");
  } else {
    return false;
  }
  return true;
}

}  // namespace deepinfer
