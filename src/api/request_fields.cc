#include "api/request_fields.h"

#include <algorithm>
#include <charconv>

#include "api/fields.h"
#include "api/models.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxStopSequences = 16;
constexpr size_t kMaxNameBytes = 128;
constexpr int64_t kMaxEffort = 100;
constexpr size_t kMaxValues = 4 << 20;  // a value takes far more memory than its text
constexpr size_t kMaxFields = 1024;     // of the body itself
constexpr size_t kMaxTokenIds = 16384;  // in one list or map of the request

struct ModelAlias {
  std::string_view name;
  bool thinking;  // the default
};
// Names under which DeepSeek's service offers this model (docs/spec/recipe.md 6).
constexpr ModelAlias kAliases[] = {
    {"DeepSeek-V4.1-Flash", true},          {"deepseek-flash", true}, {"deepseek-v4-flash", true},
    {"deepseek-v4-flash-vision-exp", true}, {"deepseek-chat", false}, {"deepseek-reasoner", true},
};

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

Status add_stop(const JsonRef& field, GenerationRequest& request) {
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

Error too_many_ids(const JsonRef& field, size_t count) {
  return Error(Code::kInvalidArgument, "invalid request body: {}: found {} token ids, expected at most {}",
               field.path(), count, kMaxTokenIds);
}

Status parse_penalty(const JsonRef& field, double& out) {
  ASSIGN_OR_RETURN(out, number_or(field, 0.0));
  if (!(out >= -2 && out <= 2)) return out_of_range(field.path(), "[-2, 2]");
  return {};
}

// {"id": bias}, the ids as decimal strings. Whether the model has them is for whoever knows it.
Status parse_logit_bias(const JsonRef& field, SamplingParams& sampling) {
  if (!given(field)) return {};
  const auto object = field.object();
  if (!object.ok()) return invalid_body(object.error());
  if ((*object)->size() > kMaxTokenIds) return too_many_ids(field, (*object)->size());
  for (const JsonMember& member : **object) {
    int32_t id = 0;
    const char* end = member.key.data() + member.key.size();
    const auto [stop, error] = std::from_chars(member.key.data(), end, id);
    const std::optional<double> bias = member.value.number();
    if (error != std::errc() || stop != end || id < 0 || !bias || !(*bias >= -100 && *bias <= 100)) {
      return Error(Code::kInvalidArgument,
                   "invalid request body: {}: found a key or value of the wrong type, expected token ids with "
                   "numbers in [-100, 100]",
                   field.path());
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(*bias));
  }
  return {};
}

Result<std::vector<TokenId>> parse_token_ids(const JsonRef& field) {
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  if (elements.size() > kMaxTokenIds) return too_many_ids(field, elements.size());
  std::vector<TokenId> ids;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(const int64_t id, integer_field(element));
    if (id < 0 || id > INT32_MAX) return out_of_range(element.path(), "[0, 2147483647]");
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// What ends an answer, and what it may hold, by token ids.
Status parse_token_rules(const JsonRef& body, GenerationRequest& request) {
  if (given(body["min_tokens"])) {
    ASSIGN_OR_RETURN(request.min_tokens, integer_field(body["min_tokens"]));
    if (request.min_tokens < 0 || request.min_tokens > kMaxTokensBound)
      return out_of_range("min_tokens", fmt::format("[0, {}]", kMaxTokensBound));
  }
  ASSIGN_OR_RETURN(request.ignores_end, boolean_or(body["ignore_eos"], false));
  if (given(body["stop_token_ids"])) {
    ASSIGN_OR_RETURN(request.stop_token_ids, parse_token_ids(body["stop_token_ids"]));
  }
  if (!given(body["allowed_token_ids"])) return {};
  ASSIGN_OR_RETURN(request.allowed_token_ids, parse_token_ids(body["allowed_token_ids"]));
  if (!request.allowed_token_ids->empty()) return {};
  return Error(Code::kInvalidArgument, "invalid request body: allowed_token_ids: found no token id");
}

}  // namespace

Result<JsonValue> parse_request_body(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Result<JsonValue> json = parse_json(text, {.max_values = kMaxValues});
  if (!json.ok()) return Error(Code::kInvalidArgument, "invalid JSON request: {}", json.error().message());
  if (json->object() == nullptr) {
    return Error(Code::kInvalidArgument, "invalid request body: found {}, expected object",
                 json->kind_name());
  }
  // Each field that is read is looked for among them.
  if (json->object()->size() > kMaxFields) {
    return Error(Code::kInvalidArgument, "invalid request body: found {} fields, expected at most {}",
                 json->object()->size(), kMaxFields);
  }
  return json;
}

bool is_served(std::string_view name, std::string_view served_model) {
  return name == served_model || name.starts_with("claude-") ||
         std::any_of(std::begin(kAliases), std::end(kAliases),
                     [name](const ModelAlias& alias) { return alias.name == name; });
}

Status parse_model(const JsonRef& field, std::string_view served_model, ModelNames names,
                   Conversation& conversation) {
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  if (name == served_model) return {};
  if (names == ModelNames::kDeepSeekAndClaude && name.starts_with("claude-")) return {};
  for (const ModelAlias& alias : kAliases) {
    if (alias.name != name) continue;
    conversation.thinking = alias.thinking;
    return {};
  }
  return Error(Code::kNotFound, "The model `{}` does not exist here; this server serves `{}`.", name,
               served_model);
}

Status parse_effort(const JsonRef& field, Conversation& conversation, Thinking& asked) {
  if (!given(field)) return {};
  if (field.value()->number()) {
    ASSIGN_OR_RETURN(const int64_t number, integer_field(field));
    if (number < 1 || number > kMaxEffort)
      return out_of_range(field.path(), fmt::format("[1, {}]", kMaxEffort));
    conversation.thinking = true;
    conversation.effort_number = static_cast<int>(number);
    asked = Thinking::kAsked;
    return {};
  }
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  for (const EffortName& known : kEfforts) {
    if (known.name != name) continue;
    conversation.thinking = known.effort.has_value();
    conversation.reasoning_effort = known.effort.value_or(ReasoningEffort::kHigh);
    conversation.effort_number.reset();
    asked = Thinking::kAsked;
    return {};
  }
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `none`, `minimal`, `low`, `medium`, "
      "`high`, `xhigh`, `ultra`, `max`, or a number from 1 to 100",
      field.path(), name);
}

