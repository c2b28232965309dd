#include <gtest/gtest.h>

#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

constexpr OutputOptions kWithTools = {.start = OutputStage::kContent, .parse_tool_calls = true, .stop_sequences = {}};

ParsedOutput parse(const OutputOptions& options, const std::string& text, OutputEnd end = OutputEnd::kStop) {
  return parse_output(options, {text}, end);
}

std::string call_block(const std::string& inner) {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + inner + "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

std::string arguments_of(const ParsedOutput& parsed) {
  return parsed.calls.size() == 1 ? parsed.calls[0].arguments : "no single call";
}

TEST(OutputParser, NewlinesAroundTheEndOfReasoningBelongToNeitherPart) {
  const ParsedOutput parsed = parse({.start = OutputStage::kReasoning, .parse_tool_calls = false, .stop_sequences = {}},
                                    "\n\nfirst\n\n</think>\n\nsecond\n");
  EXPECT_EQ(parsed.reasoning, "first");
  EXPECT_EQ(parsed.content, "second\n");
}

TEST(OutputParser, AContinuationKeepsItsLeadingNewlines) {
  const OutputOptions options = {OutputStage::kReasoningContinuation, false, {}};
  EXPECT_EQ(parse(options, "\n\nmore</think>x").reasoning, "\n\nmore");
  EXPECT_EQ(parse({OutputStage::kContentContinuation, false, {}}, "\nmore").content, "\nmore");
}

TEST(OutputParser, TextIsReleasedAsSoonAsItCannotBecomeAMarker) {
  OutputParser parser({OutputStage::kReasoning, true, {}});
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  parser.push("a < b </thi", sink);
  EXPECT_EQ(parsed.reasoning, "a < b ");
  parser.push("s is", sink);
  EXPECT_EQ(parsed.reasoning, "a < b </this is");
  EXPECT_TRUE(parser.in_reasoning());
}

TEST(OutputParser, AStopSequenceEndsTheAnswerInContentOnly) {
  OutputParser parser({OutputStage::kReasoning, false, {"END"}});
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  parser.push("the END of</think>real E", sink);
  EXPECT_FALSE(parser.done());
  parser.push("ND ignored", sink);
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.matched_stop_sequence(), "END");
  parser.finish(OutputEnd::kStop, sink);
  EXPECT_EQ(parsed.reasoning, "the END of");
  EXPECT_EQ(parsed.content, "real ");
}

TEST(OutputParser, OfTwoStopSequencesTheOneThatCompletesFirstWins) {
  EXPECT_EQ(parse({OutputStage::kContent, false, {"BCD", "ABC"}}, "xABABCDy").content, "xAB");
  EXPECT_EQ(parse({OutputStage::kContent, false, {"c", "abc"}}, "zabcz").content, "zab");
}

TEST(OutputParser, WithoutDeclaredToolsMarkupIsContent) {
  const std::string text = call_block("");
  const ParsedOutput parsed = parse({OutputStage::kContent, false, {}}, text);
  EXPECT_EQ(parsed.content, text);
  EXPECT_TRUE(parsed.calls.empty());
}

TEST(OutputParser, AMarkerInProseStaysContent) {
  EXPECT_EQ(parse(kWithTools, "The <｜DSML｜ tag is special.").content, "The <｜DSML｜ tag is special.");
}

TEST(OutputParser, AnOpenerCutByTheEndIsNeverVisible) {
  EXPECT_EQ(parse(kWithTools, "Wait.\n\n<｜DSML｜tool_calls", OutputEnd::kLength).content, "Wait.");
}

TEST(OutputParser, CallsAreFoundInsideUnclosedReasoning) {
  const ParsedOutput parsed =
      parse({OutputStage::kReasoning, true, {}}, "Use it.\n\n" + call_block("").substr(0));
  EXPECT_EQ(parsed.reasoning, "Use it.");
  EXPECT_EQ(arguments_of(parsed), "{}");
}

TEST(OutputParser, StringValuesAreEscapedAndRawValuesKept) {
  const ParsedOutput parsed = parse(
      kWithTools, call_block("<｜DSML｜ parameter name=\"a b\" string=\"true\">x \"y\"\n</｜DSML｜ parameter>\n"
                             "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜ parameter>"));
  EXPECT_EQ(arguments_of(parsed), R"({"a b": "x \"y\"\n", "n": [1, 2]})");
}

TEST(OutputParser, ARawValueThatIsNoJsonBecomesAString) {
  const ParsedOutput parsed =
      parse(kWithTools, call_block("<｜DSML｜ parameter name=\"n\" string=\"false\">two</｜DSML｜ parameter>"));
  EXPECT_EQ(arguments_of(parsed), R"({"n": "two"})");
}

TEST(OutputParser, AMissingStringAttributeMeansJsonIfItParses) {
  EXPECT_EQ(arguments_of(parse(kWithTools, call_block("<｜DSML｜ parameter name=\"a\">7</｜DSML｜ parameter>"))),
            R"({"a": 7})");
  EXPECT_EQ(arguments_of(parse(kWithTools, call_block("<｜DSML｜ parameter name=\"a\">B</｜DSML｜ parameter>"))),
            R"({"a": "B"})");
}

TEST(OutputParser, AJsonObjectAsCallBodyBecomesTheArguments) {
  EXPECT_EQ(arguments_of(parse(kWithTools, call_block("{\"a\": 1}"))), R"({"a": 1})");
}

TEST(OutputParser, ParameterNamesAreEscaped) {
  EXPECT_EQ(arguments_of(parse(
                kWithTools, call_block("<｜DSML｜ parameter name=\"pa\\th\" string=\"true\">v</｜DSML｜ parameter>"))),
            R"({"pa\\th": "v"})");
}

TEST(OutputParser, ACallLeftOpenIsClosedWhenTheModelStopped) {
  const std::string open = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
  const std::string parameter = open + "<｜DSML｜ parameter name=\"a\" string=\"";
  EXPECT_EQ(arguments_of(parse(kWithTools, open)), "{}");
  EXPECT_EQ(arguments_of(parse(kWithTools, open + "<｜DSML｜ parameter name=\"a")), "{}");
  EXPECT_EQ(arguments_of(parse(kWithTools, parameter)), R"({"a": null})");
  EXPECT_EQ(arguments_of(parse(kWithTools, parameter + "true\">Par")), R"({"a": "Par"})");
  EXPECT_EQ(arguments_of(parse(kWithTools, parameter + "false\">[1")), R"({"a": "[1"})");
}

TEST(OutputParser, ACallCutByTheLengthLimitStaysCut) {
  const std::string text =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">Par";
  EXPECT_EQ(arguments_of(parse(kWithTools, text, OutputEnd::kLength)), R"({"a": "Par)");
}

TEST(OutputParser, TextAfterTheBlockIsNotRead) {
  OutputParser parser(kWithTools);
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  parser.push("On it.\n\n" + call_block("") + "\n\nBye.", sink);
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.num_tool_calls(), 1);
  EXPECT_EQ(parsed.content, "On it.");
}

TEST(OutputParser, AMillionNewlinesInPiecesAreReadInLinearTime) {
  OutputParser parser({OutputStage::kReasoningContinuation, true, {}});
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  for (int i = 0; i < 1'000'000; ++i) parser.push("\n", sink);
  parser.finish(OutputEnd::kLength, sink);
  EXPECT_EQ(parsed.reasoning.size(), 1'000'000u);
}

}  // namespace
}  // namespace deepinfer
