// Replays what the official package recorded for Chat Completions on V4.1 (tests/data/recipe): requests to
// prompts, requests to errors, token limits, and output pieces to the answer and its stream.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

constexpr std::string_view kModel = "DeepSeek-V4.1-Flash";

std::vector<JsonValue> read_records(const std::string& name) {
  std::ifstream file(DEEPINFER_SOURCE_DIR "/tests/data/recipe/" + name);
  std::vector<JsonValue> records;
  for (std::string line; std::getline(file, line);) records.push_back(*parse_json(line));
  return records;
}

std::vector<JsonRef> elements(const JsonRef& array) {
  return array.array().value();
}

std::string request_text(const JsonRef& input) {
  if (input["request_text"].present()) return *input["request_text"].string();
  return to_json(*input["request"].value());
}

// ---- Prompts ----

constexpr std::string_view kImages = "images come with the vision issue";
constexpr std::string_view kFormat = "response formats come with structured output";
constexpr std::string_view kStrict = "strict tools come with structured output";

// Records that this server answers with 400 today, because the parameter is not done yet.
const std::map<std::string_view, std::string_view> kRefusedToday = {
    {"rf-json-v4.1", kFormat},
    {"rf-json-word-in-tool", kFormat},
    {"rf-json-word-in-assistant", kFormat},
    {"err-chat-field-22-response_format", kFormat},
    {"err-chat-field-25-response_format", kFormat},
    {"img-one-v4.1", kImages},
    {"img-only-v4.1", kImages},
    {"img-many-v4.1", kImages},
    {"img-placeholder-typed", kImages},
    {"img-file-part-flat", kImages},
    {"img-system-v4.1", kImages},
    {"img-merge", kImages},
    {"strict-bare", kStrict},
    {"strict-dollar-defs", kStrict},
    {"strict-dollar-def", kStrict},
    {"strict-enum-type", kStrict},
    {"strict-number-bounds", kStrict},
    {"strict-type-list", kStrict},
    {"opt-all-v4.1", "penalties and logprobs"},
    {"chat-unknown-fields-v4.1", "it holds a logit_bias"},
};

// Records made with options of the package that this server does not have.
bool has_server_option(const JsonRef& input) {
  return input["options"].present() && !input["options"].is_null();
}

std::vector<TextRange> expected_ranges(const JsonRef& expected) {
  std::vector<TextRange> ranges;
  for (const JsonRef& range : elements(expected["special_ranges"])) {
    ranges.push_back({*range[0].uint64(), *range[1].uint64()});
  }
  return ranges;
}

