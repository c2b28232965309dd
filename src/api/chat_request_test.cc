// Chat requests in detail; recorded requests are replayed in chat_vectors_test.cc.
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/error.h"

namespace deepinfer {
namespace {

Result<ChatRequest> parse(const std::string& fields) {
  return parse_chat_request(R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + fields + "}",
                            "m");
}

std::string message_of(const Result<ChatRequest>& request) {
  return request.ok() ? "accepted" : request.error().message();
}

TEST(ChatRequest, DefaultsAreThinkingWithHighEffortAndTemperatureOne) {
  const Result<ChatRequest> request = parse("");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->conversation.thinking);
  EXPECT_EQ(request->conversation.reasoning_effort, ReasoningEffort::kHigh);
  EXPECT_EQ(request->sampling.temperature, 1.0);
  EXPECT_EQ(request->sampling.top_p, 1.0);
  EXPECT_FALSE(request->seed.has_value());
  EXPECT_FALSE(request->max_tokens.has_value());
  EXPECT_FALSE(request->stream);
}

TEST(ChatRequest, AClientsTemperatureIsHonouredWhileThinking) {
  EXPECT_EQ(parse(R"(,"temperature":0)")->sampling.temperature, 0.0);
  EXPECT_EQ(parse(R"(,"top_p":0.5)")->sampling.top_p, 0.5);
}

TEST(ChatRequest, TheThinkingTypeWinsOverTheEffort) {
  EXPECT_FALSE(parse(R"(,"thinking":{"type":"disabled"},"reasoning_effort":"max")")->conversation.thinking);
  EXPECT_TRUE(parse(R"(,"thinking":{"type":"enabled"},"reasoning_effort":"none")")->conversation.thinking);
  EXPECT_FALSE(parse(R"(,"reasoning_effort":"none")")->conversation.thinking);
}

TEST(ChatRequest, BothNamesOfTheTokenLimitAreRead) {
  EXPECT_EQ(parse(R"(,"max_tokens":5)")->max_tokens, 5);
  EXPECT_EQ(parse(R"(,"max_completion_tokens":6,"max_tokens":5)")->max_tokens, 6);
}

TEST(ChatRequest, AStopIsAStringOrAList) {
  EXPECT_EQ(parse(R"(,"stop":"a")")->stop_sequences, (std::vector<std::string>{"a"}));
  EXPECT_EQ(parse(R"(,"stop":["a","b"])")->stop_sequences, (std::vector<std::string>{"a", "b"}));
  std::string many = R"(,"stop":["x")";
  for (int i = 0; i < 16; ++i) many += R"(,"x")";
  EXPECT_EQ(message_of(parse(many + "]")), "Stop string array too long: 17");
}

TEST(ChatRequest, AnUnknownModelIsNotFoundAndAliasesAreKnown) {
  const std::string messages = R"(,"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_EQ(parse_chat_request(R"({"model":"gpt-x")" + messages, "m").error().code(), Code::kNotFound);
  EXPECT_TRUE(parse_chat_request(R"({"model":"deepseek-reasoner")" + messages, "m")->conversation.thinking);
  EXPECT_FALSE(parse_chat_request(R"({"model":"deepseek-chat")" + messages, "m")->conversation.thinking);
}

TEST(ChatRequest, MessagesNameTheFaultWithItsPath) {
  EXPECT_EQ(message_of(parse(R"(,"temperature":"hot")")),
            "invalid request body: temperature: found string, expected number");
  EXPECT_EQ(
      message_of(parse_chat_request(R"({"model":"m","messages":[{"role":"robot","content":""}]})", "m")),
      "invalid request body: messages[0].role: unknown variant `robot`, expected one of `system`, "
      "`developer`, "
      "`user`, `assistant`, `tool`, `latest_reminder`");
  EXPECT_EQ(message_of(parse_chat_request(R"({"model":"m","messages":["hi"]})", "m")),
            "invalid request body: messages[0]: found string, expected object");
  EXPECT_EQ(message_of(parse_chat_request(R"({"model":"m"})", "m")),
            "invalid request body: missing field `messages`");
  EXPECT_EQ(message_of(parse_chat_request("[1]", "m")), "invalid request body: found array, expected object");
  EXPECT_EQ(parse_chat_request(R"({"model":"m","messages":[]})", "m").error().code(), Code::kInvalidArgument);
}

TEST(ChatRequest, AFormatIsShownAndAsksForAGrammar) {
  const auto json = parse(R"(,"response_format":{"type":"json_object"})");
  ASSERT_TRUE(json.ok()) << message_of(json);
  EXPECT_EQ(json->conversation.response_format.kind, ResponseFormat::Kind::kJsonObject);
  EXPECT_EQ(json->grammar->kind, OutputGrammar::Kind::kJsonObject);
  const auto schema = parse(
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"null"}}})");
  ASSERT_TRUE(schema.ok()) << message_of(schema);
  EXPECT_EQ(to_json(schema->conversation.response_format.schema), R"({"type":"null"})");
  EXPECT_EQ(to_json(schema->grammar->value), R"({"type":"null"})");
  EXPECT_EQ(schema->grammar->path, "response_format.json_schema.schema");
  const auto strict = parse(R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}])");
  ASSERT_TRUE(strict.ok()) << message_of(strict);
  EXPECT_TRUE(strict->conversation.tools[0].strict);
  EXPECT_FALSE(parse(R"(,"guided_regex":"a")")->conversation.response_format.kind !=
               ResponseFormat::Kind::kText);
  EXPECT_EQ(message_of(parse(R"(,"guided_regex":"a","guided_choice":["b"])")),
            "guided_regex and guided_choice: found two grammars, expected one");
}

