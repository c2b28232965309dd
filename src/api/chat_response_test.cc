// Answers in detail; recorded ones are replayed in chat_vectors_test.cc.
#include <gtest/gtest.h>

#include "api/chat_response.h"
#include "api/models.h"

namespace deepinfer {
namespace {

AnswerIdentity identity() {
  return {.id = "a", .created = 1, .model = "m", .system_fingerprint = "fp", .call_id_key = 42};
}

std::string string_at(const std::string& json, const std::vector<std::string>& path) {
  const JsonValue document = *parse_json(json);
  JsonRef at(document);
  for (const std::string& key : path) at = key == "0" ? at[size_t{0}] : at[key];
  return at.string().ok() ? *at.string() : "absent";
}

// The bytes of an answer made of `events`.
std::string answer(AnswerIdentity who, const ChatRequest& request, const std::vector<OutputEvent>& events,
                   AnswerEnd end, const Usage& usage = {}) {
  const auto writer = make_chat_writer(std::move(who), request);
  std::string out;
  for (const OutputEvent& event : events) writer->add(0, event, {}, out);
  writer->end(0, {end}, &usage, out);
  return out;
}

ChatRequest plain() {
  ChatRequest request;
  request.conversation.thinking = false;
  return request;
}

TEST(ChatCompletion, AnInterruptedAnswerSaysSo) {
  const std::string json =
      answer(identity(), plain(), {{OutputEvent::Kind::kContent, "half"}}, AnswerEnd::kInterrupted);
  EXPECT_EQ(string_at(json, {"choices", "0", "finish_reason"}), "insufficient_system_resource");
  EXPECT_EQ(string_at(json, {"choices", "0", "message", "content"}), "half");
}

std::string call_id_with_key(uint64_t key) {
  AnswerIdentity who = identity();
  who.call_id_key = key;
  return string_at(answer(who, plain(), {{OutputEvent::Kind::kToolCall, "f"}}, AnswerEnd::kToolCalls),
                   {"choices", "0", "message", "tool_calls", "0", "id"});
}

TEST(ChatCompletion, CallIdsAreNumberedAndDifferBetweenAnswers) {
  EXPECT_TRUE(call_id_with_key(1).starts_with("call_00_"));
  EXPECT_EQ(call_id_with_key(1).size(), 32u);
  EXPECT_NE(call_id_with_key(1), call_id_with_key(2));
}

TEST(ChatCompletion, EveryAnswerIsAChoiceAndTheLastEndsIt) {
  ChatRequest request = plain();
  request.n = 2;
  const auto writer = make_chat_writer(identity(), request);
  std::string out;
  writer->add(1, {OutputEvent::Kind::kContent, "b"}, {}, out);
  writer->add(0, {OutputEvent::Kind::kContent, "a"}, {}, out);
  writer->end(1, {AnswerEnd::kLength}, nullptr, out);
  EXPECT_EQ(out, "");
  const Usage usage;
  writer->end(0, {AnswerEnd::kStop}, &usage, out);
  const JsonValue json = *parse_json(out);
  const JsonRef choices = JsonRef(json)["choices"];
  EXPECT_EQ(*choices[0]["message"]["content"].string(), "a");
  EXPECT_EQ(*choices[1]["message"]["content"].string(), "b");
  EXPECT_EQ(*choices[1]["index"].int64(), 1);
  EXPECT_EQ(*choices[1]["finish_reason"].string(), "length");
}

TEST(ChatStream, TheSameCallHasOneIdInStreamAndAnswer) {
  ChatRequest request = plain();
  request.stream = true;
  std::string frame;
  make_chat_writer(identity(), request)->add(0, {OutputEvent::Kind::kToolCall, "f"}, {}, frame);
  EXPECT_EQ(string_at(frame.substr(6), {"choices", "0", "delta", "tool_calls", "0", "id"}),
            call_id_with_key(42));
}

TEST(ChatStream, CarriesLogprobsOfReasoningAndContent) {
  ChatRequest request;
  request.stream = true;
  request.top_logprobs = 1;
  const auto writer = make_chat_writer(identity(), request);
  std::string out;
  ScoredToken token;
  token.chosen = {"\xf0\x9f", -0.5f};
  token.top = {{"ok", -0.25f}};
  writer->add(0, {OutputEvent::Kind::kReasoning, "x"}, {token}, out);
  EXPECT_NE(
      out.find(R"("logprobs":{"reasoning_content":[{"token":"\\xf0\\x9f","logprob":-0.5,"bytes":[240,159],)"
               R"("top_logprobs":[{"token":"ok","logprob":-0.25,"bytes":[111,107]}]}]})"),
      std::string::npos)
      << out;
  out.clear();
  writer->add(0, {OutputEvent::Kind::kContent, "x"}, {token}, out);
  EXPECT_NE(out.find(R"("logprobs":{"content":[)"), std::string::npos);
}

TEST(ChatStream, EndsWithUsageAndDone) {
  ChatRequest request;
  request.stream = true;
  const std::string out =
      answer(identity(), request, {}, AnswerEnd::kLength,
             {.prompt_tokens = 3, .cached_tokens = 0, .completion_tokens = 2, .reasoning_tokens = 1});
  EXPECT_EQ(out,
            "data: "
            "{\"id\":\"a\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"system_"
            "fingerprint\":"
            "\"fp\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\",\"reasoning_content\":null},"
            "\"logprobs\":null,"
            "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_"
            "tokens\":5,"
            "\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_"
            "tokens\":1},"
            "\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":3}}\n\ndata: [DONE]\n\n");
}

TEST(Models, TheListHoldsTheServedModel) {
  EXPECT_EQ(
      model_list_to_json("m", 5),
      R"({"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"deepinfer","type":"model",)"
      R"("display_name":"m","created_at":"1970-01-01T00:00:05Z"}],"has_more":false,"first_id":"m","last_id":"m"})");
}

}  // namespace
}  // namespace deepinfer
