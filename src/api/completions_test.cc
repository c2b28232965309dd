// Completions and the routes that only inspect.
#include <gtest/gtest.h>

#include "api/completions_request.h"
#include "api/completions_response.h"
#include "api/inspection.h"

namespace deepinfer {
namespace {

Result<CompletionsRequest> parse(const std::string& fields) {
  return parse_completions_request(R"({"model":"m")" + (fields.empty() ? "" : "," + fields) + "}", "m");
}

std::string message_of(const Result<CompletionsRequest>& request) {
  return request.ok() ? "accepted" : request.error().message();
}

TEST(CompletionsRequestTest, PromptsAreTextIdsOrListsOfThem) {
  EXPECT_EQ(parse(R"("prompt":"a")")->raw_prompts.at(0).text, "a");
  EXPECT_EQ(parse(R"("prompt":["a","b"])")->raw_prompts.size(), 2u);
  EXPECT_EQ(parse(R"("prompt":[5,6])")->raw_prompts.at(0).ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(parse(R"("prompt":[[5],[6,7]])")->raw_prompts.at(1).ids, (std::vector<TokenId>{6, 7}));
  const auto filled = parse(R"("prompt":"a","suffix":"z","echo":true,"n":2,"logprobs":null,"stop":["x"])");
  ASSERT_TRUE(filled.ok()) << message_of(filled);
  EXPECT_EQ(filled->raw_prompts.at(0).suffix, "z");
  EXPECT_TRUE(filled->echo);
  EXPECT_EQ(filled->n, 2);
}

TEST(CompletionsRequestTest, FaultsNameTheirPlace) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "missing field `prompt`"},
      {R"("prompt":5)", "prompt: expected a string"},
      {R"("prompt":[])", "prompt: expected at least one token id"},
      {R"("prompt":["a",{}])", "prompt[1]: expected a string"},
      {R"("prompt":[1,"a"])", "prompt[1]: found string, expected integer"},
      {R"("prompt":[-1])", "prompt[0]"},
      {R"("prompt":[1],"suffix":"z")", "suffix"},
      {R"("prompt":"a","logprobs":21)", "logprobs"},
      {R"("prompt":"a","best_of":3)", "best_of"},
      {R"("prompt":"a","echo":true,"logprobs":1)", "logprobs"},
      {R"("prompt":"a","stream_options":{})", "stream_options"},
  };
  for (const auto& [fields, text] : wrong) {
    const auto request = parse(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_NE(message_of(request).find(text), std::string::npos) << message_of(request);
  }
}

TEST(CompletionsAnswerTest, ChoicesHoldTextLogprobsAndEnds) {
  CompletionsRequest request = *parse(R"("prompt":["a","b"],"logprobs":1)");
  const auto writer =
      make_completions_writer({.id = "c", .created = 1, .model = "m", .system_fingerprint = "f"}, request);
  std::string out;
  ScoredToken token;
  token.chosen = {"é", -0.5f};
  token.top = {{"x", -0.25f}};
  writer->add(1, {OutputEvent::Kind::kContent, "éé"}, {token, token}, out);
  writer->end(1, {AnswerEnd::kLength}, nullptr, out);
  const Usage usage;
  writer->end(0, {AnswerEnd::kStop}, &usage, out);
  const JsonValue json = *parse_json(out);
  const JsonRef choice = JsonRef(json)["choices"][1];
  EXPECT_EQ(*choice["text"].string(), "éé");
  EXPECT_EQ(*choice["finish_reason"].string(), "length");
  EXPECT_EQ(*choice["logprobs"]["text_offset"][1].int64(), 1);
  EXPECT_EQ(*choice["logprobs"]["tokens"][0].string(), "é");
  EXPECT_EQ(*choice["logprobs"]["top_logprobs"][0]["x"].number(), -0.25);
}

TEST(CompletionsAnswerTest, AnEchoComesFirst) {
  for (const char* stream : {"false", "true"}) {
    CompletionsRequest request = *parse(R"("prompt":"ab","echo":true,"stream":)" + std::string(stream));
    const auto writer = make_completions_writer({}, request);
    std::string out;
    const Usage usage;
    writer->start(usage, out);
    writer->add(0, {OutputEvent::Kind::kContent, "cd"}, {}, out);
    writer->end(0, {AnswerEnd::kStop}, &usage, out);
    const size_t prompt = out.find("\"text\":\"ab"), answer = out.find("cd");
    EXPECT_LT(prompt, answer) << out;
    EXPECT_NE(answer, std::string::npos);
  }
}

TEST(Inspection, RequestsAreReadAndFaultsNamed) {
  const auto text = parse_tokenize_request(R"({"prompt":"x","add_special_tokens":false})", "m");
  ASSERT_TRUE(text.ok());
  EXPECT_FALSE(text->begin_of_sentence);
  const auto chat =
      parse_tokenize_request(R"({"model":"m","messages":[{"role":"user","content":"x"}]})", "m");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->chat->conversation.messages.size(), 1u);
  EXPECT_FALSE(parse_tokenize_request("{}", "m").ok());
  EXPECT_EQ(*parse_detokenize_request(R"({"tokens":[3,4]})"), (std::vector<TokenId>{3, 4}));
  EXPECT_FALSE(parse_detokenize_request(R"({"tokens":[3,"4"]})").ok());
  EXPECT_FALSE(parse_detokenize_request(R"({"tokens":[-3]})").ok());
}

}  // namespace
}  // namespace deepinfer
