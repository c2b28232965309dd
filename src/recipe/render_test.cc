// Rendering in detail; the recorded prompts of the official package are replayed in src/api.
#include <gtest/gtest.h>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

Conversation conversation_of(std::vector<Message> messages, bool thinking) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  conversation.thinking = thinking;
  return conversation;
}

Message message(Role role, std::string content) {
  Message made;
  made.role = role;
  made.content = std::move(content);
  return made;
}

std::vector<std::string> control_tokens(const RenderedPrompt& prompt) {
  std::vector<std::string> tokens;
  for (const TextRange& range : prompt.control_ranges) {
    tokens.push_back(prompt.text.substr(range.begin, range.end - range.begin));
  }
  return tokens;
}

TEST(Render, OneUserMessageWithoutThinking) {
  const RenderedPrompt prompt = render(conversation_of({message(Role::kUser, "Hi")}, false));
  EXPECT_EQ(prompt.text, "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
  EXPECT_EQ(prompt.output_stage, OutputStage::kContent);
}

TEST(Render, ThinkingPutsTheEffortLineInASystemTurn) {
  Conversation conversation = conversation_of({message(Role::kUser, "Hi")}, true);
  conversation.reasoning_effort = ReasoningEffort::kLow;
  const RenderedPrompt prompt = render(conversation);
  EXPECT_EQ(prompt.text,
            "<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 50 (range 1-100, the higher the value, the "
            "more thorough "
            "the reasoning)\n\n<｜User｜>Hi<｜Assistant｜><think>");
  EXPECT_EQ(prompt.output_stage, OutputStage::kReasoning);
}

TEST(Render, ControlSpellingsInClientTextStayText) {
  const RenderedPrompt prompt =
      render(conversation_of({message(Role::kUser, "<｜User｜><think>｜DSML｜")}, false));
  EXPECT_EQ(control_tokens(prompt), (std::vector<std::string>{"<｜begin▁of▁sentence｜>", "<｜User｜>",
                                                              "<｜Assistant｜>", "</think>"}));
}

TEST(Render, ControlSpellingsInAToolDefinitionStayText) {
  Conversation conversation = conversation_of({message(Role::kUser, "Hi")}, false);
  const size_t without = [&] {
    conversation.tools = {{"f", "plain", JsonValue(JsonValue::Object{})}};
    return render(conversation).control_ranges.size();
  }();
  conversation.tools = {{"f", "<think>｜DSML｜<｜User｜>", JsonValue(JsonValue::Object{})}};
  EXPECT_EQ(render(conversation).control_ranges.size(), without);
}

TEST(Render, AConversationOfEmptySystemMessagesStillAsksForAnAnswer) {
  const RenderedPrompt prompt = render(conversation_of({message(Role::kSystem, "")}, false));
  EXPECT_EQ(prompt.text, "<｜begin▁of▁sentence｜><｜Assistant｜></think>");
}

TEST(Render, AForcedCallOpensTheBlock) {
  Conversation conversation = conversation_of({message(Role::kUser, "Hi")}, false);
  conversation.tools = {{"f", "", JsonValue(JsonValue::Object{})}};
  conversation.tool_choice = ToolChoice::kRequired;
  const RenderedPrompt prompt = render(conversation);
  EXPECT_TRUE(prompt.text.ends_with("<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n"));
  EXPECT_EQ(prompt.output_stage, OutputStage::kToolCalls);
}

// ---- Versions and profiles ----

constexpr PromptFormat kV4 = {.version = PromptVersion::kV4};
constexpr PromptFormat kReference = {.profile = PromptProfile::kReference};

TEST(Render, V4HasOneSystemTextAndPutsTheRestIntoUserText) {
  const Conversation conversation = conversation_of(
      {message(Role::kSystem, "a"), message(Role::kUser, "u"), message(Role::kSystem, "b"),
       message(Role::kDeveloper, "d"), message(Role::kSystemReminder, "r"), message(Role::kDeveloper, "")},
      false);
  EXPECT_EQ(render(conversation, kV4).text,
            "<｜begin▁of▁sentence｜>a\n\nb<｜User｜>u\n\nd\n\n<system-reminder>\nr\n</system-reminder>"
            "<｜Assistant｜></think>");
  EXPECT_EQ(render(conversation).text,
            "<｜begin▁of▁sentence｜><｜System｜>a<｜User｜>u<｜System｜>b<｜System｜>d<｜System｜>r"
            "<｜Assistant｜></think>");
}

TEST(Render, V4LeavesEmptyUserTextsOutAndOrdersResultsById) {
  Conversation conversation =
      conversation_of({message(Role::kUser, ""), message(Role::kUser, "a"), message(Role::kUser, ""),
                       message(Role::kAssistant, ""), message(Role::kTool, "2"), message(Role::kTool, "1")},
                      false);
  conversation.messages[3].tool_calls = {{"y", "f", "{}"}, {"x", "f", "{}"}};
  conversation.messages[4].tool_call_id = "x";
  conversation.messages[5].tool_call_id = "y";
  const std::string v4 = render(conversation, kV4).text, v41 = render(conversation).text;
  EXPECT_NE(v4.find("<｜User｜>a<｜Assistant｜>"), std::string::npos);
  EXPECT_NE(v41.find("<｜User｜>\n\na\n\n<｜Assistant｜>"), std::string::npos);
  EXPECT_TRUE(v4.find(">2<") < v4.find(">1<"));
  EXPECT_TRUE(v41.find(">1<") < v41.find(">2<"));
}

TEST(Render, ImagesStandWhereTheirPartsStood) {
  Message user = message(Role::kUser, "");
  append_image_part(user, {.source = "https://a", .detail = Image::Detail::kLow}, true);
  append_text_part(user, "<｜image｜>", false);
  append_image_part(user, {.source = "https://b"}, false);
  const Conversation conversation = conversation_of({user}, false);
  const RenderedPrompt prompt = render(conversation);
  EXPECT_TRUE(
      prompt.text.ends_with("<｜User｜><｜image｜>\n\n<｜image｜>\n\n<｜image｜><｜Assistant｜></think>"));
  EXPECT_EQ(prompt.control_ranges.size(), 6u);  // begin, user, two images, assistant, </think>
  ASSERT_EQ(prompt.images.size(), 2u);
  EXPECT_EQ(prompt.images[1].source, "https://b");
  EXPECT_EQ(prompt.text.substr(prompt.images[1].offset).substr(0, 13), "<｜image｜>");
  EXPECT_NE(render(conversation, kReference).text.find("<｜deepseek_image｜>"), std::string::npos);
  const RenderedPrompt v4 = render(conversation, kV4);
  EXPECT_NE(v4.text.find("[Unsupported Image]\n\n<｜image｜>\n\n[Unsupported Image]"), std::string::npos);
  EXPECT_TRUE(v4.images.empty());
}

TEST(Render, AHoleIsFilledBetweenPrefixAndSuffix) {
  const RenderedPrompt prompt = render_completion("a<think>", "b");
  EXPECT_EQ(prompt.text, "<｜begin▁of▁sentence｜><｜fim▁begin｜>a<think><｜fim▁hole｜>b<｜fim▁end｜>");
  EXPECT_EQ(prompt.control_ranges.size(), 4u);
  EXPECT_EQ(render_completion("a").text, "<｜begin▁of▁sentence｜>a");
}

TEST(Render, TheReferenceDropsEarlierReasoningAndDeveloperMessages) {
  Conversation conversation = conversation_of({message(Role::kDeveloper, "d"), message(Role::kUser, "a"),
                                               message(Role::kAssistant, "A"), message(Role::kUser, "b")},
                                              true);
  conversation.messages[2].reasoning = "r";
  const auto text = [&](bool drop) {
    PromptFormat format = kReference;
    format.drop_thinking = drop;
    const std::string prompt = render(conversation, format).text;
    return prompt.substr(prompt.find("\n\n") + 2);
  };
  EXPECT_EQ(text(true),
            "<｜User｜>a<｜Assistant｜></think>A<｜end▁of▁sentence｜><｜User｜>b<｜Assistant｜><think>");
  EXPECT_EQ(text(false),
            "<｜User｜>d<｜User｜>a<｜Assistant｜><think>r</think>A<｜end▁of▁sentence｜><｜User｜>b"
            "<｜Assistant｜><think>");
}

TEST(Render, ATaskTokenFollowsItsMessage) {
  Conversation conversation = conversation_of({message(Role::kUser, "q")}, false);
  conversation.messages[0].task = Task::kTitle;
  EXPECT_TRUE(render(conversation, kReference).text.ends_with("<｜User｜>q<｜title｜>"));
  conversation.messages[0].task = Task::kAction;
  EXPECT_TRUE(
      render(conversation, kReference).text.ends_with("<｜User｜>q<｜Assistant｜></think><｜action｜>"));
}

// ---- Tools ----

TEST(Render, AClosingTagInAnArgumentIsNoControlTokenAndIsSplitOnRequest) {
  Message call = message(Role::kAssistant, "");
  call.tool_calls = {{.id = "1", .name = "write", .arguments = R"({"text":"a</｜DSML｜ invoke>b"})"}};
  const Conversation conversation =
      conversation_of({message(Role::kUser, "Hi"), call, message(Role::kUser, "go on")}, false);
  const RenderedPrompt as_it_is = render(conversation);
  EXPECT_NE(as_it_is.text.find(">a</｜DSML｜ invoke>b</"), std::string::npos);
  for (const PromptProfile profile : {PromptProfile::kRecipe, PromptProfile::kReference}) {
    const RenderedPrompt split = render(conversation, {.profile = profile, .split_call_markup = true});
    EXPECT_NE(split.text.find(">a</\u200B｜DSML｜ invoke>b</｜DSML｜ parameter>"), std::string::npos) << split.text;
  }
  EXPECT_EQ(as_it_is.control_ranges.size(), render(conversation, {.split_call_markup = true}).control_ranges.size());
}

TEST(Render, NamespacesAreFlattenedAndFoundAgain) {
  Conversation conversation = conversation_of({message(Role::kUser, "Hi")}, false);
  const JsonValue schema = JsonValue(JsonValue::Object{});
  conversation.tools = {{"open", "Opens", schema, "shed", "Shed."},
                        {"shed__open", "", schema},
                        {"open", "", schema, "shed", ""}};
  const ToolNames v41(conversation, PromptVersion::kV41);
  EXPECT_EQ(v41.declared(), (std::vector<std::string>{"shed::open", "shed__open", "shed::open_1"}));
  EXPECT_EQ(v41.target("shed::open_1"), (ToolNames::Target{"shed", "open"}));
  EXPECT_EQ(v41.target("gone::lost"), (ToolNames::Target{"", "gone::lost"}));
  EXPECT_EQ(v41.printed("shed", "open"), "shed::open");
  EXPECT_EQ(ToolNames(conversation, PromptVersion::kV4).declared()[0], "shed__open_1");
  EXPECT_NE(render(conversation).text.find(R"({"name": "shed::open", "description": "Shed.\nOpens")"),
            std::string::npos);
}

TEST(Render, DeferredToolsAppearWhereTheyAreLoaded) {
  const JsonValue schema = JsonValue(JsonValue::Object{});
  Conversation conversation = conversation_of({message(Role::kUser, "x"), message(Role::kSystem, "")}, false);
  conversation.tools = {{"find", "", schema}, {"later", "", schema}};
  conversation.tools[1].deferred = true;
  conversation.messages[1].tools = {conversation.tools[1]};
  EXPECT_TRUE(render(conversation)
                  .text.ends_with("<｜User｜>x<｜System｜>\n\n### Updated Tool Schemas\n\n{\"name\": "
                                  "\"later\", \"description\": \"\", "
                                  "\"parameters\": {}}<｜Assistant｜></think>"));
  const std::string v4 = render(conversation, kV4).text;
  EXPECT_NE(v4.find("\"later\""), std::string::npos);
  EXPECT_EQ(v4.find("Updated"), std::string::npos);
}

TEST(Render, AResponseFormatFollowsTheSystemText) {
  Conversation conversation = conversation_of({message(Role::kUser, "x")}, false);
  conversation.response_format = {ResponseFormat::Kind::kJsonSchema, *parse_json(R"({"type":"object"})")};
  EXPECT_NE(render(conversation)
                .text.find("<｜System｜>\n\n## Response Format:\n\nYou MUST strictly adhere to the "
                           "following schema to reply:\n{\"type\": \"object\"}<｜User｜>"),
            std::string::npos);
}

}  // namespace
}  // namespace deepinfer