Status parse_thinking_switches(const JsonRef& body, Conversation& conversation, Thinking& asked) {
  for (const char* name : {"think", "enable_thinking"}) {
    const JsonRef field = body[name];
    if (!given(field)) continue;
    if (!field.value()->boolean()) {
      RETURN_IF_ERROR(parse_effort(field, conversation, asked));
      continue;
    }
    conversation.thinking = *field.value()->boolean();
    asked = Thinking::kAsked;
  }
  return {};
}

Status parse_thinking_budget(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const int64_t budget, integer_field(field));
  if (budget < 0) return out_of_range(field.path(), "[0, 2^63)");
  request.thinking_budget = budget;
  return {};
}

Status parse_thinking(const JsonRef& field, GenerationRequest& request, Thinking& asked) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    return Error(
        Code::kInvalidArgument,
        "invalid request body: {}: unknown variant `{}`, expected one of `adaptive`, `enabled`, `disabled`",
        field["type"].path(), type);
  }
  RETURN_IF_ERROR(parse_thinking_budget(field["budget_tokens"], request));
  request.conversation.thinking = type != "disabled";
  asked = Thinking::kAsked;
  return {};
}

Error out_of_range(std::string_view name, std::string_view range) {
  return Error(Code::kInvalidArgument, "Invalid {} value, the valid range of {} is {}", name, name, range);
}

