#include <gtest/gtest.h>

#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

OutputOptions options_from(OutputStage start, bool parse_tool_calls, std::vector<std::string> stops = {}) {
  OutputOptions options;
  options.start = start;
  options.parse_tool_calls = parse_tool_calls;
  options.stop_sequences = std::move(stops);
  return options;
}

const OutputOptions kWithTools = options_from(OutputStage::kContent, true);

ParsedOutput parse(const OutputOptions& options, const std::string& text, OutputEnd end = OutputEnd::kStop) {
  return parse_output(options, {text}, end);
}

std::string call_block(const std::string& inner) {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + inner +
         "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

std::string arguments_of(const ParsedOutput& parsed) {
  return parsed.calls.size() == 1 ? parsed.calls[0].arguments : "no single call";
}

TEST(OutputParser, NewlinesAroundTheEndOfReasoningBelongToNeitherPart) {
  const ParsedOutput parsed =
      parse(options_from(OutputStage::kReasoning, false), "\n\nfirst\n\n</think>\n\nsecond\n");
  EXPECT_EQ(parsed.reasoning, "first");
  EXPECT_EQ(parsed.content, "second\n");
}

TEST(OutputParser, AContinuationKeepsItsLeadingNewlines) {
  const OutputOptions options = options_from(OutputStage::kReasoningContinuation, false);
  EXPECT_EQ(parse(options, "\n\nmore</think>x").reasoning, "\n\nmore");
  EXPECT_EQ(parse(options_from(OutputStage::kContentContinuation, false), "\nmore").content, "\nmore");
}

TEST(OutputParser, SentenceMarksAtTheEdgesOfAnAnswerAreLeftOut) {
  const OutputOptions text = options_from(OutputStage::kContent, false);
  const std::string begin = "<｜begin▁of▁sentence｜>", end = "<｜end▁of▁sentence｜>";
  EXPECT_EQ(parse(text, begin + "hello" + end + end).content, "hello");
  EXPECT_EQ(parse(text, "a" + end + "b").content, "a" + end + "b");
  EXPECT_EQ(parse(text, "a" + end.substr(0, 9)).content, "a" + end.substr(0, 9));
  const ParsedOutput thought =
      parse(options_from(OutputStage::kReasoning, false), "why" + end + "</think>so" + end);
  EXPECT_EQ(thought.reasoning, "why");
  EXPECT_EQ(thought.content, "so");
}

TEST(OutputParser, TextIsReleasedAsSoonAsItCannotBecomeAMarker) {
  OutputParser parser(options_from(OutputStage::kReasoning, true));
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  parser.push("a < b </thi", sink);
  EXPECT_EQ(parsed.reasoning, "a < b ");
  parser.push("s is", sink);
  EXPECT_EQ(parsed.reasoning, "a < b </this is");
  EXPECT_TRUE(parser.in_reasoning());
}

TEST(OutputParser, AStopSequenceEndsTheAnswerInContentOnly) {
  OutputParser parser(options_from(OutputStage::kReasoning, false, {"END"}));
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
  EXPECT_EQ(parse(options_from(OutputStage::kContent, false, {"BCD", "ABC"}), "xABABCDy").content, "xAB");
  EXPECT_EQ(parse(options_from(OutputStage::kContent, false, {"c", "abc"}), "zabcz").content, "zab");
}

TEST(OutputParser, WithoutDeclaredToolsMarkupIsContent) {
  const std::string text = call_block("");
  const ParsedOutput parsed = parse(options_from(OutputStage::kContent, false), text);
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
      parse(options_from(OutputStage::kReasoning, true), "Use it.\n\n" + call_block(""));
  EXPECT_EQ(parsed.reasoning, "Use it.");
  EXPECT_EQ(arguments_of(parsed), "{}");
}

TEST(OutputParser, StringValuesAreEscapedAndRawValuesKept) {
  const ParsedOutput parsed =
      parse(kWithTools,
            call_block("<｜DSML｜ parameter name=\"a b\" string=\"true\">x \"y\"\n</｜DSML｜ parameter>\n"
                       "<｜DSML｜ parameter name=\"n\" string=\"false\">[1, 2]</｜DSML｜ parameter>"));
  EXPECT_EQ(arguments_of(parsed), R"({"a b": "x \"y\"\n", "n": [1, 2]})");
}

