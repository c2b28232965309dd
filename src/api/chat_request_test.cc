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

TEST(ChatRequest, WhatIsNotDoneYetIsRefused) {
  for (const char* field :
       {R"(,"n":2)", R"(,"logprobs":true)", R"(,"frequency_penalty":0.5)", R"(,"presence_penalty":-1)",
        R"(,"logit_bias":{"5":1})", R"(,"response_format":{"type":"json_object"})",
        R"(,"thinking":{"type":"enabled","budget_tokens":100})",
        R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}])"}) {
    const Result<ChatRequest> request = parse(field);
    ASSERT_FALSE(request.ok()) << field;
    EXPECT_EQ(to_api_error(request.error()).http_status, 400) << field;
    EXPECT_EQ(to_api_error(request.error()).code, "unsupported_parameter") << field;
  }
}

TEST(ChatRequest, HarmlessValuesOfUnsupportedFieldsAreAccepted) {
  EXPECT_EQ(message_of(parse(R"(,"n":1,"logprobs":false,"frequency_penalty":0,"logit_bias":{},
      "response_format":{"type":"text"},"user":"u","metadata":{},"made_up":[1])")),
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