Result<int64_t> integer_field(const JsonRef& field) {
  const Result<int64_t> value = field.int64();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}

static Status parse_context_mode(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const std::string name, required_string(field));
  request.context_mode = context_mode_of(name);
  if (request.context_mode) return {};
  return Error(Code::kInvalidArgument,
               "invalid request body: {}: unknown variant `{}`, expected one of `exact`, `stable`, `bounded`",
               field.path(), name);
}

Status parse_sampling(const JsonRef& body, GenerationRequest& request) {
  SamplingParams& sampling = request.sampling;
  ASSIGN_OR_RETURN(sampling.temperature, number_or(body["temperature"], 1.0));
  if (!(sampling.temperature >= 0 && sampling.temperature <= 2)) return out_of_range("temperature", "[0, 2]");
  ASSIGN_OR_RETURN(sampling.top_p, number_or(body["top_p"], 1.0));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return out_of_range("top_p", "(0, 1.0]");
  ASSIGN_OR_RETURN(sampling.min_p, number_or(body["min_p"], 0.0));
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) return out_of_range("min_p", "[0, 1]");
  if (given(body["top_k"])) {
    ASSIGN_OR_RETURN(sampling.top_k, integer_field(body["top_k"]));
    if (sampling.top_k == -1) sampling.top_k = 0;  // "off" in other servers
    if (sampling.top_k < 0) return out_of_range("top_k", "[0, 2^63)");
  }
  if (given(body["seed"])) {
    ASSIGN_OR_RETURN(const int64_t seed, integer_field(body["seed"]));
    if (seed < 0) return out_of_range("seed", "[0, 2^63)");
    request.seed = static_cast<uint64_t>(seed);
  }
  ASSIGN_OR_RETURN(request.salvage, boolean_or(body["salvage"], true));
  ASSIGN_OR_RETURN(request.speculation, boolean_or(body["speculation"], true));
  RETURN_IF_ERROR(parse_context_mode(body["context_mode"], request));
  RETURN_IF_ERROR(parse_penalty(body["frequency_penalty"], sampling.frequency_penalty));
  RETURN_IF_ERROR(parse_penalty(body["presence_penalty"], sampling.presence_penalty));
  ASSIGN_OR_RETURN(sampling.repetition_penalty, number_or(body["repetition_penalty"], 1.0));
  if (!(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 2))
    return out_of_range("repetition_penalty", "(0, 2]");
  RETURN_IF_ERROR(parse_token_rules(body, request));
  ASSIGN_OR_RETURN(request.cache_salt, string_or(body["cache_salt"], ""));
  return parse_logit_bias(body["logit_bias"], sampling);
}

Status parse_max_tokens(const JsonRef& body, std::string_view name, GenerationRequest& request) {
  for (const std::string_view known :
       {name, std::string_view("max_tokens"), std::string_view("max_completion_tokens"),
        std::string_view("max_output_tokens"), std::string_view("max_new_tokens"), std::string_view("n_predict")}) {
    const JsonRef field = body[known];
    if (!given(field)) continue;
    ASSIGN_OR_RETURN(const int64_t value, integer_field(field));
    if (value < 1 || value > kMaxTokensBound) {
      const bool own = known == "max_output_tokens";  // DeepSeek's service names it so
      return out_of_range(own ? "max_tokens" : known, fmt::format("[1, {}]", kMaxTokensBound));
    }
    // Of this path's names the first counts; those of other servers can only lower it.
    const bool foreign = known == "max_new_tokens" || known == "n_predict";
    request.max_tokens = request.max_tokens && foreign ? std::min(*request.max_tokens, value)
                                                        : request.max_tokens.value_or(value);
  }
  return {};
}

Status check_best_of(const JsonRef& field, int32_t n) {
  if (!given(field)) return {};
  ASSIGN_OR_RETURN(const int64_t best_of, integer_field(field));
  if (best_of != n) return unsupported("best_of", "answers are not ranked; use n");
  return {};
}

