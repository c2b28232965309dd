// What a history becomes in places where DeepSeek's package was asked, and how answers are told in old and new forms.
#include <gtest/gtest.h>

#include "api/chat_response.h"
#include "api/messages_request.h"
#include "api/messages_response.h"
#include "api/responses_request.h"
#include "api/responses_response.h"

namespace deepinfer {
namespace {

AnswerIdentity identity(const std::string& id) {
  AnswerIdentity identity;
  identity.id = id;
  identity.call_id_key = 1;
  return identity;
}

// The prompt from its first user turn on; or the refusal.
std::string turns_of(const Result<GenerationRequest>& request) {
  if (!request.ok()) return request.error().message();
  const std::string text = render(request->conversation).text;
  return text.substr(text.find("<｜User｜>"));
}

std::string messages_turns(const std::string& messages) {
  const auto parsed = [&]() -> Result<GenerationRequest> {
    ASSIGN_OR_RETURN(GenerationRequest request, parse_messages_request(R"({"model":"m","thinking":{"type":"disabled"},
        "tools":[{"name":"later","description":"L","input_schema":{"type":"object"},"defer_loading":true},
                 {"name":"find","description":"F","input_schema":{"type":"object"}}],
        "messages":[{"role":"user","content":"x"},)" + messages + "]}",
                                                                       "m"));
    return request;
  };
  return turns_of(parsed());
}

constexpr char kUse[] = R"({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"find","input":{}}]},)";
constexpr char kShownUse[] =
    "<｜User｜>x<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"find\">\n\n</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls><｜end▁of▁sentence｜>";
constexpr char kShownTool[] =
    "<｜System｜>\n\n### Updated Tool Schemas\n\n{\"name\": \"later\", \"description\": \"L\", \"parameters\": "
    "{\"type\": "
    "\"object\"}}";

TEST(MessagesHistory, ToolsThatAResultBringsStandBehindTheWholeMessage) {
  const std::string result =
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"see"},
         {"type":"tool_reference","tool_name":"later"}]})";
  EXPECT_EQ(messages_turns(kUse + result + R"(,{"type":"text","text":"and now"}]})"),
            std::string(kShownUse) + "<｜User｜><tool_result>see\n\nlater</tool_result>\n\nand now" + kShownTool +
                "<｜Assistant｜></think>");
  EXPECT_EQ(messages_turns(kUse + result + R"(]},{"role":"user","content":"next"})"),
            std::string(kShownUse) + "<｜User｜><tool_result>see\n\nlater</tool_result>" + kShownTool +
                "<｜User｜>next<｜Assistant｜></think>");
}

TEST(MessagesHistory, AReferenceToAnUnknownToolIsRefused) {
  EXPECT_EQ(messages_turns(std::string(kUse) +
                           R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[
                              {"type":"tool_reference","tool_name":"nope"}]}]})"),
            "messages.2.content.0: tool reference 'nope' not found in available tools");
}

TEST(MessagesHistory, AnInputMayBeAnyValue) {
  for (const char* input : {"[1]", "\"s\"", "5", "true"}) {
    const std::string turns = messages_turns(
        fmt::format(R"({{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"find","input":{}}}]}},
                       {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"r"}}]}})",
                    input));
    EXPECT_NE(turns.find(fmt::format("name=\"arguments\" string=\"true\">{}</", input)), std::string::npos) << turns;
  }
}

TEST(MessagesHistory, ClaudeCodesBillingNoteIsNotShown) {
  const auto prompt = [](const std::string& system) {
    const auto request = parse_messages_request(
        R"({"model":"m","system":)" + system + R"(,"messages":[{"role":"user","content":"x"}]})", "m");
    return request.ok() ? render(request->conversation).text : request.error().message();
  };
  const std::string without = prompt(R"([{"type":"text","text":"Rules."}])");
  for (const char* nonce : {"1a2b3", "4c5d6"}) {
    const std::string note = fmt::format("x-anthropic-billing-header: cc_version=9.9; cch={};", nonce);
    EXPECT_EQ(prompt(fmt::format(R"([{{"type":"text","text":"{}"}},{{"type":"text","text":"Rules."}}])", note)),
              without);
    EXPECT_EQ(prompt(fmt::format(R"("{}\nRules.")", note)), without);
  }
  EXPECT_NE(prompt(R"("About x-anthropic-billing-header: it is not shown.")").find("x-anthropic"), std::string::npos);
  EXPECT_NE(prompt(R"("x-anthropic-billing-header: alone")").find("<｜User｜>x"), std::string::npos);
}

TEST(MessagesHistory, HiddenThinkingLeavesNoThoughtBehind) {
  const auto request = parse_messages_request(
      R"({"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
         {"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"a"}]},{"role":"user","content":"y"}]})",
      "m");
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->conversation.messages[1].reasoning.has_value());
}