TEST(ChatVectors, RequestsBecomeTheOfficialPrompts) {
  size_t equal = 0, refused = 0;
  for (const JsonValue& record : read_records("chat_render.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<ChatRequest> request = parse_chat_request(request_text(ref["input"]), kModel);
    if (kRefusedToday.count(id) > 0) {
      ASSERT_FALSE(request.ok()) << id << " is done now";
      EXPECT_EQ(request.error().code(), Code::kUnimplemented) << id << ": " << request.error().message();
      ++refused;
      continue;
    }
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();
    const RenderedPrompt prompt = render(request->conversation);
    EXPECT_EQ(prompt.text, *ref["expected"]["prompt"].string()) << id;
    EXPECT_TRUE(prompt.control_ranges == expected_ranges(ref["expected"])) << id;
    EXPECT_EQ(prompt.output_stage == OutputStage::kToolCalls,
              *ref["expected"]["parsing"]["starts_in_tool_calls"].boolean())
        << id;
    ++equal;
  }
  EXPECT_EQ(refused, kRefusedToday.size());
  EXPECT_EQ(equal, 97u);
}

// ---- Errors ----

// Requests that the official package refuses and we do not, with the reason.
const std::map<std::string_view, std::string_view> kAcceptedHere = {
    {"err-tool-schema-bad-chat", "a schema is not compiled before it is enforced"},
    {"err-tool-schema-remote-ref-chat", "a schema is not compiled before it is enforced"},
    {"err-chat-msg-call-no-args", "clients leave arguments out"},
    {"err-chat-msg-call-args-null", "clients send null arguments"},
    {"err-chat-msg-call-args-object", "clients send arguments as an object"},
    {"err-chat-msg-developer", "a developer message is a system message"},
};

TEST(ChatVectors, WrongRequestsGetTheOfficialErrors) {
  size_t compared = 0, accepted = 0;
  for (const JsonValue& record : read_records("chat_error.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<ChatRequest> request = parse_chat_request(request_text(ref["input"]), kModel);
    if (kAcceptedHere.count(id) > 0) {
      EXPECT_TRUE(request.ok()) << id;
      ++accepted;
      continue;
    }
    ASSERT_FALSE(request.ok()) << id;
    const Error& error = request.error();
    if (error.code() == Code::kUnimplemented) continue;         // refused before the fault was looked for
    const bool unknown_model = id == "err-unknown-model-chat";  // 404 with us
    EXPECT_EQ(error.code(), unknown_model ? Code::kNotFound : Code::kInvalidArgument) << id;
    const JsonRef expected = ref["expected"]["error"];
    // The wording of their JSON parser is their own.
    if (unknown_model || *expected["type"].string() != "ConversionError") continue;
    EXPECT_EQ(error.message(), *expected["message"].string()) << id;
    ++compared;
  }
  EXPECT_EQ(accepted, kAcceptedHere.size());
  EXPECT_EQ(compared, 38u);
}

TEST(ChatVectors, TokenLimitsAreResolvedAsOfficially) {
  for (const JsonValue& record : read_records("chat_max_tokens.jsonl")) {
    const JsonRef ref(record);
    const JsonRef input = ref["input"];
    const Result<ChatRequest> request = parse_chat_request(request_text(input), kModel);
    ASSERT_TRUE(request.ok());
    const Result<int64_t> tokens =
        resolve_max_tokens(*request, *input["prompt_tokens"].int64(), *input["context_limit"].int64());
    if (ref["expected"]["error"].present()) {
      ASSERT_FALSE(tokens.ok()) << *ref["id"].string();
      EXPECT_EQ(tokens.error().message(), *ref["expected"]["error"]["message"].string());
    } else {
      ASSERT_TRUE(tokens.ok()) << *ref["id"].string();
      EXPECT_EQ(*tokens, *ref["expected"]["max_tokens"].int64()) << *ref["id"].string();
    }
  }
}

// ---- Answers ----

// call_NN_ and 24 random characters: the recorded ids end in a star.
void normalise_call_ids(JsonValue& value) {
  if (JsonValue::Array* array = value.array()) {
    for (JsonValue& element : *array) normalise_call_ids(element);
  }
  if (JsonValue::Object* object = value.object()) {
    for (JsonMember& member : *object) {
      const std::string* text = member.value.string();
      if (member.key == "id" && text != nullptr && text->starts_with("call_") && text->size() == 32) {
        member.value = JsonValue(text->substr(0, 8) + "*");
      }
      normalise_call_ids(member.value);
    }
  }
}

// A chunk without its text, and the text: chunks of the same shape join, because the grain of deltas is free.
struct Chunk {
  JsonValue shape;
  std::string text;
};

JsonValue* text_of(JsonValue& chunk) {
  JsonValue* delta = chunk.find("choices")->array()->at(0).find("delta");
  if (JsonValue* calls = delta->find("tool_calls")) {
    JsonValue& call = calls->array()->at(0);
    return call.find("id") == nullptr ? call.find("function")->find("arguments") : nullptr;
  }
  for (const char* name : {"content", "reasoning_content"}) {
    JsonValue* text = delta->find(name);
    if (text != nullptr && !text->is_null() && !text->string()->empty()) return text;
  }
  return nullptr;
}

std::vector<Chunk> joined(std::vector<JsonValue> chunks) {
  std::vector<Chunk> out;
  for (JsonValue& value : chunks) {
    normalise_call_ids(value);
    Chunk chunk;
    JsonValue* text = text_of(value);
    if (text != nullptr) {
      chunk.text = *text->string();
      *text = JsonValue("");
    }
    chunk.shape = std::move(value);
    const bool joins = text != nullptr && !out.empty() && out.back().shape == chunk.shape;
    joins ? void(out.back().text += chunk.text) : out.push_back(std::move(chunk));
  }
  return out;
}

std::vector<JsonValue> recorded_chunks(const JsonRef& expected) {
  std::vector<JsonValue> chunks;
  for (const JsonRef& push : elements(expected["events"])) {
    for (const JsonRef& event : elements(push)) chunks.push_back(*event["data"].value());
  }
  return chunks;
}

std::vector<JsonValue> parsed_frames(std::string_view stream) {
  std::vector<JsonValue> chunks;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    const std::string_view frame = stream.substr(0, end);
    EXPECT_TRUE(frame.starts_with("data: "));
    if (frame != "data: [DONE]") chunks.push_back(*parse_json(frame.substr(6)));
    stream.remove_prefix(end + 2);
  }
  return chunks;
}

AnswerEnd answer_end(const OutputParser& parser, const std::string& finish) {
  if (parser.matched_stop_sequence()) return AnswerEnd::kStop;
  if (finish == "length") return AnswerEnd::kLength;
  return parser.num_tool_calls() > 0 ? AnswerEnd::kToolCalls : AnswerEnd::kStop;
}

struct Answer {
  std::string stream;
  std::string complete;
};

Answer replay(const JsonRef& input, const ChatRequest& request) {
  const bool thinking = request.conversation.thinking;
  const AnswerIdentity identity = {.id = *input["response_id"].string(),
                                   .created = 1700000000,
                                   .model = *input["response_model"].string(),
                                   .system_fingerprint = *input["ready"]["system_fingerprint"].string(),
                                   .call_id_key = 7};
  ChatStreamWriter stream(identity, thinking, request.include_usage);
  ChatCompletion completion(identity, thinking);
  OutputOptions options;
  options.start = render(request.conversation).output_stage;
  options.parse_tool_calls = request.conversation.tools_active();
  options.stop_sequences = request.stop_sequences;
  OutputParser parser(options);
  Answer answer;
  const OutputSink sink = [&](const OutputEvent& event) {
    stream.add(event, answer.stream);
    completion.add(event);
  };
  Usage usage = {.prompt_tokens = 40, .cached_tokens = 16, .completion_tokens = 0, .reasoning_tokens = {}};
  stream.start(answer.stream);
  for (const JsonRef& piece : elements(input["pieces"])) {
    if (parser.done()) break;
    parser.push(*piece.string(), sink);
    ++usage.completion_tokens;
  }
  const std::string finish = *input["finish"].string();
  parser.finish(finish == "length" ? OutputEnd::kLength : OutputEnd::kStop, sink);
  const AnswerEnd end = answer_end(parser, finish);
  stream.finish(end, usage, answer.stream);
  answer.complete = completion.finish(end, usage);
  return answer;
}

// Records of what this endpoint does not do: JSON mode, content filters, engines that do not say how long the
// prompt was or why they ended, and continued answers, whose first chunk differs.
bool is_outside(const JsonRef& input) {
  const JsonRef parsing = input["parsing"];
  const Result<std::string> stage = parsing["thinking_initial_stage"].string();
  return *parsing["parse_json_output"].boolean() || input["finish"].is_null() ||
         *input["finish"].string() == "content_filter" || input["ready"].is_null() ||
         input["ready"]["prompt_usage"].is_null() || (stage.ok() && stage->ends_with("_continuation"));
}

TEST(ChatVectors, OutputBecomesTheOfficialStreamAndAnswer) {
  size_t compared = 0;
  for (const JsonValue& record : read_records("chat_stream.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (is_outside(ref["input"]) || kKnownOutputDifferences.count(id) > 0) continue;
    const Result<ChatRequest> request = parse_chat_request(request_text(ref["input"]), kModel);
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();
    const Answer answer = replay(ref["input"], *request);

    JsonValue complete = *parse_json(answer.complete);
    normalise_call_ids(complete);
    EXPECT_EQ(to_json(complete), to_json(*ref["expected"]["complete"].value())) << id;

    const std::vector<Chunk> ours = joined(parsed_frames(answer.stream));
    const std::vector<Chunk> theirs = joined(recorded_chunks(ref["expected"]));
    ASSERT_EQ(ours.size(), theirs.size()) << id;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(to_json(ours[i].shape), to_json(theirs[i].shape)) << id << " chunk " << i;
      EXPECT_EQ(ours[i].text, theirs[i].text) << id << " chunk " << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 42u);
}

}  // namespace
}  // namespace deepinfer