Status parse_stop(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  if (field.value()->array() == nullptr) return add_stop(field, request);
  ASSIGN_OR_RETURN(const auto stops, required_array(field));
  if (stops.size() > kMaxStopSequences) {
    return Error(Code::kInvalidArgument, "Stop string array too long: {}", stops.size());
  }
  for (const JsonRef& stop : stops) RETURN_IF_ERROR(add_stop(stop, request));
  return {};
}

Status check_tool_name(const JsonRef& field, std::string_view name) {
  if (name.empty()) {
    return Error(Code::kInvalidArgument,
                 "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty "
                 "string instead.",
                 field.path());
  }
  if (name.size() > kMaxNameBytes) {
    return Error(Code::kInvalidArgument,
                 "Invalid '{}': string too long. Expected a string with maximum length {}, but got a string "
                 "with length {} instead.",
                 field.path(), kMaxNameBytes, name.size());
  }
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (plain) return {};
  return Error(Code::kInvalidArgument,
               "Invalid '{}': string does not match pattern. Expected a string that matches the pattern "
               "'^[a-zA-Z0-9_-]+$'.",
               field.path());
}

// Whether it is a valid schema matters where it is enforced.
Result<JsonValue> parse_tool_schema(const JsonRef& field, std::string_view tool) {
  if (!given(field)) return JsonValue(JsonValue::Object{});
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  const JsonRef type = field["type"];
  if (type.present() && type.value()->string() != nullptr && *type.value()->string() == "object") {
    return *field.value();
  }
  return Error(
      Code::kInvalidArgument,
      "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
      tool, type.present() ? to_json(*type.value()) : "null");
}

Status check_forced(const JsonRef& field, const Conversation& conversation) {
  if (conversation.tool_choice != ToolChoice::kRequired || !conversation.tools.empty()) return {};
  return Error(Code::kInvalidArgument, "{}: found a call to be forced and no tools to call", field.path());
}

Status choose_among(const std::vector<std::string>& names, const JsonRef& field, Conversation& conversation) {
  const std::set<std::string_view> allowed(names.begin(), names.end());
  std::erase_if(conversation.tools, [&allowed](const ToolDefinition& tool) { return allowed.count(tool.name) == 0; });
  ASSIGN_OR_RETURN(const std::string mode, string_or(field["mode"], "auto"));
  if (mode != "auto" && mode != "required") {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected `auto` or `required`", field["mode"].path(),
                 mode);
  }
  if (mode == "required") conversation.tool_choice = ToolChoice::kRequired;
  return check_forced(field, conversation);
}

Status choose_tool(std::string_view name, const JsonRef& field, Conversation& conversation) {
  if (conversation.tools.empty()) {
    conversation.tool_choice = ToolChoice::kRequired;
    return check_forced(field, conversation);
  }
  // A tool outside of namespaces goes before their members of the same name.
  const auto is_plain = [&name](const ToolDefinition& tool) {
    return tool.name == name && tool.namespace_name.empty();
  };
  const bool plain = std::any_of(conversation.tools.begin(), conversation.tools.end(), is_plain);
  std::erase_if(conversation.tools,
                [&](const ToolDefinition& tool) { return plain ? !is_plain(tool) : tool.name != name; });
  if (conversation.tools.empty()) {
    return Error(
        Code::kInvalidArgument,
        "Invalid value for 'tool_call': no function named '{}' was specified in the 'tools' parameter.",
        name);
  }
  conversation.tool_choice = ToolChoice::kRequired;
  return {};
}

void settle_tool_choice(Thinking asked, Conversation& conversation) {
  const bool forced = conversation.tool_choice == ToolChoice::kRequired && conversation.tools_active();
  if (forced && asked == Thinking::kDefault) conversation.thinking = false;
}

}  // namespace deepinfer
