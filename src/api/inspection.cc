#include "api/inspection.h"

#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

std::string_view stage_name(OutputStage stage) {
  switch (stage) {
    case OutputStage::kReasoning:
      return "reasoning";
    case OutputStage::kReasoningContinuation:
      return "reasoning_continuation";
    case OutputStage::kContent:
      return "content";
    case OutputStage::kContentContinuation:
      return "content_continuation";
    case OutputStage::kToolCalls:
      return "tool_calls";
  }
  return "content";
}

void write_ids(JsonWriter& json, const std::vector<TokenId>& ids) {
  json.begin_array();
  for (const TokenId id : ids) json.value(id);
  json.end_array();
}

}  // namespace

Result<TokenizeRequest> parse_tokenize_request(std::string_view text, std::string_view served_model) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_request_body(text));
  const JsonRef body(json);
  TokenizeRequest request;
  if (given(body["messages"])) {
    ASSIGN_OR_RETURN(request.chat, parse_chat_request(text, served_model));
    return request;
  }
  ASSIGN_OR_RETURN(request.text, required_string(body["prompt"]));
  ASSIGN_OR_RETURN(request.begin_of_sentence, boolean_or(body["add_special_tokens"], true));
  return request;
}

Result<std::vector<TokenId>> parse_detokenize_request(std::string_view text) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_request_body(text));
  ASSIGN_OR_RETURN(const auto elements, required_array(JsonRef(json)["tokens"]));
  std::vector<TokenId> ids;
  for (const JsonRef& element : elements) {
    const Result<int64_t> id = element.int64();
    if (!id.ok()) return invalid_body(id.error());
    if (*id < 0 || *id > INT32_MAX) return out_of_range(element.path(), "[0, 2147483647]");
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

std::string tokens_to_json(const std::vector<TokenId>& ids, int64_t max_context_tokens) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("count", ids.size()).member("max_model_len", max_context_tokens).key("tokens");
  write_ids(json, ids);
  json.end_object();
  return out;
}

std::string text_to_json(std::string_view text) {
  std::string out;
  JsonWriter(out).begin_object().member("prompt", text).end_object();
  return out;
}

std::string prompt_to_json(const RenderedPrompt& prompt, const std::vector<TokenId>& ids) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("prompt", prompt.text).key("control_ranges").begin_array();
  for (const TextRange& range : prompt.control_ranges) {
    json.begin_array().value(range.begin).value(range.end).end_array();
  }
  json.end_array().member("output_stage", stage_name(prompt.output_stage)).key("tokens");
  write_ids(json, ids);
  json.member("count", ids.size()).end_object();
  return out;
}

}  // namespace deepinfer
