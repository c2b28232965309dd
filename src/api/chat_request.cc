// A chat request: model, thinking, sampling, limits. Messages and tools have files of their own.
#include "api/chat_request.h"

#include <algorithm>

#include "api/chat_tools.h"
#include "api/fields.h"

namespace deepinfer {
namespace {

constexpr int64_t kMaxTokensBound = 393216;
constexpr size_t kMaxStopSequences = 16;

struct ModelAlias {
  std::string_view name;
  bool thinking;  // the default
};
// Names under which DeepSeek's service offers this model (recipe.md 6).
constexpr ModelAlias kAliases[] = {
    {"DeepSeek-V4.1-Flash", true},          {"deepseek-flash", true}, {"deepseek-v4-flash", true},
    {"deepseek-v4-flash-vision-exp", true}, {"deepseek-chat", false}, {"deepseek-reasoner", true},
};

// Sets the default of the thinking switch.
Status parse_model(const JsonRef& field, std::string_view served_model, Conversation& conversation) {
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  if (name == served_model) return {};
  for (const ModelAlias& alias : kAliases) {
    if (alias.name != name) continue;
    conversation.thinking = alias.thinking;
    return {};
  }
  return Error(Code::kNotFound, "The model `{}` does not exist here; this server serves `{}`.", name,
               served_model);
}

struct EffortName {
  std::string_view name;
  std::optional<ReasoningEffort> effort;  // none: thinking off
};
constexpr EffortName kEfforts[] = {
    {"none", std::nullopt},           {"minimal", ReasoningEffort::kLow},
    {"low", ReasoningEffort::kLow},   {"medium", ReasoningEffort::kHigh},
    {"high", ReasoningEffort::kHigh}, {"xhigh", ReasoningEffort::kXhigh},
    {"ultra", ReasoningEffort::kMax}, {"max", ReasoningEffort::kMax},
};

Status parse_effort(const JsonRef& field, Conversation& conversation) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  for (const EffortName& known : kEfforts) {
    if (known.name != name) continue;
    conversation.thinking = known.effort.has_value();
    conversation.reasoning_effort = known.effort.value_or(ReasoningEffort::kHigh);
    return {};
  }
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `none`, `minimal`, `low`, `medium`, "
      "`high`, `xhigh`, `ultra`, `max`",
      field.path(), name);
}

// thinking.type wins over reasoning_effort, which wins over the model's default (recipe.md 3.2).
Status parse_thinking(const JsonRef& body, Conversation& conversation) {
  RETURN_IF_ERROR(parse_effort(body["reasoning_effort"], conversation));
  const JsonRef field = body["thinking"];
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    return Error(
        Code::kInvalidArgument,
        "invalid request body: {}: unknown variant `{}`, expected one of `adaptive`, `enabled`, `disabled`",
        field["type"].path(), type);
  }
  conversation.thinking = type != "disabled";
  if (given(field["budget_tokens"]))
    return unsupported("thinking.budget_tokens", "the length of a thought is not limited");
  return {};
}

Error out_of_range(std::string_view name, std::string_view range) {
  return Error(Code::kInvalidArgument, "Invalid {} value, the valid range of {} is {}", name, name, range);
}

Result<int64_t> integer(const JsonRef& field) {
  const Result<int64_t> value = field.int64();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}

Status parse_sampling(const JsonRef& body, ChatRequest& request) {
  SamplingParams& sampling = request.sampling;
  ASSIGN_OR_RETURN(sampling.temperature, number_or(body["temperature"], 1.0));
  if (!(sampling.temperature >= 0 && sampling.temperature <= 2)) return out_of_range("temperature", "[0, 2]");
  ASSIGN_OR_RETURN(sampling.top_p, number_or(body["top_p"], 1.0));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return out_of_range("top_p", "(0, 1.0]");
  ASSIGN_OR_RETURN(sampling.min_p, number_or(body["min_p"], 0.0));
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) return out_of_range("min_p", "[0, 1]");
  if (given(body["top_k"])) {
    ASSIGN_OR_RETURN(sampling.top_k, integer(body["top_k"]));
    if (sampling.top_k < 0) return out_of_range("top_k", "[0, 2^63)");
  }
  if (given(body["seed"])) {
    ASSIGN_OR_RETURN(const int64_t seed, integer(body["seed"]));
    if (seed < 0) return out_of_range("seed", "[0, 2^63)");
    request.seed = static_cast<uint64_t>(seed);
  }
  return {};
}

Status parse_max_tokens(const JsonRef& body, ChatRequest& request) {
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    if (!given(body[name]) || request.max_tokens) continue;
    ASSIGN_OR_RETURN(const int64_t value, integer(body[name]));
    if (value < 1 || value > kMaxTokensBound)
      return out_of_range(name, fmt::format("[1, {}]", kMaxTokensBound));
    request.max_tokens = value;
  }
  return {};
}

Status add_stop(const JsonRef& field, ChatRequest& request) {
  ASSIGN_OR_RETURN(std::string stop, required_string(field));
  if (stop.empty()) {
    return Error(Code::kInvalidArgument,
                 "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
                 "string instead.",
                 field.path());
  }
  request.stop_sequences.push_back(std::move(stop));
  return {};
}

