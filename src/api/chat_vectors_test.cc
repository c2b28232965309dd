// Replays what the official package recorded for Chat Completions on V4.1 (tests/data/recipe): requests to
// prompts, requests to errors, token limits, and output pieces to the answer and its stream.
#include <gtest/gtest.h>

#include <map>

#include "api/chat_request.h"
#include "api/chat_response.h"
#include "api/vectors_support.h"

namespace deepinfer {
namespace {

constexpr std::string_view kModel = kVectorModel;

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
};

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
  EXPECT_EQ(equal, 99u);
}

// ---- Errors ----

// Requests that the official package refuses and we do not, with the reason.
const std::map<std::string_view, std::string_view> kAcceptedHere = {
    {"err-tool-schema-bad-chat", "a schema is not compiled before it is enforced"},
    {"err-tool-schema-remote-ref-chat", "a schema is not compiled before it is enforced"},
    {"err-choice-required-thinking-chat", "thinking that nobody asked for gives way to a forced call"},
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
    if (id == "err-chat-field-01-n") continue;                  // our range is another
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
  EXPECT_EQ(compared, 37u);
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

TEST(ChatVectors, OutputBecomesTheOfficialStreamAndAnswer) {
  size_t compared = 0;
  for (const JsonValue& record : read_records("chat_stream.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    const JsonRef input = ref["input"];
    if (is_outside(input) || is_continuation(input) || is_known_difference(id)) continue;
    Result<ChatRequest> request = parse_chat_request(request_text(input), kModel);
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();

    request->stream = true;
    const std::string stream = replay(input, *request, *make_chat_writer(recorded_identity(input), *request));
    expect_same_frames(joined_frames(parsed_frames(stream), text_of),
                       joined_frames(recorded_frames(ref["expected"]), text_of), id);

    request->stream = false;
    JsonValue complete =
        *parse_json(replay(input, *request, *make_chat_writer(recorded_identity(input), *request)));
    normalise_call_ids(complete);
    EXPECT_EQ(to_json(complete), to_json(*ref["expected"]["complete"].value())) << id;
    ++compared;
  }
  EXPECT_EQ(compared, 41u);
}

}  // namespace
}  // namespace deepinfer
