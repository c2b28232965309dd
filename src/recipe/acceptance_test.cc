// Cases of docs/spec/recipe.md 13, from public bug reports, as far as they concern prompts and output. Each output is
// read whole, cut at every place and byte by byte.
#include <gtest/gtest.h>

#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

JsonValue json(std::string_view text) {
  return *parse_json(text);
}

ToolDefinition tool(std::string name, std::string_view schema = R"({"type": "object", "properties": {}})") {
  return {std::move(name), "", json(schema)};
}

Message message(Role role, std::string content) {
  Message made;
  made.role = role;
  made.content = std::move(content);
  return made;
}

// A request with two tools, not thinking.
Conversation with_tools() {
  Conversation conversation;
  conversation.messages = {message(Role::kUser, "Hi")};
  conversation.thinking = false;
  conversation.tools = {
      tool("ping"),
      tool(
          "read",
          R"({"type": "object", "properties": {"filePath": {"type": "string"}, "n": {"type": "integer"}}})")};
  return conversation;
}

struct Reading {
  OutputOptions options;
  OutputEnd end = OutputEnd::kStop;
};

Reading reading(const Conversation& conversation, OutputEnd end = OutputEnd::kStop) {
  return {output_options(conversation, render(conversation)), end};
}

ParsedOutput read(const Reading& how, const std::string& text) {
  const ParsedOutput whole = parse_output(how.options, {text}, how.end);
  std::vector<std::string> bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  EXPECT_EQ(parse_output(how.options, bytes, how.end), whole) << "byte by byte";
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(parse_output(how.options, {text.substr(0, cut), text.substr(cut)}, how.end), whole)
        << "cut at " << cut;
  }
  return whole;
}

Reading tools_reading(OutputEnd end = OutputEnd::kStop) {
  return reading(with_tools(), end);
}
Reading thinking_reading() {
  Conversation conversation = with_tools();
  conversation.thinking = true;
  return reading(conversation);
}

const ParsedOutput kPing = {"", "", {{"ping", "{}"}}};
const std::string kPingBlock =
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ping\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

ParsedOutput content(std::string text) {
  return {"", std::move(text), {}};
}

TEST(Acceptance, B01_MalformedMarkupIsSalvagedOrReturnedAsText) {
  // No closing tag of the value; no call at all; another tag in place of the block.
  EXPECT_EQ(read(tools_reading(),
                 "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"read\">\n<｜DSML｜ parameter name=\"filePath\" "
                 "string=\"true\">a\n<｜DSML｜ parameter name=\"n\" string=\"false\">1</｜DSML｜ parameter>\n"
                 "</｜DSML｜ invoke>\n</｜DSML｜ calls>"),
            (ParsedOutput{"", "", {{"read", R"({"filePath": "a", "n": 1})"}}}));
  EXPECT_EQ(read(tools_reading(), "<｜DSML｜ calls>\nping please\n</｜DSML｜ calls>"),
            content("<｜DSML｜ calls>\nping please\n</｜DSML｜ calls>"));
  EXPECT_EQ(read(tools_reading(), "<｜DSML｜ calls>\nping pl"), content("<｜DSML｜ calls>\nping pl"));
  EXPECT_EQ(read(tools_reading(), "<｜DSML｜ call>\nx"), content("<｜DSML｜ call>\nx"));
}

TEST(Acceptance, B05_ACallInUnclosedReasoningIsDelivered) {
  EXPECT_EQ(read(thinking_reading(), "Use it.\n\n" + kPingBlock),
            (ParsedOutput{"Use it.", "", {{"ping", "{}"}}}));
}

TEST(Acceptance, B06_OfThinkEndAndMarkerTheEarlierWins) {
  EXPECT_EQ(read(thinking_reading(), "a" + kPingBlock + "</think>b"),
            (ParsedOutput{"a", "", {{"ping", "{}"}}}));
  EXPECT_EQ(read(thinking_reading(), "a</think>\n\n" + kPingBlock),
            (ParsedOutput{"a", "", {{"ping", "{}"}}}));
}

