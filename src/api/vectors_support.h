// For tests: records of the official package (tests/data/recipe) and how answers are compared with them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "api/generation.h"
#include "json/json.h"
#include "recipe/output_test_support.h"

namespace deepinfer {

inline constexpr std::string_view kVectorModel = "DeepSeek-V4.1-Flash";

inline std::vector<JsonValue> read_records(const std::string& name) {
  std::ifstream file(DEEPINFER_SOURCE_DIR "/tests/data/recipe/" + name);
  std::vector<JsonValue> records;
  for (std::string line; std::getline(file, line);) records.push_back(*parse_json(line));
  EXPECT_FALSE(records.empty()) << name;
  return records;
}

inline std::vector<JsonRef> elements(const JsonRef& array) {
  return array.array().value();
}

inline std::string request_text(const JsonRef& input) {
  if (input["request_text"].present()) return *input["request_text"].string();
  return to_json(*input["request"].value());
}

// Records made with options of the package that this server does not have.
inline bool has_server_option(const JsonRef& input) {
  return input["options"].present() && !input["options"].is_null();
}

inline std::vector<TextRange> expected_ranges(const JsonRef& expected) {
  std::vector<TextRange> ranges;
  for (const JsonRef& range : elements(expected["special_ranges"])) {
    ranges.push_back({*range[0].uint64(), *range[1].uint64()});
  }
  return ranges;
}

// call_NN_ and 24 random characters: the recorded ids end in a star.
inline void normalise_call_ids(JsonValue& value) {
  if (JsonValue::Array* array = value.array()) {
    for (JsonValue& element : *array) normalise_call_ids(element);
  }
  if (JsonValue::Object* object = value.object()) {
    for (JsonMember& member : *object) {
      const std::string* text = member.value.string();
      const bool names_call = member.key == "id" || member.key == "call_id";
      if (names_call && text != nullptr && text->starts_with("call_") && text->size() == 32) {
        member.value = JsonValue(text->substr(0, 8) + "*");
      }
      normalise_call_ids(member.value);
    }
  }
}

inline AnswerEnding answer_ending(const OutputParser& parser, const std::string& finish) {
  if (const auto stop = parser.matched_stop_sequence()) return {AnswerEnd::kStopSequence, *stop};
  if (finish == "length") return {AnswerEnd::kLength};
  if (finish == "content_filter") return {AnswerEnd::kContentFilter};
  return {parser.num_tool_calls() > 0 ? AnswerEnd::kToolCalls : AnswerEnd::kStop};
}

inline AnswerIdentity recorded_identity(const JsonRef& input) {
  const Result<std::string> fingerprint = input["ready"]["system_fingerprint"].string();
  return {.id = *input["response_id"].string(),
          .created = 1700000000,
          .model = *input["response_model"].string(),
          .system_fingerprint = fingerprint.ok() ? *fingerprint : "",
          .call_id_key = 7};
}

// The differences in parsing are the same in every protocol: "stream-call-no-attr-msgs-by3" is the record
// "stream-call-no-attr-chat-..." of Chat Completions.
inline bool is_known_difference(std::string id) {
  for (const std::string_view protocol : {"-chat-", "-msgs-", "-resp-"}) {
    const size_t at = id.find(protocol);
    if (at == std::string::npos) continue;
    const std::string stem = id.substr(0, at) + "-chat-";
    for (const auto& [known, reason] : kKnownOutputDifferences) {
      if (known.starts_with(stem)) return true;
    }
  }
  return false;
}

// What `writer` says when the recorded pieces come.
inline std::string replay(const JsonRef& input, const GenerationRequest& request, AnswerWriter& writer) {
  OutputOptions options;
  options.start = render(request.conversation).output_stage;
  options.parse_tool_calls = request.conversation.tools_active();
  options.stop_sequences = request.stop_sequences;
  OutputParser parser(options);
  std::string out;
  const std::vector<ScoredToken> no_tokens;
  const OutputSink sink = [&](const OutputEvent& event) { writer.add(0, event, no_tokens, out); };
  Usage usage = {.prompt_tokens = 40, .cached_tokens = 16, .completion_tokens = 0, .reasoning_tokens = {}};
  writer.start(usage, out);
  for (const JsonRef& piece : elements(input["pieces"])) {
    if (parser.matched_stop_sequence()) break;  // the package reads on after a block
    parser.push(*piece.string(), sink);
    ++usage.completion_tokens;
  }
  const std::string finish = *input["finish"].string();
  parser.finish(finish == "length" ? OutputEnd::kLength : OutputEnd::kStop, sink);
  writer.end(0, answer_ending(parser, finish), &usage, out);
  return out;
}

// Records of what a server does not do: JSON mode, engines that do not say how long the prompt was or why
// they ended.
inline bool is_outside(const JsonRef& input) {
  return *input["parsing"]["parse_json_output"].boolean() || input["finish"].is_null() ||
         input["ready"].is_null() || input["ready"]["prompt_usage"].is_null();
}

// A continued answer starts with another chunk.
inline bool is_continuation(const JsonRef& input) {
  const Result<std::string> stage = input["parsing"]["thinking_initial_stage"].string();
  return stage.ok() && stage->ends_with("_continuation");
}

// The JSON of each frame; "[DONE]" is left out. A frame with a name has it as "type" too.
inline std::vector<JsonValue> parsed_frames(std::string_view stream) {
  std::vector<JsonValue> frames;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    std::string_view frame = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    std::string_view name;
    if (frame.starts_with("event: ")) {
      name = frame.substr(7, frame.find('\n') - 7);
      frame.remove_prefix(frame.find('\n') + 1);
    }
    EXPECT_TRUE(frame.starts_with("data: ")) << frame;
    frame.remove_prefix(6);
    if (frame == "[DONE]") continue;
    frames.push_back(*parse_json(frame));
    EXPECT_TRUE(name.empty() || *JsonRef(frames.back())["type"].string() == name) << name;
  }
  return frames;
}

