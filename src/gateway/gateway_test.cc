// Chat Completions and what every route has.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "gateway/gateway_test_support.h"

namespace deepinfer {
namespace {

TEST_F(GatewayTest, AWholeAnswerHoldsReasoningContentAndUsage) {
  begin_chat(R"("temperature":0,"seed":5,"max_tokens":50)");
  const EngineRequest request = tokens_.wait_for_request(1);
  EXPECT_EQ(request.max_tokens, 50);
  EXPECT_EQ(request.sampling.temperature, 0.0);
  EXPECT_EQ(request.sampling.seed, 5u);
  tokens_.emit(1, "think</think>91");
  tokens_.finish(1, FinishReason::kStop);
  const Answer answer = read_answer(*client_);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.text({"model"}), "mini");
  EXPECT_EQ(answer.text({"choices", "0", "message", "reasoning_content"}), "think");
  EXPECT_EQ(answer.text({"choices", "0", "message", "content"}), "91");
  EXPECT_EQ(answer.text({"choices", "0", "finish_reason"}), "stop");
  EXPECT_EQ(answer.text({"usage", "prompt_tokens"}), std::to_string(request.prompt_ids.size()));
  EXPECT_EQ(answer.text({"usage", "completion_tokens"}),
            std::to_string(mini_tokenizer().encode("think</think>91").size()));
  EXPECT_EQ(answer.text({"usage", "completion_tokens_details", "reasoning_tokens"}),
            std::to_string(mini_tokenizer().encode("think").size()));
}

TEST_F(GatewayTest, ThePromptIsTheRenderedConversationInTokens) {
  begin_chat(kNoThinking);
  const EngineRequest request = tokens_.wait_for_request(1);
  EXPECT_EQ(mini_tokenizer().decode(request.prompt_ids),
            "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>");
  const TokenId end = *mini_tokenizer().id_of_added("<｜end▁of▁sentence｜>");
  EXPECT_EQ(std::count(request.stop_ids.begin(), request.stop_ids.end(), end), 1);
  tokens_.finish(1, FinishReason::kStop);
  read_answer(*client_);
}

TEST_F(GatewayTest, AStreamShowsEachTokenWhenItComes) {
  begin_chat(std::string(R"("stream":true,)") + kNoThinking);
  tokens_.wait_for_request(1);
  EXPECT_NE(client_->read_until("\"role\":\"assistant\"").find("text/event-stream"), std::string::npos);
  tokens_.emit(1, "one");
  EXPECT_NE(client_->read_until("\"content\":\"o"), "");
  tokens_.finish(1, FinishReason::kLength);
  const std::string rest = client_->read_until("data: [DONE]\n\n");
  EXPECT_NE(rest.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n"));
}

TEST_F(GatewayTest, AStopSequenceEndsTheAnswerAndTheGeneration) {
  begin_chat(std::string(R"("stop":"END",)") + kNoThinking);
  tokens_.wait_for_request(1);
  tokens_.emit(1, "first END second");
  tokens_.wait_for_finish(1);
  EXPECT_FALSE(tokens_.was_cancelled(1));
  const Answer answer = read_answer(*client_);
  EXPECT_EQ(answer.text({"choices", "0", "message", "content"}), "first ");
  EXPECT_EQ(answer.text({"choices", "0", "finish_reason"}), "stop");
}

// The counts come with the engine's end only, whoever ends the text.
TEST_F(GatewayTest, CachedTokensAreToldHoweverAnAnswerEnds) {
  tokens_.cached_tokens = 7;
  tokens_.holds_ends = true;
  const std::string call =
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"add\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"add"}}],)";
  uint64_t id = 0;
  for (const auto& [more, text] :
       {std::pair(std::string(R"("stop":"END",)"), std::string("first END second")), std::pair(tools, call + "more")}) {
    for (const bool stream : {false, true}) {
      ++id;
      begin_chat(more + (stream ? R"("stream":true,"stream_options":{"include_usage":true},)" : "") + kNoThinking);
      tokens_.wait_for_request(id);
      tokens_.emit(id, text);
      tokens_.wait_for_finish(id);
      // What ends it meanwhile does not matter: the text is complete.
      tokens_.finish(id, stream ? FinishReason::kStop : FinishReason::kLength);
      const std::string body = stream ? client_->read_until("[DONE]") : to_json(read_answer(*client_).body);
      EXPECT_NE(body.find(R"("prompt_cache_hit_tokens":7)"), std::string::npos) << body;
      EXPECT_EQ(body.find(R"("finish_reason":"length")"), std::string::npos) << body;
      if (stream) client_->read_until("0\r\n\r\n");
    }
  }
  EXPECT_FALSE(tokens_.was_cancelled(1));
}

TEST_F(GatewayTest, ToolCallsAreParsed) {
  begin_chat(std::string(R"("tools":[{"type":"function","function":{"name":"add"}}],)") + kNoThinking);
  tokens_.wait_for_request(1);
  tokens_.emit(1,
               "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"add\">\n<｜DSML｜ parameter name=\"a\" "
               "string=\"false\">1"
               "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  const Answer answer = read_answer(*client_);
  EXPECT_EQ(answer.text({"choices", "0", "finish_reason"}), "tool_calls");
  EXPECT_EQ(answer.text({"choices", "0", "message", "tool_calls", "0", "function", "arguments"}),
            R"({"a": 1})");
}

TEST_F(GatewayTest, AClientThatLeavesCancelsItsRequest) {
  for (const uint64_t id : {1, 2}) {
    const std::string stream = id == 1 ? R"("stream":true)" : R"("stream":false)";
    begin_chat(stream);
    tokens_.wait_for_request(id);
    client_->close_now();
    tokens_.wait_for_cancel(id);
    client_ = std::make_unique<TestClient>(gateway_->port());
  }
}

TEST_F(GatewayTest, AClientThatSendsNothingMoreGetsItsAnswer) {
  begin_chat(kNoThinking);
  tokens_.wait_for_request(1);
  client_->stop_sending();
  EXPECT_NE(client_->read_until("\r\n\r\n1\r\n\n\r\n").find("200 OK"), std::string::npos);  // white space
  tokens_.emit(1, "91");
  tokens_.finish(1, FinishReason::kStop);
  EXPECT_NE(client_->read_all().find(R"("content":"91")"), std::string::npos);
}

TEST_F(GatewayTest, AFailureOfTheEngineIsAnErrorInAnswerAndStream) {
  begin_chat(kNoThinking);
  tokens_.wait_for_request(1);
  tokens_.finish(1, FinishReason::kError, Error(Code::kInternal, "a logit is not finite"));
  const Answer answer = read_answer(*client_);
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.text({"error", "message"}), "a logit is not finite");

  begin_chat(R"("stream":true)");
  tokens_.wait_for_request(2);
  tokens_.finish(2, FinishReason::kError, Error(Code::kInternal, "a logit is not finite"));
  const std::string stream = client_->read_until("0\r\n\r\n");
  EXPECT_NE(stream.find("data: {\"error\":{\"message\":\"a logit is not finite\""), std::string::npos);
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
}

TEST_F(GatewayTest, StoppingEndsRunningAnswersCleanly) {
  begin_chat(std::string(R"("stream":true,)") + kNoThinking);
  tokens_.wait_for_request(1);
  TestClient waiting(gateway_->port());
  waiting.send(http_post("/v1/chat/completions", chat_body(kNoThinking)));
  tokens_.wait_for_request(2);
  tokens_.emit(1, "x");
  client_->read_until("\"content\":\"x");
  bool all_closed = false;
  std::thread stopper([&] { all_closed = gateway_->stop(std::chrono::milliseconds(kPatienceMs)); });
  const std::string rest = client_->read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"finish_reason\":\"insufficient_system_resource\""), std::string::npos);
  EXPECT_NE(rest.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_EQ(read_answer(waiting).text({"choices", "0", "finish_reason"}), "insufficient_system_resource");
  stopper.join();
  EXPECT_TRUE(all_closed);
}

TEST_F(GatewayTest, TooLongPromptsAndAnswersAreRefused) {
  tokens_.context_tokens = 20;
  const Answer answer = post(chat_body(R"("max_tokens":100)"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.text({"error", "code"}), "context_length_exceeded");
  EXPECT_TRUE(
      answer.text({"error", "message"}).starts_with("This model's maximum context length is 20 tokens."));
}

TEST_F(GatewayTest, ATextThatCanNotFitIsRefusedBeforeItIsEncoded) {
  tokens_.context_tokens = 10;
  const Answer answer = post(R"({"model":"mini","messages":[{"role":"user","content":")" +
                             std::string(1 << 20, 'x') + R"("}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.text({"error", "code"}), "context_length_exceeded");
  EXPECT_NE(answer.text({"error", "message"}).find("at least "), std::string::npos);
}

