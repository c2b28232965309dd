// The kinds of docs/spec/recipe.md 14.
#include <optional>

#include "recipe_check/replay.h"

namespace deepinfer {
namespace {

// ---- literal ----

// Every text that the renderer may print of its own.
std::string everything_printed(PromptVersion version) {
  std::string out;
  for (const ReasoningEffort effort : {ReasoningEffort::kHigh, ReasoningEffort::kMax}) {
    for (const auto kind : {ResponseFormat::Kind::kJsonObject, ResponseFormat::Kind::kJsonSchema}) {
      Conversation conversation;
      conversation.reasoning_effort = effort;
      conversation.response_format.kind = kind;
      conversation.messages.emplace_back().role = Role::kSystemReminder;
      conversation.messages.back().content = "x";
      conversation.tools = {{"{TOOL}", "", JsonValue(JsonValue::Object{})}};
      PromptFormat format;
      format.version = version;
      out += render(conversation, format).text;
    }
  }
  return out;
}

void check_literal(const JsonRef& record, Comparison& compare) {
  const std::string name = text_of(record["name"]), text = text_of(record["text"]);
  if (name == "unsupported_document") return compare.skip("text of the protocols, whose tests cover it");
  if (name == "json_word_error_chat") return compare.skip("the word \"json\" is not asked for here");
  const std::string printed =
      everything_printed(PromptVersion::kV4) + everything_printed(PromptVersion::kV41);
  // The parts around our substitution marks.
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t mark =
        rest.find("{N}") < rest.find("{TOOL_SCHEMAS}") ? rest.find("{N}") : rest.find("{TOOL_SCHEMAS}");
    const std::string_view part = rest.substr(0, mark);
    if (printed.find(part) == std::string::npos) compare.differs(name, "no such text in any prompt", part);
    if (mark == std::string_view::npos) return;
    rest.remove_prefix(rest.find('}', mark) + 1);
  }
}

// ---- encode ----

std::optional<Role> role_of(std::string_view name) {
  if (name == "system") return Role::kSystem;
  if (name == "developer") return Role::kDeveloper;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool") return Role::kTool;
  if (name == "latest_reminder") return Role::kLatestReminder;
  return std::nullopt;
}

std::optional<Task> task_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"action", "query", "authority", "domain", "title", "read_url"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Task>(i);
  }
  return std::nullopt;
}

// A message of the reference encoder.
Message reference_message(const JsonRef& field) {
  Message message;
  message.role = role_of(text_of(field["role"])).value_or(Role::kUser);
  message.content = text_of(field["content"]);
  bool is_first = true;
  for (const JsonRef& part : elements_of(field["content"])) {
    const std::string type = text_of(part["type"]);
    if (type == "text") {
      append_text_part(message, text_of(part["text"]), is_first);
    } else if (type == "image" || type == "image_url") {
      append_image_part(message, {.source = text_of(part["image_url"]["url"])}, is_first);
    } else {
      append_text_part(message, fmt::format("[Unsupported {}]", type), is_first);
    }
    is_first = false;
  }
  if (field["reasoning_content"].present()) message.reasoning = text_of(field["reasoning_content"]);
  for (const JsonRef& call : elements_of(field["tool_calls"])) {
    message.tool_calls.push_back(
        {text_of(call["id"]), text_of(call["function"]["name"]), text_of(call["function"]["arguments"])});
  }
  message.tool_call_id = text_of(field["tool_call_id"]);
  message.is_prefix = flag_of(field["wo_eos"]);
  message.task = task_of(text_of(field["task"]));
  if (field["response_format"].present()) message.response_format = value_of(field["response_format"]);
  for (const JsonRef& tool : elements_of(field["tools"])) {
    ToolDefinition& definition = message.tools.emplace_back();
    definition.name = text_of(tool["function"]["name"]);
    definition.original = value_of(tool["function"]);
  }
  return message;
}

void check_reference(const JsonRef& record, const Tokenizer* tokenizer, Comparison& compare) {
  PromptFormat format;
  format.version = version_of(record);
  format.profile = PromptProfile::kReference;
  const JsonRef options = record["options"];
  if (options["drop"].present()) format.drop_thinking = flag_of(options["drop"]);
  Conversation conversation;
  conversation.thinking = flag_of(options["thinking"]);
  conversation.reasoning_effort = default_effort(format);
  if (const auto effort = options["effort"].int64(); effort.ok()) {
    conversation.effort_number = static_cast<int>(*effort);
  }
  for (const JsonRef& message : elements_of(record["messages"])) {
    conversation.messages.push_back(reference_message(message));
  }
  compare_prompt(render(conversation, format), record, tokenizer, compare);
}

void check_own_encode(const JsonRef& record, const CheckTokenizers& tokenizers, Comparison& compare) {
  PromptFormat format;
  format.version = version_of(record);
  const Tokenizer* tokenizer = format.version == PromptVersion::kV4 ? tokenizers.v4 : tokenizers.v41;
  const std::string form = text_of(record["input_form"]);
  if (form == "reference_messages") return check_reference(record, tokenizer, compare);
  const Result<ReplayedRequest> request =
      convert_request(form, to_json(value_of(record["request"])), text_of(record["request"]["model"]));
  if (!request.ok()) {
    if (request.error().code() == Code::kUnimplemented) return compare.skip(request.error().message());
    return compare.differs("request", request.error().message(), "a request that is accepted");
  }
  compare_prompt(render(request->request.conversation, format), record, tokenizer, compare);
}