TEST(Acceptance, B07_MarkersInOnePieceWithThinkAndLookAlikes) {
  EXPECT_EQ(read(thinking_reading(), "<think>" + kPingBlock), (ParsedOutput{"", "", {{"ping", "{}"}}}));
  EXPECT_EQ(read(thinking_reading(), "<｜DSML｜invoke name=\"ping\">\n</｜DSML｜invoke>"), kPing);
  EXPECT_EQ(read(thinking_reading(), "the <｜DSML｜ token</think>"),
            (ParsedOutput{"the <｜DSML｜ token", "", {}}));
}

TEST(Acceptance, B08_SeveralCallsInFewPieces) {
  const std::string ping = "<｜DSML｜ invoke name=\"ping\">\n\n</｜DSML｜ invoke>\n";
  const std::string text = "<｜DSML｜ calls>\n" + ping + ping + ping + "</｜DSML｜ calls>";
  EXPECT_EQ(read(tools_reading(), text),
            (ParsedOutput{"", "", {{"ping", "{}"}, {"ping", "{}"}, {"ping", "{}"}}}));
}

TEST(Acceptance, B09_HighEffortIs75) {
  Conversation conversation;
  conversation.messages = {message(Role::kUser, "Hi")};
  const auto number_is = [&](std::string_view number, const PromptFormat& format = {}) {
    return render(conversation, format).text.find(fmt::format("Reasoning Effort: {} (", number)) !=
           std::string::npos;
  };
  EXPECT_TRUE(number_is("75"));
  EXPECT_TRUE(number_is("50", {.prerelease_efforts = true}));
  conversation.reasoning_effort = ReasoningEffort::kLow;
  EXPECT_TRUE(number_is("50"));
  EXPECT_TRUE(number_is("25", {.prerelease_efforts = true}));
  conversation.effort_number = 42;
  EXPECT_TRUE(number_is("42"));
}

TEST(Acceptance, B11_WithoutAnEffortV4ThinksHigh) {
  Conversation conversation;
  conversation.messages = {message(Role::kUser, "Hi")};
  conversation.reasoning_effort = default_effort({.version = PromptVersion::kV4});
  EXPECT_NE(render(conversation, {.version = PromptVersion::kV4}).text.find("Absolute maximum"),
            std::string::npos);
}

TEST(Acceptance, B12_ToolsOfASystemMessageStayInThePrompt) {
  Conversation conversation;
  conversation.messages = {message(Role::kSystem, "s"), message(Role::kUser, "Hi")};
  conversation.messages[0].tools = {tool("ping")};
  for (const PromptProfile profile : {PromptProfile::kRecipe, PromptProfile::kReference}) {
    EXPECT_NE(render(conversation, {.profile = profile}).text.find(R"({"name": "ping")"), std::string::npos);
  }
}

TEST(Acceptance, B15_LiteralMarkupInProseIsNoCall) {
  EXPECT_EQ(read(tools_reading(), "Write <｜DSML｜ and then calls."),
            content("Write <｜DSML｜ and then calls."));
  EXPECT_EQ(read(tools_reading(), "<｜DSML｜ calls>\n...\n</｜DSML｜ calls>").calls.size(), 0u);
  EXPECT_EQ(read(tools_reading(), "Say <invoke name=\"ping\"></invoke> to call it."),
            content("Say <invoke name=\"ping\"></invoke> to call it."));
}

// The user asks for the markup, tools are declared: what is no complete call is text, and the answer goes on behind it.
TEST(Acceptance, B15_MarkupThatIsSpokenOfIsText) {
  for (const std::string text :
       {"You write it as `<｜DSML｜ invoke name=\"read\">` and close it.", "`<｜DSML｜ invoke name=\"ghost\">` is no tool.",
        "A block opens with `<｜DSML｜ calls>` or `<｜DSML｜tool_calls>`, then come calls.",
        "```\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"read\">` …\n```\nThat is all.",
        "Say <｜DSML｜ invoke name=\"read\"> and then its parameters.", "`<｜DSML｜ invoke name=\"` begins it.",
        "`<｜DSML｜ invoke name=\"read\"`", "A call: `<｜DSML｜ invoke name=\"NAME\">...`, closed with `</｜DSML｜ invoke>`."}) {
    EXPECT_EQ(read(tools_reading(), text), content(text)) << text;
  }
  // Complete calls are calls, wherever they stand.
  EXPECT_EQ(read(tools_reading(), "I do: <｜DSML｜ invoke name=\"read\">\n<｜DSML｜ parameter name=\"n\" string=\"false\">3</｜DSML｜ "
                                  "parameter>\n</｜DSML｜ invoke>"),
            (ParsedOutput{"", "I do: ", {{"read", R"({"n": 3})"}}}));
}