Status parse_stop(const JsonRef& field, ChatRequest& request) {
  if (!given(field)) return {};
  if (field.value()->array() == nullptr) return add_stop(field, request);
  ASSIGN_OR_RETURN(const auto stops, required_array(field));
  if (stops.size() > kMaxStopSequences) {
    return Error(Code::kInvalidArgument, "Stop string array too long: {}", stops.size());
  }
  for (const JsonRef& stop : stops) RETURN_IF_ERROR(add_stop(stop, request));
  return {};
}

Status parse_stream(const JsonRef& body, ChatRequest& request) {
  ASSIGN_OR_RETURN(request.stream, boolean_or(body["stream"], false));
  const JsonRef options = body["stream_options"];
  if (!given(options)) return {};
  if (const auto object = options.object(); !object.ok()) return invalid_body(object.error());
  if (!request.stream) {
    return Error(Code::kInvalidArgument, "stream_options should be set along with stream = true");
  }
  ASSIGN_OR_RETURN(request.include_usage, boolean_or(options["include_usage"], false));
  return {};
}

Status check_penalty(const JsonRef& field) {
  ASSIGN_OR_RETURN(const double penalty, number_or(field, 0.0));
  if (!(penalty >= -2 && penalty <= 2)) return out_of_range(field.path(), "[-2, 2]");
  if (penalty != 0) return unsupported(field.path(), "penalties are not applied");
  return {};
}

Status check_logprobs(const JsonRef& body) {
  ASSIGN_OR_RETURN(const bool logprobs, boolean_or(body["logprobs"], false));
  if (given(body["top_logprobs"])) {
    ASSIGN_OR_RETURN(const int64_t top, integer(body["top_logprobs"]));
    if (!logprobs) {
      return Error(
          Code::kInvalidArgument,
          "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.");
    }
    if (top < 0 || top > 20) return out_of_range("top_logprobs", "[0, 20]");
  }
  if (logprobs) return unsupported("logprobs", "log probabilities are not reported");
  return {};
}

Status check_response_format(const JsonRef& field) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type == "text") return {};
  if (type == "json_object" || type == "json_schema" || type == "regex") {
    return unsupported("response_format", fmt::format("`{}` comes with structured output", type));
  }
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `text`, `json_object`, `json_schema`, "
      "`regex`",
      field["type"].path(), type);
}

// Parameters that would change the answer and that we cannot honour are refused, not ignored.
Status check_unsupported(const JsonRef& body) {
  if (given(body["n"])) {
    ASSIGN_OR_RETURN(const int64_t n, integer(body["n"]));
    if (n != 1) return Error(Code::kUnimplemented, "Invalid n value (currently only n = 1 is supported)");
  }
  RETURN_IF_ERROR(check_penalty(body["frequency_penalty"]));
  RETURN_IF_ERROR(check_penalty(body["presence_penalty"]));
  RETURN_IF_ERROR(check_logprobs(body));
  RETURN_IF_ERROR(check_response_format(body["response_format"]));
  if (given(body["logit_bias"])) {
    const auto bias = body["logit_bias"].object();
    if (!bias.ok()) return invalid_body(bias.error());
    if (!(*bias)->empty()) return unsupported("logit_bias", "biases are not applied");
  }
  return {};
}

Status check_prefix(const Conversation& conversation) {
  if (conversation.messages.back().is_prefix && conversation.tools_active()) {
    return Error(Code::kInvalidArgument, "Function call should not be used with prefix");
  }
  return {};
}

}  // namespace

Result<ChatRequest> parse_chat_request(std::string_view text, std::string_view served_model) {
  const Result<JsonValue> json = parse_json(text);
  if (!json.ok()) return Error(Code::kInvalidArgument, "invalid JSON request: {}", json.error().message());
  const JsonRef body(*json);
  if (json->object() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: found {}, expected object",
                 json->kind_name());
  }
  ChatRequest request;
  Conversation& conversation = request.conversation;
  RETURN_IF_ERROR(parse_model(body["model"], served_model, conversation));
  RETURN_IF_ERROR(parse_thinking(body, conversation));
  ASSIGN_OR_RETURN(conversation.messages, parse_chat_messages(body["messages"]));
  RETURN_IF_ERROR(parse_chat_tools(body, conversation));
  RETURN_IF_ERROR(check_prefix(conversation));
  RETURN_IF_ERROR(parse_sampling(body, request));
  RETURN_IF_ERROR(parse_max_tokens(body, request));
  RETURN_IF_ERROR(parse_stop(body["stop"], request));
  RETURN_IF_ERROR(parse_stream(body, request));
  ASSIGN_OR_RETURN(request.parallel_tool_calls, boolean_or(body["parallel_tool_calls"], true));
  RETURN_IF_ERROR(check_unsupported(body));
  return request;
}

Result<int64_t> resolve_max_tokens(const ChatRequest& request, int64_t prompt_tokens,
                                   int64_t context_tokens) {
  const int64_t asked = request.max_tokens.value_or(0);
  if (prompt_tokens > context_tokens || asked > context_tokens - prompt_tokens) {
    return Error(Code::kInvalidArgument,
                 "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
                 "the messages, "
                 "{} in the completion). Please reduce the length of the messages or completion.",
                 context_tokens, prompt_tokens + asked, prompt_tokens, asked);
  }
  if (request.max_tokens) return *request.max_tokens;
  const Conversation& conversation = request.conversation;
  const int64_t usual = !conversation.thinking                                   ? 8192
                        : conversation.reasoning_effort == ReasoningEffort::kMax ? 131072
                                                                                 : 65536;
  return std::max<int64_t>(1, std::min(usual, context_tokens - prompt_tokens));
}

}  // namespace deepinfer