TEST(ChatRequest, GrammarsHaveTheNamesOfOtherServers) {
  const auto so = parse(
      R"(,"so_args":{"schema_type":"ebnf","schema":"root ::= \"a\"","trigger_token_ids":[5,6],"bound_token_id":7})");
  ASSERT_TRUE(so.ok()) << message_of(so);
  EXPECT_EQ(so->grammar->kind, OutputGrammar::Kind::kEbnf);
  EXPECT_EQ(so->grammar->text, "root ::= \"a\"");
  EXPECT_EQ(so->trigger_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(so->bound_id, 7);
  const auto vllm =
      parse(R"(,"structured_outputs":{"json":"{\"type\":\"null\"}"},"thinking_token_budget":9)");
  ASSERT_TRUE(vllm.ok()) << message_of(vllm);
  EXPECT_EQ(to_json(vllm->grammar->value), R"({"type":"null"})");
  EXPECT_EQ(vllm->thinking_budget, 9);
  EXPECT_EQ(parse(R"(,"thinking":{"type":"enabled","budget_tokens":100})")->thinking_budget, 100);
  EXPECT_EQ(parse(R"(,"reasoning":{"max_tokens":50})")->thinking_budget, 50);
}

TEST(ChatRequest, SamplingFieldsAreRead) {
  const Result<ChatRequest> request = parse(
      R"(,"n":3,"logprobs":true,"top_logprobs":5,"frequency_penalty":0.5,"presence_penalty":-1,"min_p":0.1,
      "top_k":40,"seed":9,"logit_bias":{"5":1,"7":-100},"user_id":"u","parallel_tool_calls":false,"speculation":false)");
  ASSERT_TRUE(request.ok()) << message_of(request);
  EXPECT_EQ(request->n, 3);
  EXPECT_EQ(request->top_logprobs, 5);
  EXPECT_EQ(request->sampling.frequency_penalty, 0.5);
  EXPECT_EQ(request->sampling.presence_penalty, -1.0);
  EXPECT_EQ(request->sampling.min_p, 0.1);
  EXPECT_EQ(request->sampling.top_k, 40);
  EXPECT_EQ(request->seed, 9u);
  EXPECT_EQ(request->user_id, "u");
  EXPECT_FALSE(request->parallel_tool_calls);
  EXPECT_FALSE(request->speculation);
  ASSERT_EQ(request->sampling.logit_bias.size(), 2u);
  EXPECT_EQ(request->sampling.logit_bias[1], (std::pair<int32_t, float>(7, -100.0f)));
}

TEST(ChatRequest, ValuesOutOfRangeNameTheirField) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"(,"n":0)", "n"},
      {R"(,"n":129)", "n"},
      {R"(,"frequency_penalty":2.5)", "frequency_penalty"},
      {R"(,"presence_penalty":-3)", "presence_penalty"},
      {R"(,"logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"(,"logit_bias":{"x":1})", "logit_bias"},
      {R"(,"logit_bias":{"5":101})", "logit_bias"},
      {R"(,"logit_bias":{"-5":1})", "logit_bias"},
      {R"(,"logit_bias":[])", "logit_bias"},
      {R"(,"min_p":1.5)", "min_p"},
      {R"(,"top_k":-2)", "top_k"},
      {R"(,"seed":-1)", "seed"},
      {R"(,"speculation":1)", "speculation"},
      {R"(,"max_completion_tokens":0)", "max_completion_tokens"},
      {R"(,"thinking":{"type":"enabled","budget_tokens":-1})", "thinking.budget_tokens"},
      {R"(,"reasoning":{"effort":"huge"})", "reasoning.effort"},
      {R"(,"chat_template_kwargs":{"thinking":"yes"})", "chat_template_kwargs.thinking"},
      {R"(,"chat_template_kwargs":{"task":"dance"})", "chat_template_kwargs.task"},
  };
  for (const auto& [field, name] : wrong) {
    const Result<ChatRequest> request = parse(field);
    ASSERT_FALSE(request.ok()) << field;
    EXPECT_EQ(request.error().code(), Code::kInvalidArgument) << field;
    EXPECT_NE(message_of(request).find(name), std::string::npos) << message_of(request);
  }
}

