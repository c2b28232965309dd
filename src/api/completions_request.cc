#include "api/completions_request.h"

#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxPrompts = 128;
constexpr int64_t kMaxLogprobs = 20;

Error wrong_prompt(const JsonRef& field) {
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: expected a string, a list of strings, a list of token ids or a list of such "
      "lists",
      field.path());
}

Result<RawPrompt> parse_ids(const JsonRef& field) {
  RawPrompt prompt;
  prompt.ids.emplace();
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  if (elements.empty())
    return Error(Code::kInvalidArgument, "invalid request body: {}: expected at least one token id", field.path());
  for (const JsonRef& element : elements) {
    const Result<int64_t> id = element.int64();
    if (!id.ok()) return invalid_body(id.error());
    if (*id < 0 || *id > INT32_MAX) return out_of_range(element.path(), "[0, 2147483647]");
    prompt.ids->push_back(static_cast<TokenId>(*id));
  }
  return prompt;
}

Result<RawPrompt> parse_one(const JsonRef& field) {
  if (field.value()->array() != nullptr) return parse_ids(field);
  if (field.value()->string() == nullptr) return wrong_prompt(field);
  RawPrompt prompt;
  prompt.text = *field.value()->string();
  return prompt;
}

Status parse_prompts(const JsonRef& field, std::vector<RawPrompt>& prompts) {
  if (!field.present()) return missing_field(field);
  const JsonValue::Array* array = field.value()->array();
  const bool is_list_of_prompts = array != nullptr && !array->empty() && !array->front().number().has_value();
  if (!is_list_of_prompts) {
    ASSIGN_OR_RETURN(RawPrompt prompt, parse_one(field));
    prompts.push_back(std::move(prompt));
    return {};
  }
  if (array->size() > kMaxPrompts) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: found {} prompts, expected at most {}",
                 field.path(), array->size(), kMaxPrompts);
  }
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(RawPrompt prompt, parse_one(element));
    prompts.push_back(std::move(prompt));
  }
  return {};
}

Status parse_suffix(const JsonRef& field, std::vector<RawPrompt>& prompts) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const std::string suffix, required_string(field));
  for (RawPrompt& prompt : prompts) {
    if (prompt.ids)
      return Error(Code::kInvalidArgument, "suffix: expected a text prompt, found token ids");
    prompt.suffix = suffix;
  }
  return {};
}

Status parse_counts(const JsonRef& body, CompletionsRequest& request) {
  if (given(body["n"])) {
    ASSIGN_OR_RETURN(const int64_t n, integer_field(body["n"]));
    if (n < 1 || n > kMaxAnswers) return out_of_range("n", fmt::format("[1, {}]", kMaxAnswers));
    request.n = static_cast<int32_t>(n);
  }
  RETURN_IF_ERROR(check_best_of(body["best_of"], request.n));
  if (given(body["logprobs"])) {
    ASSIGN_OR_RETURN(const int64_t top, integer_field(body["logprobs"]));
    if (top < 0 || top > kMaxLogprobs) return out_of_range("logprobs", fmt::format("[0, {}]", kMaxLogprobs));
    request.top_logprobs = static_cast<int32_t>(top);
  }
  return {};
}

Status parse_stream(const JsonRef& body, CompletionsRequest& request) {
  ASSIGN_OR_RETURN(request.stream, boolean_or(body["stream"], false));
  const JsonRef options = body["stream_options"];
  if (!given(options)) return {};
  if (const auto object = options.object(); !object.ok()) return invalid_body(object.error());
  if (!request.stream) {
    return Error(Code::kInvalidArgument, "stream_options should be set along with stream = true");
  }
  ASSIGN_OR_RETURN(request.include_usage, boolean_or(options["include_usage"], false));
  ASSIGN_OR_RETURN(request.usage_always, boolean_or(options["continuous_usage_stats"], false));
  request.usage_always = request.usage_always && request.include_usage;
  return {};
}

}  // namespace

Result<CompletionsRequest> parse_completions_request(std::string_view text, std::string_view served_model) {
  ASSIGN_OR_RETURN(const JsonValue json, parse_request_body(text));
  const JsonRef body(json);
  RETURN_IF_ERROR(check_unsupported(body, kCompletionsPath));
  CompletionsRequest request;
  RETURN_IF_ERROR(parse_model(body["model"], served_model, ModelNames::kDeepSeek, request.conversation));
  request.conversation.thinking = false;
  RETURN_IF_ERROR(parse_prompts(body["prompt"], request.raw_prompts));
  RETURN_IF_ERROR(parse_suffix(body["suffix"], request.raw_prompts));
  RETURN_IF_ERROR(parse_counts(body, request));
  RETURN_IF_ERROR(parse_sampling(body, request));
  RETURN_IF_ERROR(parse_max_tokens(body, "max_tokens", request));
  RETURN_IF_ERROR(parse_stop(body["stop"], request));
  RETURN_IF_ERROR(parse_response_format(body["response_format"], request));
  RETURN_IF_ERROR(parse_grammar_fields(body, request));
  RETURN_IF_ERROR(parse_stream(body, request));
  ASSIGN_OR_RETURN(request.echo, boolean_or(body["echo"], false));
  if (request.echo && request.top_logprobs) {
    return unsupported("logprobs", "with echo, the prompt's own tokens are not scored");
  }
  ASSIGN_OR_RETURN(request.user_id, string_or(body["user_id"], ""));
  return request;
}

}  // namespace deepinfer