std::string responses_turns(const std::string& items, const std::string& more = "") {
  ResponsesContext context;
  context.served_model = "m";
  context.find_item = [](const std::string&) {
    return std::optional(*parse_json(R"({"role":"user","content":"found"})"));
  };
  const auto body = parse_json(R"({"model":"m","input":[{"role":"user","content":"x"})" + items + "]" + more + "}");
  const auto parsed = [&]() -> Result<GenerationRequest> {
    ASSIGN_OR_RETURN(GenerationRequest request, parse_responses_request(*body, context));
    return request;
  };
  return turns_of(parsed());
}

constexpr char kThought[] =
    R"(,{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"thought"}]})";
constexpr char kFind[] = R"(,"tools":[{"type":"function","name":"find"}])";

TEST(ResponsesHistory, AThoughtThatNothingFollowsIsATurn) {
  const std::string alone = "<｜User｜>x<｜Assistant｜><think>thought</think><｜end▁of▁sentence｜>";
  EXPECT_EQ(responses_turns(kThought, kFind), alone + "<｜Assistant｜><think>");
  EXPECT_EQ(responses_turns(std::string(kThought) + R"(,{"role":"user","content":"y"})", kFind),
            alone + "<｜User｜>y<｜Assistant｜><think>");
  EXPECT_EQ(responses_turns(std::string(kThought) + kThought, kFind),
            "<｜User｜>x<｜Assistant｜><think>thought\nthought</think><｜end▁of▁sentence｜><｜Assistant｜><think>");
  EXPECT_EQ(responses_turns(std::string(R"(,{"role":"assistant","content":"A"})") + kThought, kFind),
            "<｜User｜>x<｜Assistant｜><think></think>A<｜end▁of▁sentence｜><｜Assistant｜><think>thought</think>"
            "<｜end▁of▁sentence｜><｜Assistant｜><think>");
  EXPECT_EQ(responses_turns(kThought), "<｜User｜>x<｜Assistant｜></think><｜end▁of▁sentence｜><｜Assistant｜><think>");
}

TEST(ResponsesHistory, AnItemIsReferredToOnce) {
  const std::string reference = R"(,{"type":"item_reference","id":"msg_resp_1_0"})";
  EXPECT_NE(responses_turns(reference).find("found"), std::string::npos);
  EXPECT_EQ(responses_turns(reference + reference),
            "input[2]: found the item 'msg_resp_1_0' twice, expected each once");
}

// ---- Answers ----

std::string responses_answer(const std::string& more, const std::vector<OutputEvent>& events) {
  ResponsesContext context;
  context.served_model = "m";
  const auto request = parse_responses_request(*parse_json(R"({"model":"m","input":"x")" + more + "}"), context);
  EXPECT_TRUE(request.ok()) << request.error().message();
  const auto writer = make_responses_writer(identity("r"), *request, {.now_s = [] { return int64_t{1}; }});
  std::string out;
  for (const OutputEvent& event : events) writer->add(0, event, {}, out);
  writer->end(0, {}, nullptr, out);
  return out;
}

TEST(ResponsesAnswer, ToolsAreEchoedWithTheFieldsTheyLack) {
  const std::string out = responses_answer(
      R"(,"tools":[{"type":"namespace","name":"bare","tools":[{"type":"function","name":"open"}]},
         {"type":"function","name":"open"},{"type":"custom","name":"apply_patch"},
         {"type":"tool_search","execution":"client"}])",
      {});
  EXPECT_NE(out.find(R"("tools":[{"type":"namespace","name":"bare","description":null,"tools":[{"type":"function",)"
                     R"("name":"open","description":null,"parameters":null,"strict":null}]},{"type":"function",)"
                     R"("name":"open","description":null,"parameters":null,"strict":null},{"type":"custom",)"
                     R"("name":"apply_patch"},{"type":"tool_search","execution":"client","description":null,)"
                     R"("parameters":null}])"),
            std::string::npos)
      << out;
}

TEST(ResponsesAnswer, ACallOfAToolThatNobodyDeclaredKeepsItsName) {
  const std::string out =
      responses_answer(R"(,"tools":[{"type":"namespace","name":"shed","tools":[{"type":"function","name":"open"}]}])",
                       {{OutputEvent::Kind::kToolCall, "shed::open"}, {OutputEvent::Kind::kToolCall, "ghost::x"}});
  EXPECT_NE(out.find(R"("name":"open","namespace":"shed")"), std::string::npos) << out;
  EXPECT_NE(out.find(R"("name":"ghost::x","arguments")"), std::string::npos) << out;
}

TEST(ResponsesAnswer, PenaltiesAreEchoedAsAsked) {
  const std::string out = responses_answer(R"(,"frequency_penalty":0.5,"presence_penalty":-1)", {});
  EXPECT_NE(out.find(R"("frequency_penalty":0.5)"), std::string::npos) << out;
  EXPECT_NE(out.find(R"("presence_penalty":-1)"), std::string::npos) << out;
}