TEST(OutputParser, ARawValueThatIsNoJsonBecomesAString) {
  const ParsedOutput parsed = parse(
      kWithTools, call_block("<｜DSML｜ parameter name=\"n\" string=\"false\">two</｜DSML｜ parameter>"));
  EXPECT_EQ(arguments_of(parsed), R"({"n": "two"})");
}

TEST(OutputParser, AMissingStringAttributeMeansJsonIfItParses) {
  EXPECT_EQ(
      arguments_of(parse(kWithTools, call_block("<｜DSML｜ parameter name=\"a\">7</｜DSML｜ parameter>"))),
      R"({"a": 7})");
  EXPECT_EQ(
      arguments_of(parse(kWithTools, call_block("<｜DSML｜ parameter name=\"a\">B</｜DSML｜ parameter>"))),
      R"({"a": "B"})");
}

TEST(OutputParser, AJsonObjectAsCallBodyBecomesTheArguments) {
  EXPECT_EQ(arguments_of(parse(kWithTools, call_block("{\"a\": 1}"))), R"({"a": 1})");
}

TEST(OutputParser, ParameterNamesAreEscaped) {
  EXPECT_EQ(arguments_of(parse(
                kWithTools,
                call_block("<｜DSML｜ parameter name=\"pa\\th\" string=\"true\">v</｜DSML｜ parameter>"))),
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

TEST(OutputParser, WithParallelCallsOffTheFirstCallEndsTheAnswer) {
  OutputOptions options = kWithTools;
  options.single_tool_call = true;
  const std::string invoke = "<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n";
  const ParsedOutput parsed = parse(options, "<｜DSML｜ calls>\n" + invoke + invoke + "</｜DSML｜ calls>");
  EXPECT_EQ(arguments_of(parsed), "{}");
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
  OutputParser parser(options_from(OutputStage::kReasoningContinuation, true));
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  for (int i = 0; i < 1'000'000; ++i) parser.push("\n", sink);
  parser.finish(OutputEnd::kLength, sink);
  EXPECT_EQ(parsed.reasoning.size(), 1'000'000u);
}

// ---- Repairs that need the declared tools ----

OutputOptions with_signature() {
  OutputOptions options = kWithTools;
  options.tools = {{"f", {{"code", true}, {"n", false}}}};
  return options;
}

TEST(OutputParser, AMissingStringAttributeTakesTheDeclaredType) {
  const std::string value = "<｜DSML｜ parameter name=\"code\">7</｜DSML｜ parameter>";
  EXPECT_EQ(arguments_of(parse(with_signature(), call_block(value))), R"({"code": "7"})");
}

TEST(OutputParser, ArgumentsInAWrapperAreUnwrapped) {
  const std::string wrapper =
      "<｜DSML｜ parameter name=\"arguments\" string=\"false\">{\"n\": 1}</｜DSML｜ parameter>";
  EXPECT_EQ(arguments_of(parse(with_signature(), call_block(wrapper))), R"({"n": 1})");
  const std::string more =
      wrapper + "\n<｜DSML｜ parameter name=\"code\" string=\"true\">x</｜DSML｜ parameter>";
  EXPECT_EQ(arguments_of(parse(with_signature(), call_block(more))), R"({"n": 1, "code": "x"})");
  EXPECT_EQ(arguments_of(parse(with_signature(), call_block(R"({"input": {"n": 1}})"))), R"({"n": 1})");
}

TEST(OutputParser, AWrapperOfUnknownKeysStays) {
  const std::string wrapper =
      "<｜DSML｜ parameter name=\"input\" string=\"true\">{\"z\": 1}</｜DSML｜ parameter>";
  EXPECT_EQ(arguments_of(parse(with_signature(), call_block(wrapper))), R"({"input": "{\"z\": 1}"})");
}

TEST(OutputParser, AWrapperCutByTheLengthLimitStaysCut) {
  const std::string text =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"input\" "
      "string=\"false\">{\"n\"";
  EXPECT_EQ(arguments_of(parse(with_signature(), text, OutputEnd::kLength)), R"({"input": {"n")");
}

TEST(OutputParser, LookAlikesAreHeldOnlyWhileTheyMayBeCalls) {
  OutputParser parser(with_signature());
  ParsedOutput parsed;
  const OutputSink sink = [&](const OutputEvent& event) { parsed.add(event); };
  parser.push("Try <invoke name=\"f", sink);
  EXPECT_EQ(parsed.content, "Try ");
  parser.push("oo\">", sink);
  EXPECT_EQ(parsed.content, "Try <invoke name=\"foo\">");
}

TEST(OutputParser, WithSalvageOffLookAlikesAreText) {
  OutputOptions options = with_signature();
  options.salvage = false;
  EXPECT_EQ(parse(options, "<invoke name=\"f\"></invoke>").content, "<invoke name=\"f\"></invoke>");
}

TEST(OutputParser, ManyLookAlikesAreReadInLinearTime) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<invoke name=\"f\"></invoke>\n";
  EXPECT_EQ(parse(with_signature(), text + "x").content, text + "x");
}

// ---- JSON mode ----

TEST(OutputParser, JsonEndsAtItsBracketAndStandsAlone) {
  OutputOptions options;
  options.json_output = true;
  EXPECT_EQ(parse(options, "Sure:\n```json\n{\"a\": \"}```\", \"b\": [{}]}\n```\nBye {1}").content,
            "{\"a\": \"}```\", \"b\": [{}]}");
  EXPECT_EQ(parse(options, "{\"a\": [1").content, "{\"a\": [1");
  EXPECT_EQ(parse(options, "\nI cannot.\n").content, "I cannot.");
}

TEST(OutputParser, InJsonModeAStopSequenceCountsInsideTheJsonOnly) {
  OutputOptions options;
  options.json_output = true;
  options.stop_sequences = {"END"};
  EXPECT_EQ(parse(options, "END {\"a\": \"xEND\"}").content, "{\"a\": \"x");
}

TEST(OutputParser, ASecondThinkAtTheStartIsAbsorbed) {
  EXPECT_EQ(parse(options_from(OutputStage::kReasoning, false), "\n<think>\nHm <think> x</think>y").reasoning,
            "Hm <think> x");
  EXPECT_EQ(parse(options_from(OutputStage::kContent, false), "<think>Yes").content, "Yes");
}

TEST(OutputParser, ANewCallInsideAValueEndsValueAndCall) {
  const ParsedOutput parsed =
      parse(kWithTools,
            call_block("<｜DSML｜ parameter name=\"a\" string=\"true\">v\n<｜DSML｜ invoke name=\"g\">\n"));
  EXPECT_EQ(parsed, (ParsedOutput{"", "", {{"f", R"({"a": "v"})"}, {"g", "{}"}}}));
}

// ---- Custom tools ----

std::string custom_input(const std::string& arguments) {
  std::string whole, pieces;
  CustomToolInput one, many;
  one.push(arguments, whole);
  one.finish(whole);
  for (const char byte : arguments) many.push({&byte, 1}, pieces);
  many.finish(pieces);
  EXPECT_EQ(whole, pieces) << arguments;
  return whole;
}

TEST(CustomToolInput, TheTextOfTheArgumentsComesOut) {
  const std::string text = "a \"b\" \\ / \n\t\x01 é 😀";
  EXPECT_EQ(custom_input(custom_tool_arguments(text)), text);
  EXPECT_EQ(custom_input(R"( { "input" : "\u00e9\ud83d\ude00\/"} )"), "é😀/");
}

TEST(CustomToolInput, BrokenEscapesAndOtherShapesStayAsTheyAre) {
  EXPECT_EQ(custom_input(R"({"input": "\ud83dx\q\uzz)"), R"(\ud83dx\q\uzz)");
  EXPECT_EQ(custom_input(R"({"patch": "x"})"), R"({"patch": "x"})");
  EXPECT_EQ(custom_input(R"({"inp)"), R"({"inp)");
  EXPECT_EQ(custom_input(R"({"input": "cut\)"), R"(cut\)");
}

// What a grammar let through is the answer, whatever it looks like; calls and stop sequences still count.
TEST(OutputParser, ContentThatKeepsToAGrammarIsPassedOnAsItIs) {
  OutputOptions options;
  options.verbatim_content = true;
  for (const std::string text : {"\"close it with </think> please\"", "<think>", "</think>", "\n\n7", "<｜end▁of▁sentence｜>",
                                 "<｜begin▁of▁sentence｜>", "<invoke name=\"f\"></invoke>", "</｜DSML｜ invoke>"}) {
    EXPECT_EQ(parse(options, text), (ParsedOutput{"", text, {}})) << text;
    options.parse_tool_calls = !options.parse_tool_calls;
    options.tools.assign(1, ToolSignature{"f", {}});
  }
  options.start = OutputStage::kReasoning;
  options.stop_sequences = {"END"};
  EXPECT_EQ(parse(options, "why</think>\n<think>xENDy"), (ParsedOutput{"why", "\n<think>x", {}}));
}

}  // namespace
}  // namespace deepinfer
