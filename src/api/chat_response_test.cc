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

TEST(ChatCompletion, AnInterruptedAnswerSaysSo) {
  ChatCompletion completion(identity(), false);
  completion.add({OutputEvent::Kind::kContent, "half"});
  const std::string json = completion.finish(AnswerEnd::kInterrupted, {});
  EXPECT_EQ(string_at(json, {"choices", "0", "finish_reason"}), "insufficient_system_resource");
  EXPECT_EQ(string_at(json, {"choices", "0", "message", "content"}), "half");
}

TEST(ChatCompletion, CallIdsAreNumberedAndDifferBetweenAnswers) {
  const auto id_with_key = [](uint64_t key) {
    AnswerIdentity who = identity();
    who.call_id_key = key;
    ChatCompletion completion(who, false);
    completion.add({OutputEvent::Kind::kToolCall, "f"});
    return string_at(completion.finish(AnswerEnd::kToolCalls, {}),
                     {"choices", "0", "message", "tool_calls", "0", "id"});
  };
  EXPECT_TRUE(id_with_key(1).starts_with("call_00_"));
  EXPECT_EQ(id_with_key(1).size(), 32u);
  EXPECT_NE(id_with_key(1), id_with_key(2));
}

TEST(ChatStream, TheSameCallHasOneIdInStreamAndAnswer) {
  ChatCompletion completion(identity(), false);
  completion.add({OutputEvent::Kind::kToolCall, "f"});
  ChatStreamWriter stream(identity(), false, false);
  std::string frame;
  stream.add({OutputEvent::Kind::kToolCall, "f"}, frame);
  EXPECT_EQ(string_at(frame.substr(6), {"choices", "0", "delta", "tool_calls", "0", "id"}),
            string_at(completion.finish(AnswerEnd::kToolCalls, {}),
                      {"choices", "0", "message", "tool_calls", "0", "id"}));
}

TEST(ChatStream, EndsWithUsageAndDone) {
  ChatStreamWriter stream(identity(), true, false);
  std::string out;
  stream.finish(AnswerEnd::kLength,
                {.prompt_tokens = 3, .cached_tokens = 0, .completion_tokens = 2, .reasoning_tokens = 1}, out);
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
  EXPECT_EQ(model_list_to_json("m", 5),
            R"({"object":"list","data":[{"id":"m","object":"model","created":5,"owned_by":"deepinfer"}]})");
}

}  // namespace
}  // namespace deepinfer
