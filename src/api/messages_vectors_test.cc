// Replays what the official package recorded for Messages on V4.1 (tests/data/recipe).
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/messages_request.h"
#include "api/messages_response.h"
#include "api/vectors_support.h"

namespace deepinfer {
namespace {

constexpr std::string_view kImages = "images come with the vision issue";

// Records that this server answers with 400 today, because the parameter is not done yet.
const std::map<std::string_view, std::string_view> kRefusedToday = {
    {"img-msgs-v4.1", kImages},
    {"img-msgs-tool-result-v4.1", kImages},
    {"msgs-tools-strict", "strict tools come with structured output"},
};

// Records whose prompt differs on purpose.
const std::map<std::string_view, std::string_view> kOtherPrompt = {
    {"msgs-choice-any", "`any` is enforced"},
    {"msgs-choice-any-thinking", "`any` is enforced; thinking that nobody asked for gives way"},
};

TEST(MessagesVectors, RequestsBecomeTheOfficialPrompts) {
  size_t equal = 0, refused = 0, other = 0;
  for (const JsonValue& record : read_records("messages_render.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<GenerationRequest> request =
        parse_messages_request(request_text(ref["input"]), kVectorModel);
    if (kRefusedToday.count(id) > 0) {
      ASSERT_FALSE(request.ok()) << id << " is done now";
      EXPECT_EQ(request.error().code(), Code::kUnimplemented) << id << ": " << request.error().message();
      ++refused;
      continue;
    }
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();
    const RenderedPrompt prompt = render(request->conversation);
    if (kOtherPrompt.count(id) > 0) {
      EXPECT_NE(prompt.text, *ref["expected"]["prompt"].string()) << id;
      ++other;
      continue;
    }
    EXPECT_EQ(prompt.text, *ref["expected"]["prompt"].string()) << id;
    EXPECT_TRUE(prompt.control_ranges == expected_ranges(ref["expected"])) << id;
    ++equal;
  }
  EXPECT_EQ(refused, kRefusedToday.size());
  EXPECT_EQ(other, kOtherPrompt.size());
  EXPECT_EQ(equal, 36u);
}

// Requests that the official package refuses and we do not, with the reason.
const std::map<std::string_view, std::string_view> kAcceptedHere = {
    {"err-tool-schema-bad-msgs", "a schema is not compiled before it is enforced"},
    {"err-choice-required-thinking-msgs", "thinking that nobody asked for gives way to a forced call"},
    {"err-msgs-text-after-use", "clients send text after calls"},
    {"err-msgs-redacted", "hidden thinking is left out"},
    {"err-msgs-tool-server", "server tools are left out"},
    {"err-msgs-tool-web", "server tools are left out"},
    {"err-msgs-tool-custom-type", "`custom` is the name of the default"},
    {"err-msgs-search-result", "its text is shown to the model"},
    {"msgs-web-reject-block", "blocks of server tools are left out"},
};

TEST(MessagesVectors, WrongRequestsGetTheOfficialErrors) {
  size_t compared = 0, accepted = 0;
  for (const JsonValue& record : read_records("messages_error.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<GenerationRequest> request =
        parse_messages_request(request_text(ref["input"]), kVectorModel);
    if (kAcceptedHere.count(id) > 0) {
      EXPECT_TRUE(request.ok()) << id << ": " << request.error().message();
      ++accepted;
      continue;
    }
    ASSERT_FALSE(request.ok()) << id;
    const Error& error = request.error();
    if (error.code() == Code::kUnimplemented) continue;         // refused before the fault was looked for
    const bool unknown_model = id == "err-unknown-model-msgs";  // 404 with us
    EXPECT_EQ(error.code(), unknown_model ? Code::kNotFound : Code::kInvalidArgument) << id;
    const JsonRef expected = ref["expected"]["error"];
    if (unknown_model || *expected["type"].string() != "ConversionError") continue;
    EXPECT_TRUE(error.message().ends_with(*expected["message"].string())) << id << ": " << error.message();
    ++compared;
  }
  EXPECT_EQ(accepted, kAcceptedHere.size());
  EXPECT_EQ(compared, 23u);
}

TEST(MessagesVectors, AConversationKeptByTheServerIsRefusedInTheWordsThatSdksKnow) {
  const auto request = parse_messages_request(
      R"({"model": "m", "max_tokens": 8, "thread": {"type": "create"}, "messages": [{"role": "user", "content": "hi"}]})",
      "m");
  ASSERT_FALSE(request.ok());
  const ApiError error = to_api_error(request.error());
  EXPECT_EQ(error.http_status, 400);
  EXPECT_NE(to_messages_json(error, "").find(
                R"("details":{"error_code":"thread_unsupported_request","unsupported":["thread"]})"),
            std::string::npos);
  EXPECT_EQ(to_messages_json(http_error(404, "x"), "").find("details"), std::string::npos);
}

JsonValue* text_of(JsonValue& frame) {
  JsonValue* delta = frame.find("delta");
  if (delta == nullptr) return nullptr;
  for (const char* name : {"text", "thinking", "partial_json"}) {
    if (JsonValue* text = delta->find(name)) return text;
  }
  return nullptr;
}

bool given_signature(const JsonRef& input) {
  return input["signature"].present() && !input["signature"].is_null();
}

// Whole answers whose input is closed where it was cut; the package gives {}.
const std::set<std::string_view> kClosedInput = {"stream-call-cut-value-msgs-whole",
                                                 "stream-call-cut-second-msgs-whole"};

TEST(MessagesVectors, OutputBecomesTheOfficialStreamAndAnswer) {
  size_t compared = 0;
  for (const JsonValue& record : read_records("messages_stream.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    const JsonRef input = ref["input"];
    if (is_outside(input) || is_continuation(input) || given_signature(input)) continue;
    if (is_known_difference(id)) continue;
    Result<GenerationRequest> request = parse_messages_request(request_text(input), kVectorModel);
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();

    request->stream = true;
    const std::string stream =
        replay(input, *request, *make_messages_writer(recorded_identity(input), *request));
    expect_same_frames(joined_frames(parsed_frames(stream), text_of),
                       joined_frames(recorded_frames(ref["expected"]), text_of), id);

    request->stream = false;
    JsonValue complete =
        *parse_json(replay(input, *request, *make_messages_writer(recorded_identity(input), *request)));
    normalise_call_ids(complete);
    const bool equal = to_json(complete) == to_json(*ref["expected"]["complete"].value());
    EXPECT_EQ(equal, kClosedInput.count(id) == 0) << id << ": " << to_json(complete);
    ++compared;
  }
  EXPECT_EQ(compared, 60u);
}

}  // namespace
}  // namespace deepinfer
