// Replays the recorded streams of the official package (tests/data/recipe/chat_stream.jsonl) through
// OutputParser: as they were cut, whole, cut at every place and character by character.
#include <gtest/gtest.h>

#include <fstream>

#include "recipe/output_test_support.h"
#include "source_path.h"

namespace deepinfer {
namespace {

struct Record {
  std::string id;
  OutputOptions options;
  std::vector<std::string> pieces;
  OutputEnd end = OutputEnd::kStop;
  ParsedOutput expected;
};

std::vector<JsonRef> elements(const JsonRef& array) {
  return array.array().value();
}

OutputStage stage_of(const JsonRef& parsing) {
  if (*parsing["starts_in_tool_calls"].boolean()) return OutputStage::kToolCalls;
  const Result<std::string> stage = parsing["thinking_initial_stage"].string();
  if (!stage.ok()) return OutputStage::kContent;
  if (*stage == "reasoning_start") return OutputStage::kReasoning;
  if (*stage == "reasoning_continuation") return OutputStage::kReasoningContinuation;
  return OutputStage::kContentContinuation;
}

Record read_record(const JsonRef& json) {
  Record record;
  record.id = *json["id"].string();
  const JsonRef input = json["input"];
  record.options.start = stage_of(input["parsing"]);
  record.options.parse_tool_calls = *input["parsing"]["parse_tool_calls"].boolean();
  record.options.json_output = *input["parsing"]["parse_json_output"].boolean();
  for (const JsonRef& stop : elements(input["parsing"]["stop_sequences"])) {
    record.options.stop_sequences.push_back(*stop.string());
  }
  for (const JsonRef& piece : elements(input["pieces"])) {
    record.pieces.push_back(piece.string().ok() ? *piece.string() : *piece["text"].string());
  }
  const Result<std::string> finish = input["finish"].string();
  if (finish.ok() && *finish != "stop") record.end = OutputEnd::kLength;

  const JsonRef message = json["expected"]["complete"]["choices"][0]["message"];
  record.expected.content = *message["content"].string();
  if (message["reasoning_content"].present())
    record.expected.reasoning = *message["reasoning_content"].string();
  if (message["tool_calls"].present()) {
    for (const JsonRef& call : elements(message["tool_calls"])) {
      record.expected.calls.push_back(
          {*call["function"]["name"].string(), *call["function"]["arguments"].string()});
    }
  }
  return record;
}

std::vector<Record> read_records() {
  std::ifstream file(source_path("tests/data/recipe/chat_stream.jsonl"));
  std::vector<Record> records;
  for (std::string line; std::getline(file, line);) {
    const Result<JsonValue> json = parse_json(line);
    records.push_back(read_record(JsonRef(*json)));
  }
  return records;
}

TEST(OutputVectors, EveryRecordParsesAsTheOfficialPackageDoes) {
  const std::vector<Record> records = read_records();
  ASSERT_GE(records.size(), 50u);
  size_t differing = 0;
  for (const Record& record : records) {
    const ParsedOutput parsed = parse_output(record.options, record.pieces, record.end);
    if (kKnownOutputDifferences.count(record.id) > 0) {
      EXPECT_NE(parsed, record.expected) << record.id << " is no difference any more";
      ++differing;
    } else {
      EXPECT_EQ(parsed, record.expected) << record.id;
    }
  }
  EXPECT_EQ(differing, kKnownOutputDifferences.size());
}

TEST(OutputVectors, TheResultDoesNotDependOnTheCuts) {
  for (const Record& record : read_records()) {
    std::string text;
    for (const std::string& piece : record.pieces) text += piece;
    const ParsedOutput whole = parse_output(record.options, {text}, record.end);
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_EQ(parse_output(record.options, bytes, record.end), whole) << record.id << " byte by byte";
    for (size_t cut = 1; cut < text.size(); ++cut) {
      EXPECT_EQ(parse_output(record.options, {text.substr(0, cut), text.substr(cut)}, record.end), whole)
          << record.id << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace deepinfer
