#include "recipe_check/replay.h"

#include <cctype>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "api/messages_request.h"
#include "api/messages_response.h"

namespace deepinfer {
namespace {

// Long texts are told from shortly before the first byte that differs.
std::string excerpt(std::string_view text, size_t from) {
  constexpr size_t kBefore = 30, kLength = 160;
  const size_t begin = from > kBefore ? from - kBefore : 0;
  std::string out = begin > 0 ? "..." : "";
  out += text.substr(begin, kLength);
  if (text.size() > begin + kLength) out += "...";
  return out;
}

}  // namespace

void Comparison::equal(std::string_view what, std::string_view found, std::string_view expected) {
  if (found != expected) differs(what, found, expected);
}

void Comparison::differs(std::string_view what, std::string_view found, std::string_view expected) {
  size_t at = 0;
  while (at < found.size() && at < expected.size() && found[at] == expected[at]) ++at;
  result_.kind = RecordResult::Kind::kFailed;
  result_.found.emplace_back(what, found);
  result_.differences.push_back(
      fmt::format("{}: found {}, expected {}", what, excerpt(found, at), excerpt(expected, at)));
}

void Comparison::skip(std::string_view reason) {
  result_.kind = RecordResult::Kind::kSkipped;
  result_.reason = reason;
}

bool says_the_same(std::string_view ours, std::string_view theirs) {
  if (ours.ends_with(theirs)) return true;
  const size_t colon = theirs.find(": ");
  if (colon == std::string_view::npos || !ours.ends_with(theirs.substr(colon))) return false;
  std::string place;  // ".messages.0.content[1]" as "messages[0].content[1]"
  for (size_t i = theirs.starts_with('.') ? 1 : 0; i < colon; ++i) {
    const bool index = theirs[i] == '.' && std::isdigit(static_cast<unsigned char>(theirs[i + 1]));
    if (!index) {
      place += theirs[i];
      continue;
    }
    place += '[';
    for (; std::isdigit(static_cast<unsigned char>(theirs[i + 1])); ++i) place += theirs[i + 1];
    place += ']';
  }
  return ours.starts_with(place);
}

std::string text_of(const JsonRef& field) {
  return field.present() && field.value()->string() != nullptr ? *field.value()->string() : std::string();
}
bool flag_of(const JsonRef& field) {
  return field.present() && field.value()->boolean().value_or(false);
}
int64_t int_of(const JsonRef& field) {
  const Result<int64_t> value = field.int64();
  return value.ok() ? *value : 0;
}
const JsonValue& value_of(const JsonRef& field) {
  static const JsonValue kNull;
  return field.present() ? *field.value() : kNull;
}
std::vector<JsonRef> elements_of(const JsonRef& field) {
  Result<std::vector<JsonRef>> elements = field.array();
  return elements.ok() ? std::move(*elements) : std::vector<JsonRef>();
}

PromptVersion version_of(const JsonRef& record) {
  const std::string version = text_of(record["version"]) + text_of(record["model"]);
  return version == "v4" ? PromptVersion::kV4 : PromptVersion::kV41;
}

Result<ReplayedRequest> convert_request(std::string_view protocol, const std::string& body,
                                        std::string_view served_model) {
  if (protocol == "chat_completions") {
    ASSIGN_OR_RETURN(ChatRequest request, parse_chat_request(body, served_model));
    return ReplayedRequest{request, [request](AnswerIdentity identity, bool stream) mutable {
                             request.stream = stream;
                             return make_chat_writer(std::move(identity), request);
                           }};
  }
  if (protocol == "messages") {
    ASSIGN_OR_RETURN(MessagesRequest request, parse_messages_request(body, served_model));
    return ReplayedRequest{request, [request](AnswerIdentity identity, bool stream) mutable {
                             request.stream = stream;
                             return make_messages_writer(std::move(identity), request);
                           }};
  }
  if (protocol == "responses") return convert_responses(body, served_model);
  return Error(Code::kInvalidArgument,
               "protocol: found '{}', expected chat_completions, messages or responses", protocol);
}

JsonValue ranges_json(const RenderedPrompt& prompt) {
  JsonValue::Array ranges;
  for (const TextRange& range : prompt.control_ranges) {
    ranges.push_back(JsonValue(JsonValue::Array{range.begin, range.end}));
  }
  return JsonValue(std::move(ranges));
}

JsonValue ids_json(const std::vector<TokenId>& ids) {
  return JsonValue(JsonValue::Array(ids.begin(), ids.end()));
}

void compare_prompt(const RenderedPrompt& prompt, const JsonRef& expected, const Tokenizer* tokenizer,
                    Comparison& compare) {
  const JsonRef text = expected["prompt"].present() ? expected["prompt"] : expected["expected_prompt"];
  compare.equal("prompt", prompt.text, text_of(text));
  if (expected["special_ranges"].present()) {
    compare.same("special_ranges", ranges_json(prompt), value_of(expected["special_ranges"]));
  }
  if (tokenizer == nullptr) return;
  const Result<std::vector<TokenId>> ids = encode(prompt, *tokenizer);
  if (!ids.ok()) return compare.differs("token_ids", ids.error().message(), "ids");
  if (expected["token_count"].present()) {
    compare.same("token_count", JsonValue(ids->size()), value_of(expected["token_count"]));
  }
  if (expected["token_ids"].present() && !expected["token_ids"].is_null()) {
    compare.same("token_ids", ids_json(*ids), value_of(expected["token_ids"]));
  }
}

JsonValue output_json(const ReplayedOutput& output) {
  return JsonValue(JsonValue::Object{
      {"reasoning", output.reasoning}, {"content", output.content}, {"calls", JsonValue(output.calls)}});
}

ReplayedOutput output_of_answer(const JsonRef& complete) {
  ReplayedOutput output;
  const auto add_call = [&output](const std::string& name, const std::string& arguments) {
    output.calls.push_back(JsonValue(JsonValue::Object{{"name", name}, {"arguments", arguments}}));
  };
  const JsonRef message = complete["choices"][0]["message"];
  output.content = text_of(message["content"]);
  output.reasoning = text_of(message["reasoning_content"]);
  for (const JsonRef& call : elements_of(message["tool_calls"])) {
    add_call(text_of(call["function"]["name"]), text_of(call["function"]["arguments"]));
  }
  return output;
}

}  // namespace deepinfer