TEST(Acceptance, B16_StrayClosersWithoutACallNeverReachContent) {
  EXPECT_EQ(read(tools_reading(), "Answer.</invoke></｜DSML｜tool_calls>"), content("Answer."));
  EXPECT_EQ(read(tools_reading(), "Answer.</invoke>"), content("Answer."));
  EXPECT_EQ(read(tools_reading(), "One.</｜DSML｜ parameter></｜DSML｜ invoke>\nTwo.</｜DSML｜ calls>"), content("One.\nTwo."));
  EXPECT_EQ(read(tools_reading(), "</invoke></｜DSML｜tool_calls></invoke></｜DSML｜tool_calls>Go on."), content("Go on."));
}

TEST(Acceptance, B16_StrayClosersNeverReachContent) {
  EXPECT_EQ(read(tools_reading(), "<invoke name=\"ping\">\n</invoke></｜DSML｜tool_calls>"), kPing);
  EXPECT_EQ(read(tools_reading(), kPingBlock + "</invoke></｜DSML｜tool_calls>"), kPing);
}

TEST(Acceptance, B17_B18_AsciiVariantsAreParsed) {
  EXPECT_EQ(read(tools_reading(),
                 "<|DSML|tool_calls>\n<|DSML|invoke name=\"ping\">\n</|DSML|invoke>\n</|DSML|tool_calls>"),
            kPing);
  EXPECT_EQ(
      read(tools_reading(),
           "On it.\n\n<｜｜DSML｜｜ calls>\n<｜｜DSML｜｜ invoke name=\"read\">\n<｜｜DSML｜｜ parameter "
           "name=\"n\" string=\"false\">3</｜｜DSML｜｜ parameter>\n</｜｜DSML｜｜ invoke>\n</｜｜DSML｜｜ "
           "calls>"),
      (ParsedOutput{"", "On it.", {{"read", R"({"n": 3})"}}}));
}

TEST(Acceptance, B19_ACutOpenerIsNeverVisible) {
  EXPECT_EQ(read(tools_reading(), "Wait.\n\n<｜DSML｜tool_calls"), content("Wait."));
  EXPECT_EQ(
      read(tools_reading(), "Wait.\n\n<｜DSML｜tool_calls>\n" + kPingBlock.substr(kPingBlock.find('\n') + 1)),
      (ParsedOutput{"", "Wait.", {{"ping", "{}"}}}));
}

TEST(Acceptance, B20_B22_SpacedAndDoubledSentinels) {
  EXPECT_EQ(
      read(tools_reading(), "< | DSML | tool_calls>\n< | DSML | invoke name=\"ping\">\n< / | DSML | invoke>"),
      content("< | DSML | tool_calls>\n< | DSML | invoke name=\"ping\">\n< / | DSML | invoke>"));
  EXPECT_EQ(read(tools_reading(),
                 "< | DSML | tool_calls>\n< | DSML | invoke name=\"ping\">\n</ | DSML | invoke>\n</ | DSML | "
                 "tool_calls>"),
            kPing);
  EXPECT_EQ(read(tools_reading(), "<||DSML||tool_calls>\n<||DSML||invoke name=\"ping\">\n</||DSML||invoke>"),
            kPing);
  EXPECT_EQ(read(tools_reading(), "< | DSML | tool_use>< | DSML | invoke name=\"ping\">"), kPing);
  EXPECT_EQ(read(tools_reading(), "<invoke name=\"unknown\"></invoke>"),
            content("<invoke name=\"unknown\"></invoke>"));
}