void check_convert_error(const JsonRef& record, Comparison& compare) {
  const Result<ReplayedRequest> request =
      convert_request(text_of(record["input_form"]), to_json(value_of(record["request"])),
                      text_of(record["request"]["model"]));
  const std::string expected = text_of(record["recipe_detail"]);
  if (int_of(record["status"]) == 200) {
    if (request.ok()) return;
    if (request.error().code() == Code::kUnimplemented) return compare.skip(request.error().message());
    return compare.differs("request", request.error().message(), "a request that is accepted");
  }
  if (request.ok()) return compare.differs("request", "a request that is accepted", expected);
  if (request.error().code() == Code::kUnimplemented) return compare.skip(request.error().message());
  if (!says_the_same(request.error().message(), expected)) {
    compare.differs("message", request.error().message(), expected);
  }
}

// ---- parse ----

OutputOptions parse_options(const JsonRef& options) {
  OutputOptions out;
  const JsonRef parse = options["parse_tool_calls"];
  out.parse_tool_calls = !parse.present() || flag_of(parse);
  out.json_output = flag_of(options["json"]);
  for (const JsonRef& stop : elements_of(options["stop"])) out.stop_sequences.push_back(text_of(stop));
  for (const JsonRef& name : elements_of(options["tools_declared"])) out.tools.push_back({text_of(name), {}});
  const std::string reasoning = text_of(options["reasoning"]);
  if (flag_of(options["forced"])) {
    out.start = OutputStage::kToolCalls;
  } else if (reasoning == "start") {
    out.start = OutputStage::kReasoning;
  } else if (reasoning == "continuation") {
    out.start = OutputStage::kReasoningContinuation;
  }
  return out;
}

ReplayedOutput parse(const OutputOptions& options, const std::vector<std::string>& pieces, OutputEnd end) {
  ReplayedOutput out;
  std::vector<std::pair<std::string, std::string>> calls;
  const OutputSink sink = [&](const OutputEvent& event) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning:
        out.reasoning += event.text;
        return;
      case OutputEvent::Kind::kContent:
        out.content += event.text;
        return;
      case OutputEvent::Kind::kToolCall:
        calls.push_back({std::string(event.text), ""});
        return;
      case OutputEvent::Kind::kToolArguments:
        calls.back().second += event.text;
        return;
    }
  };
  OutputParser parser(options);
  for (const std::string& piece : pieces) parser.push(piece, sink);
  parser.finish(end, sink);
  for (const auto& [name, arguments] : calls) {
    out.calls.push_back(JsonValue(JsonValue::Object{{"name", name}, {"arguments", arguments}}));
  }
  return out;
}

ReplayedOutput expected_output(const JsonRef& record) {
  ReplayedOutput out;
  for (const JsonRef& source : {record["recipe_expected"], record["required"]}) {
    if (source["reasoning_content"].present()) out.reasoning = text_of(source["reasoning_content"]);
    if (source["content"].present()) out.content = text_of(source["content"]);
    if (source["tool_calls"].present() && source["tool_calls"].value()->array() != nullptr) {
      out.calls = *source["tool_calls"].value()->array();
    }
  }
  return out;
}

void check_parse(const JsonRef& record, Comparison& compare) {
  const OutputOptions options = parse_options(record["options"]);
  const std::string text = text_of(record["text"]);
  const OutputEnd end = text_of(record["backend_finish"]) == "stop" ? OutputEnd::kStop : OutputEnd::kLength;
  const ReplayedOutput whole = parse(options, {text}, end);
  const JsonRef required = record["required"]["tool_calls"];
  if (required.present() && required.value()->string() != nullptr) {
    // Told in words: the arguments are closed to valid JSON.
    for (const JsonValue& call : whole.calls) {
      const std::string& arguments = *call.find("arguments")->string();
      if (!parse_json(arguments).ok()) compare.differs("arguments", arguments, "valid JSON");
    }
  } else {
    compare.same("output", output_json(whole), output_json(expected_output(record)));
  }
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  compare.same("byte by byte", output_json(parse(options, bytes, end)), output_json(whole));
  for (size_t cut = 1; cut < text.size(); ++cut) {
    compare.same(fmt::format("cut at byte {}", cut),
                 output_json(parse(options, {text.substr(0, cut), text.substr(cut)}, end)),
                 output_json(whole));
  }
}

void check_numbers(const JsonRef& record, Comparison& compare) {
  const std::vector<JsonRef> inputs = elements_of(record["input"]),
                             printed = elements_of(record["python_style"]);
  for (size_t i = 0; i < inputs.size() && i < printed.size(); ++i) {
    const Result<JsonValue> number = parse_json(text_of(inputs[i]));
    compare.equal(text_of(inputs[i]),
                  number.ok() ? to_json(*number, JsonStyle::kPython) : number.error().message(),
                  text_of(printed[i]));
  }
}

}  // namespace

bool check_own(std::string_view kind, const JsonRef& record, const CheckTokenizers& tokenizers,
               Comparison& compare) {
  if (kind == "meta") {
    compare.skip("describes the file");
  } else if (kind == "literal") {
    check_literal(record, compare);
  } else if (kind == "encode") {
    check_own_encode(record, tokenizers, compare);
  } else if (kind == "convert_error") {
    check_convert_error(record, compare);
  } else if (kind == "parse") {
    check_parse(record, compare);
  } else if (kind == "sse") {
    compare.skip("the streams of the official package cover these frames, with their requests");
  } else if (kind == "tokenize") {
    if (tokenizers.v41 == nullptr) return compare.skip("needs a tokenizer (--tokenizer)"), true;
    const auto added =
        record["mode"].present() ? Tokenizer::AddedTokens::kAsText : Tokenizer::AddedTokens::kRecognise;
    compare.same("ids", ids_json(tokenizers.v41->encode(text_of(record["text"]), added)),
                 value_of(record["ids"]));
  } else if (kind == "numbers") {
    check_numbers(record, compare);
  } else {
    return false;
  }
  return true;
}

}  // namespace deepinfer