TEST_F(GatewayTest, WrongRequestsAreAnsweredWithTheirFault) {
  EXPECT_EQ(post("{").text({"error", "type"}), "invalid_request_error");
  EXPECT_EQ(post(chat_body(R"("temperature":3)")).text({"error", "message"}),
            "Invalid temperature value, the valid range of temperature is [0, 2]");
  const Answer model = post(R"({"model":"gpt","messages":[{"role":"user","content":""}]})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(model.text({"error", "code"}), "model_not_found");
}

TEST_F(GatewayTest, ATaskIsRefusedWhereTheProfileOrTheVocabularyHasNoTokenForIt) {
  const std::string body = R"({"model":"mini","messages":[{"role":"user","content":"hi","task":"title"}]})";
  EXPECT_EQ(post(body).status, 400);
  const Answer recipe = post_to("/v1/render", body);
  EXPECT_EQ(recipe.status, 400);
  EXPECT_NE(recipe.text({"error", "message"}).find("--prompt-profile reference"), std::string::npos);
  GatewayOptions options;
  options.prompt_format.profile = PromptProfile::kReference;
  start(options);
  const Answer reference = post(body);  // the mini's vocabulary has no tokens of tasks
  EXPECT_EQ(reference.status, 400);
  EXPECT_NE(reference.text({"error", "message"}).find("<｜title｜>"), std::string::npos);
}

TEST_F(GatewayTest, AFullEngineAnswers429) {
  tokens_.refusal = Error(Code::kResourceExhausted, "1024 requests are waiting");
  const Answer answer = post(chat_body(""));
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.text({"error", "type"}), "rate_limit_error");
}

TEST_F(GatewayTest, AnErrorAboutAPathIsAlwaysJson) {
  EXPECT_EQ(get("/v1/responses/%ff").text({"error", "code"}), "invalid_request_error");
  EXPECT_EQ(get("/v1/responses/%00").status, 404);
}

TEST_F(GatewayTest, UnknownPathsAndMethodsAreErrors) {
  EXPECT_EQ(get("/v1/nothing").status, 404);
  EXPECT_EQ(get("/v1/chat/completions").status, 405);
  EXPECT_EQ(get("/v1/models/other").status, 404);
  EXPECT_EQ(get("/v1/\xff").status, 400);
  client_->send("DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_NE(client_->read_until("\r\n\r\n").find("Allow: GET, HEAD"), std::string::npos);
}

TEST_F(GatewayTest, ModelsHealthAndPageAreShown) {
  for (const char* path : {"/v1/models", "/models"}) {
    EXPECT_EQ(get(path).text({"data", "0", "id"}), "mini") << path;
  }
  EXPECT_EQ(get("/v1/models/mini").text({"object"}), "model");
  EXPECT_EQ(get("/health").text({"status"}), "ok");
  client_->send(http_get("/"));
  EXPECT_NE(client_->read_until("\r\n\r\n").find("text/html"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