inline std::vector<JsonValue> recorded_frames(const JsonRef& expected) {
  std::vector<JsonValue> frames;
  for (const JsonRef& push : elements(expected["events"])) {
    for (const JsonRef& event : elements(push)) frames.push_back(*event["data"].value());
  }
  return frames;
}

// A frame without its text, and the text: frames of the same shape join, because the grain of deltas is free.
struct JoinedFrame {
  JsonValue shape;
  std::string text;
};

// `text_of` finds the string of a delta in a frame; nullptr where there is none. `renumber` runs on each
// joined shape.
template <typename TextOf>
std::vector<JoinedFrame> joined_frames(std::vector<JsonValue> frames, TextOf text_of) {
  std::vector<JoinedFrame> out;
  for (JsonValue& value : frames) {
    normalise_call_ids(value);
    JoinedFrame frame;
    JsonValue* text = text_of(value);
    if (text != nullptr) {
      frame.text = *text->string();
      *text = JsonValue("");
    }
    if (JsonValue::Object* members = value.object()) {  // joining frames leaves gaps, and its place is free
      std::erase_if(*members, [](const JsonMember& member) { return member.key == "sequence_number"; });
    }
    frame.shape = std::move(value);
    const bool joins = text != nullptr && !out.empty() && out.back().shape == frame.shape;
    joins ? void(out.back().text += frame.text) : out.push_back(std::move(frame));
  }
  return out;
}

inline void expect_same_frames(const std::vector<JoinedFrame>& ours, const std::vector<JoinedFrame>& theirs,
                               const std::string& id) {
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    EXPECT_EQ(to_json(ours[i].shape), to_json(theirs[i].shape)) << id << " frame " << i;
    EXPECT_EQ(ours[i].text, theirs[i].text) << id << " frame " << i;
  }
  EXPECT_EQ(ours.size(), theirs.size()) << id;
}

}  // namespace deepinfer
