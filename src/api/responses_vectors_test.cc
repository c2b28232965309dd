// Replays what the official package recorded for Responses on V4.1 (tests/data/recipe).
#include <gtest/gtest.h>

#include <map>

#include "api/request_fields.h"
#include "api/responses_request.h"
#include "api/responses_response.h"
#include "api/vectors_support.h"

namespace deepinfer {
namespace {

Result<ResponsesRequest> parse(const std::string& text) {
  ASSIGN_OR_RETURN(const JsonValue body, parse_request_body(text));
  return parse_responses_request(body, {.served_model = kVectorModel, .store_by_default = false});
}

constexpr std::string_view kImages = "images come with the vision issue";
constexpr std::string_view kFormat = "response formats come with structured output";

// Records that this server answers with 400 today, because the parameter is not done yet.
const std::map<std::string_view, std::string_view> kRefusedToday = {
    {"rf-resp-json-v4.1", kFormat},
    {"img-resp-v4.1", kImages},
    {"resp-output-list-v4.1", kImages},
};

// Records whose prompt differs on purpose.
const std::map<std::string_view, std::string_view> kOtherPrompt = {
    {"resp-calls-sorted-v4.1", "calls keep their order"},
    {"resp-calls-numeric-ids", "calls keep their order"},
    {"resp-custom-apply-patch", "the description of the patch language is our own"},
};

TEST(ResponsesVectors, RequestsBecomeTheOfficialPrompts) {
  size_t equal = 0, refused = 0, other = 0;
  for (const JsonValue& record : read_records("responses_render.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<ResponsesRequest> request = parse(request_text(ref["input"]));
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
  EXPECT_EQ(equal, 40u);
}

// Requests that the official package refuses and we do not, with the reason.
const std::map<std::string_view, std::string_view> kAcceptedHere = {
    {"resp-choice-allowed", "allowed_tools is done"},
    {"err-tool-schema-bad-resp", "a schema is not compiled before it is enforced"},
    {"err-tool-schema-remote-ref-resp", "a schema is not compiled before it is enforced"},
    {"err-choice-required-thinking-resp", "thinking that nobody asked for gives way to a forced call"},
    {"err-resp-custom-other", "every custom tool is taken"},
    {"err-resp-item-bad-role-block", "a refusal is text"},
};

TEST(ResponsesVectors, WrongRequestsGetTheOfficialErrors) {
  size_t compared = 0, accepted = 0;
  for (const JsonValue& record : read_records("responses_error.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    if (has_server_option(ref["input"])) continue;
    const Result<ResponsesRequest> request = parse(request_text(ref["input"]));
    if (kAcceptedHere.count(id) > 0) {
      EXPECT_TRUE(request.ok()) << id << ": " << (request.ok() ? "" : request.error().message());
      ++accepted;
      continue;
    }
    ASSERT_FALSE(request.ok()) << id;
    const Error& error = request.error();
    if (error.code() == Code::kUnimplemented) continue;         // refused before the fault was looked for
    const bool unknown_model = id == "err-unknown-model-resp";  // 404 with us
    EXPECT_EQ(error.code(), unknown_model ? Code::kNotFound : Code::kInvalidArgument) << id;
    const JsonRef expected = ref["expected"]["error"];
    if (unknown_model || *expected["type"].string() != "ConversionError") continue;
    EXPECT_TRUE(error.message().ends_with(*expected["message"].string())) << id << ": " << error.message();
    ++compared;
  }
  EXPECT_EQ(accepted, kAcceptedHere.size());
  EXPECT_EQ(compared, 24u);
}

JsonValue* text_of(JsonValue& frame) {
  JsonValue* delta = frame.find("delta");
  return delta == nullptr || delta->string() == nullptr ? nullptr : delta;
}

ResponsesHooks hooks() {
  return {.now_s = [] { return int64_t{1700000000}; },
          .seal = [](const std::string&, int64_t index) { return fmt::format("r0001-{}", index); }};
}

TEST(ResponsesVectors, OutputBecomesTheOfficialStreamAndAnswer) {
  size_t compared = 0;
  for (const JsonValue& record : read_records("responses_stream.jsonl")) {
    const JsonRef ref(record);
    const std::string id = *ref["id"].string();
    const JsonRef input = ref["input"];
    if (is_outside(input) || is_continuation(input) || is_known_difference(id)) continue;
    Result<ResponsesRequest> request = parse(request_text(input));
    if (!request.ok() && request.error().code() == Code::kUnimplemented) continue;
    ASSERT_TRUE(request.ok()) << id << ": " << request.error().message();

    request->stream = true;
    const std::string stream =
        replay(input, *request, *make_responses_writer(recorded_identity(input), *request, hooks()));
    const std::vector<JsonValue> frames = parsed_frames(stream);
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(JsonRef(frames[i])["sequence_number"].uint64().value(), i) << id;
    }
    expect_same_frames(joined_frames(parsed_frames(stream), text_of),
                       joined_frames(recorded_frames(ref["expected"]), text_of), id);

    request->stream = false;
    JsonValue complete = *parse_json(
        replay(input, *request, *make_responses_writer(recorded_identity(input), *request, hooks())));
    normalise_call_ids(complete);
    EXPECT_EQ(to_json(complete), to_json(*ref["expected"]["complete"].value())) << id;
    ++compared;
  }
  EXPECT_GE(compared, 30u);
}

}  // namespace
}  // namespace deepinfer