TEST(ChatRequest, EveryDialectOfTheThinkingSwitchIsRead) {
  EXPECT_FALSE(parse(R"(,"chat_template_kwargs":{"thinking":false})")->conversation.thinking);
  EXPECT_FALSE(parse(R"(,"chat_template_kwargs":{"enable_thinking":false})")->conversation.thinking);
  EXPECT_FALSE(parse(R"(,"reasoning":{"enabled":false})")->conversation.thinking);
  EXPECT_FALSE(parse(R"(,"reasoning":{"effort":"none"})")->conversation.thinking);
  EXPECT_EQ(parse(R"(,"reasoning":{"effort":"max"})")->conversation.reasoning_effort, ReasoningEffort::kMax);
  EXPECT_TRUE(
      parse(R"(,"chat_template_kwargs":{"thinking":false},"reasoning_effort":"low")")->conversation.thinking);
  EXPECT_TRUE(parse(R"(,"thinking":{"type":"enabled","budget_tokens":100})")->conversation.thinking);
}

TEST(ChatRequest, ATaskStandsInAMessageOrInTheTemplateArguments) {
  EXPECT_EQ(parse(R"(,"chat_template_kwargs":{"task":"title"})")->conversation.messages[0].task, Task::kTitle);
  const auto messages = [](const std::string& list) {
    return parse_chat_request(R"({"model":"m","messages":[)" + list + "]}", "m");
  };
  const auto asked = messages(R"({"role":"user","content":"x","task":"read_url"})");
  ASSERT_TRUE(asked.ok()) << asked.error().message();
  EXPECT_EQ(asked->conversation.messages[0].task, Task::kReadUrl);
  const auto unknown = messages(R"({"role":"user","content":"x","task":"dance"})");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message().find("messages[0].task"), std::string::npos) << unknown.error().message();
}

TEST(ChatRequest, AForcedCallFollowsThinkingOnlyWhereTheClientAskedForIt) {
  const std::string forced =
      R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")";
  const Result<ChatRequest> request = parse(forced);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->conversation.thinking);
  EXPECT_EQ(render(request->conversation).output_stage, OutputStage::kToolCalls);
  const Result<ChatRequest> thinking = parse(forced + R"(,"reasoning_effort":"low")");
  ASSERT_TRUE(thinking.ok());
  EXPECT_TRUE(thinking->conversation.thinking);
  EXPECT_EQ(render(thinking->conversation).output_stage, OutputStage::kReasoning);
}

TEST(ChatRequest, HarmlessAndUnknownFieldsAreAccepted) {
  EXPECT_EQ(message_of(parse(R"(,"n":1,"logprobs":false,"frequency_penalty":0,"logit_bias":{},"store":true,
      "response_format":{"type":"text"},"user":"u","metadata":{},"made_up":[1],"service_tier":"auto")")),
            "accepted");
}

TEST(ChatRequest, EveryCutOfARequestIsAnError) {
  const std::string text = R"({"model":"m","messages":[{"role":"user","content":"h\u00e9 😀"}],"stop":["a"]})";
  ASSERT_TRUE(parse_chat_request(text, "m").ok());
  for (size_t length = 0; length < text.size(); ++length) {
    const Result<ChatRequest> request = parse_chat_request(text.substr(0, length), "m");
    ASSERT_FALSE(request.ok()) << length;
    EXPECT_TRUE(request.error().message().starts_with("invalid JSON request: ")) << length;
  }
}

TEST(ChatRequest, BrokenUtf8IsAnError) {
  const Result<ChatRequest> request =
      parse_chat_request("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "m");
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().code(), Code::kInvalidArgument);
}

TEST(ApiError, IsTheOpenAiObject) {
  EXPECT_EQ(
      to_json(to_api_error(Error(Code::kNotFound, "The model `x`"))),
      R"({"error":{"message":"The model `x`","type":"invalid_request_error","param":null,"code":"model_not_found"}})");
  EXPECT_EQ(to_api_error(Error(Code::kResourceExhausted, "full")).http_status, 429);
  EXPECT_EQ(to_api_error(Error(Code::kUnavailable, "later")).http_status, 503);
  EXPECT_EQ(to_api_error(Error(Code::kDeadlineExceeded, "late")).http_status, 504);
  EXPECT_EQ(to_api_error(Error(Code::kInternal, "bug")).http_status, 500);
  EXPECT_EQ(http_error(413, "big").code, "request_too_large");
}

}  // namespace
}  // namespace deepinfer