TEST(MessagesAnswer, HiddenThinkingHasASignatureAndNoText) {
  const std::vector<OutputEvent> events = {{OutputEvent::Kind::kReasoning, "secret"},
                                           {OutputEvent::Kind::kContent, "91"}};
  for (const bool stream : {false, true}) {
    MessagesRequest request;
    request.hides_thinking = true;
    request.stream = stream;
    const auto writer = make_messages_writer(identity("msg_1"), request);
    std::string out;
    writer->start({}, out);
    for (const OutputEvent& event : events) writer->add(0, event, {}, out);
    const Usage usage;
    writer->end(0, {}, &usage, out);
    EXPECT_EQ(out.find("secret"), std::string::npos) << out;
    EXPECT_EQ(out.find("thinking_delta"), std::string::npos) << out;
    EXPECT_NE(out.find(R"("signature":"msg_1")"), std::string::npos) << out;
    EXPECT_NE(out.find("91"), std::string::npos) << out;
  }
}

// The whole answer, or what the chunks of its stream add up to, one after another.
std::string chat_answer(ChatRequest request, bool stream, const std::vector<OutputEvent>& events, AnswerEnd end) {
  request.stream = stream;
  request.conversation.thinking = false;
  const auto writer = make_chat_writer(identity("c"), request);
  std::string out;
  Usage usage;
  usage.prompt_tokens = 5;
  writer->start(usage, out);
  for (const OutputEvent& event : events) {
    ++usage.completion_tokens;
    writer->add(0, event, {}, out);
  }
  writer->end(0, {end}, &usage, out);
  return out;
}

TEST(ChatAnswer, FunctionsAreAnsweredWithAFunctionCall) {
  ChatRequest request;
  request.legacy_functions = true;
  const std::vector<OutputEvent> events = {{OutputEvent::Kind::kToolCall, "f"},
                                           {OutputEvent::Kind::kToolArguments, "{\"a\""},
                                           {OutputEvent::Kind::kToolArguments, ": 1}"}};
  const std::string whole = chat_answer(request, false, events, AnswerEnd::kToolCalls);
  EXPECT_NE(whole.find(R"("function_call":{"name":"f","arguments":"{\"a\": 1}"}})"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("finish_reason":"function_call")"), std::string::npos) << whole;
  EXPECT_EQ(whole.find("tool_calls"), std::string::npos) << whole;
  const std::string stream = chat_answer(request, true, events, AnswerEnd::kToolCalls);
  EXPECT_NE(stream.find(R"("delta":{"function_call":{"name":"f","arguments":""}})"), std::string::npos) << stream;
  EXPECT_NE(stream.find(R"("delta":{"function_call":{"arguments":": 1}"}})"), std::string::npos) << stream;
  EXPECT_EQ(stream.find("tool_calls"), std::string::npos) << stream;
}

TEST(ChatAnswer, ACustomToolGetsText) {
  ChatRequest request;
  request.conversation.tools = {custom_tool("sh", "d"), {"f", "", JsonValue(JsonValue::Object{})}};
  const std::vector<OutputEvent> events = {{OutputEvent::Kind::kToolCall, "sh"},
                                           {OutputEvent::Kind::kToolArguments, "{\"input\": \"l"},
                                           {OutputEvent::Kind::kToolArguments, "s\\n\"}"},
                                           {OutputEvent::Kind::kToolCall, "f"},
                                           {OutputEvent::Kind::kToolArguments, "{}"}};
  const std::string whole = chat_answer(request, false, events, AnswerEnd::kToolCalls);
  EXPECT_NE(whole.find(R"("type":"custom","custom":{"name":"sh","input":"ls\n"})"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"("type":"function","function":{"name":"f","arguments":"{}"})"), std::string::npos) << whole;
  const std::string stream = chat_answer(request, true, events, AnswerEnd::kToolCalls);
  EXPECT_NE(stream.find(R"("type":"custom","custom":{"name":"sh","input":""})"), std::string::npos) << stream;
  EXPECT_NE(stream.find(R"({"index":0,"custom":{"input":"l"}})"), std::string::npos) << stream;
  EXPECT_NE(stream.find(R"({"index":1,"function":{"arguments":"{}"}})"), std::string::npos) << stream;
}

TEST(ChatAnswer, AnEchoComesFirstAndUsageInEveryChunkWhenAsked) {
  ChatRequest request;
  request.echo = "Once";
  request.include_usage = request.usage_always = true;
  const std::vector<OutputEvent> events = {{OutputEvent::Kind::kContent, " upon"}};
  EXPECT_NE(chat_answer(request, false, events, AnswerEnd::kStop).find(R"("content":"Once upon")"), std::string::npos);
  const std::string stream = chat_answer(request, true, events, AnswerEnd::kStop);
  EXPECT_LT(stream.find("Once"), stream.find(" upon"));
  size_t chunks = 0, usages = 0;
  for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) ++chunks;
  for (size_t at = 0; (at = stream.find(R"("usage":{"prompt_tokens":5)", at)) != std::string::npos; ++at) ++usages;
  EXPECT_EQ(chunks, usages) << stream;
  EXPECT_NE(stream.find(R"("completion_tokens":0)"), std::string::npos) << stream;
}

}  // namespace
}  // namespace deepinfer