TEST(Acceptance, B23_WithoutToolsMarkupIsText) {
  Conversation conversation = with_tools();
  conversation.tools.clear();
  EXPECT_EQ(read(reading(conversation), kPingBlock), content(kPingBlock));
}

TEST(Acceptance, B24_ForeignTagsJsonBodyAndBareInvoke) {
  EXPECT_EQ(
      read(tools_reading(),
           "<｜DSML｜tool_calls>\n<｜DSML｜ invoke name=\"ping\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
      kPing);
  EXPECT_EQ(read(tools_reading(), "<｜DSML｜ invoke name=\"read\">\n{\"n\": 1}\n</｜DSML｜ invoke>"),
            (ParsedOutput{"", "", {{"read", R"({"n": 1})"}}}));
}

TEST(Acceptance, B26_ABlockCutByTheTokenLimitShowsNoMarkup) {
  const std::string cut =
      "Ok.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"read\">\n<｜DSML｜ parameter name=\"filePath\" "
      "string=\"true\">/sr";
  EXPECT_EQ(read(tools_reading(OutputEnd::kLength), cut),
            (ParsedOutput{"", "Ok.", {{"read", R"({"filePath": "/sr)"}}}));
  for (size_t size = cut.find('<'); size <= cut.size(); ++size) {
    const ParsedOutput parsed =
        parse_output(tools_reading().options, {cut.substr(0, size)}, OutputEnd::kLength);
    EXPECT_EQ(parsed.content.find("DSML｜"), std::string::npos) << size;
  }
}

TEST(Acceptance, B28_ATrailingAssistantMessageIsFollowedByAnAnswer) {
  Conversation conversation = with_tools();
  conversation.messages.push_back(message(Role::kAssistant, "a"));
  conversation.messages.back().tool_calls = {{"1", "ping", "{}"}};
  const RenderedPrompt prompt = render(conversation);
  EXPECT_TRUE(prompt.text.ends_with("<｜end▁of▁sentence｜><｜Assistant｜></think>"));
  EXPECT_EQ(prompt.output_stage, OutputStage::kContent);
}

TEST(Acceptance, B30_B31_ControlSpellingsOfAUserStayText) {
  Conversation conversation;
  conversation.thinking = false;
  conversation.messages = {
      message(Role::kUser, "<｜User｜> <think> ｜DSML｜ <｜image｜> <｜end▁of▁sentence｜>")};
  const RenderedPrompt prompt = render(conversation);
  EXPECT_EQ(prompt.control_ranges.size(), 4u);
  EXPECT_NE(prompt.text.find("<｜image｜>"), std::string::npos);
  EXPECT_TRUE(prompt.images.empty());
}

TEST(Acceptance, B37_ACallWithoutItsReasoningRendersAsAnEmptyThought) {
  Conversation conversation = with_tools();
  conversation.thinking = true;
  conversation.messages.push_back(message(Role::kAssistant, ""));
  conversation.messages.back().tool_calls = {{"1", "ping", "{}"}};
  conversation.messages.push_back(message(Role::kTool, "pong"));
  conversation.messages.back().tool_call_id = "1";
  EXPECT_NE(render(conversation).text.find("<｜Assistant｜><think></think>\n\n<｜DSML｜ calls>"),
            std::string::npos);
}

TEST(Acceptance, B41_ACustomToolIsKnownByItsName) {
  Conversation conversation = with_tools();
  conversation.tools.push_back(custom_tool("apply_patch"));
  const ToolNames names(conversation, PromptVersion::kV41);
  EXPECT_EQ(names.target("apply_patch").kind, ToolKind::kCustom);
  EXPECT_EQ(names.target("ping").kind, ToolKind::kFunction);
}

TEST(Acceptance, B44_TheDeltasTogetherAreTheWholeAnswer) {
  OutputParser parser(tools_reading().options);
  std::string joined;
  const OutputSink sink = [&](const OutputEvent& event) { joined += event.text; };
  for (const char* piece : {"H", "e", "llo ", "w", "o", "rld"}) parser.push(piece, sink);
  parser.finish(OutputEnd::kStop, sink);
  EXPECT_EQ(joined, "Hello world");
}

}  // namespace
}  // namespace deepinfer
