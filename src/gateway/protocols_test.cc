// The other protocols over the socket, and what a client may do around them.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "gateway/gateway_test_support.h"
#include "gateway/openapi.h"
#include "gateway/routes.h"

namespace deepinfer {
namespace {

constexpr char kCall[] =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"add\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">1"
    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

std::string messages_body(const std::string& more) {
  return R"({"model":"claude-opus-9","max_tokens":50,"messages":[{"role":"user","content":"hi"}])" +
         (more.empty() ? "" : "," + more) + "}";
}

std::string responses_body(const std::string& more) {
  return R"({"model":"mini","reasoning":{"effort":"none"})" + (more.empty() ? "" : "," + more) + "}";
}

struct Deltas {
  std::string content;
  std::string arguments;
};

// What the chunks of a chat stream add up to.
Deltas joined_deltas(const std::string& stream) {
  Deltas out;
  size_t at = 0;
  while ((at = stream.find("data: {", at)) != std::string::npos) {
    const size_t end = stream.find("\n\n", at);
    const JsonValue chunk = *parse_json(std::string_view(stream).substr(at + 6, end - at - 6));
    const JsonRef delta = JsonRef(chunk)["choices"][0]["delta"];
    if (delta["content"].string().ok()) out.content += *delta["content"].string();
    const JsonRef call = delta["tool_calls"][0]["function"]["arguments"];
    if (call.string().ok()) out.arguments += *call.string();
    at = end;
  }
  return out;
}

class ProtocolsTest : public GatewayTest {
 protected:
  // Posts, says `text` as answer `id` and ends it.
  Answer answered(const std::string& path, const std::string& body, uint64_t id, std::string_view text,
                  FinishReason reason = FinishReason::kStop) {
    client_->send(http_post(path, body));
    tokens_.wait_for_request(id);
    tokens_.emit(id, text);
    tokens_.finish(id, reason);
    return read_answer(*client_);
  }
  std::string streamed(const std::string& path, const std::string& body, uint64_t id, std::string_view text,
                       FinishReason reason = FinishReason::kStop) {
    client_->send(http_post(path, body));
    tokens_.wait_for_request(id);
    tokens_.emit(id, text);
    tokens_.finish(id, reason);
    return client_->read_until("0\r\n\r\n");
  }
  // Asks until the response has that status.
  Answer wait_for_status(const std::string& path, std::string_view status) {
    Answer seen;
    do seen = get(path);
    while (seen.status == 200 && seen.text({"status"}) != status);
    return seen;
  }
  std::string prompt_of(uint64_t id) {
    return mini_tokenizer().decode(tokens_.wait_for_request(id).prompt_ids);
  }
};

// ---- Messages ----

TEST_F(ProtocolsTest, AMessageHoldsThinkingTextAndUsage) {
  for (const char* path : {"/v1/messages?beta=true", "/messages", "/anthropic/v1/messages"}) {
    static uint64_t id = 0;
    const Answer answer = answered(path, messages_body(""), ++id, "hm</think>91");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.text({"type"}), "message");
    EXPECT_EQ(answer.text({"model"}), "mini");
    EXPECT_EQ(answer.text({"content", "0", "thinking"}), "hm");
    EXPECT_EQ(answer.text({"content", "1", "text"}), "91");
    EXPECT_EQ(answer.text({"stop_reason"}), "end_turn");
  }
}

// Marks of the client are places where later prompts part: the engine keeps a state there. They change nothing else.
TEST_F(ProtocolsTest, CacheControlMarksBecomeCachePointsOfThePrompt) {
  const auto body = [](const char* mark) {
    return fmt::format(R"({{"model":"mini","max_tokens":20,"system":[{{"type":"text","text":"You add numbers."{0}}}],
        "messages":[{{"role":"user","content":[{{"type":"text","text":"What is 1 + 2?"{0}}}]}},
                    {{"role":"assistant","content":"3"}},{{"role":"user","content":"And 4 + 5?"}}]}})",
                       mark);
  };
  answered("/v1/messages", body(""), 1, "hm</think>9");
  answered("/v1/messages", body(R"(,"cache_control":{"type":"ephemeral"})"), 2, "hm</think>9");
  const EngineRequest plain = tokens_.wait_for_request(1), marked = tokens_.wait_for_request(2);
  EXPECT_EQ(plain.prompt_ids, marked.prompt_ids);
  EXPECT_TRUE(plain.cache_points.empty());
  ASSERT_EQ(marked.cache_points.size(), 2u);
  const auto beginning = [&](int64_t point) {
    return mini_tokenizer().decode(std::span(marked.prompt_ids).first(static_cast<size_t>(point)));
  };
  EXPECT_TRUE(beginning(marked.cache_points[0]).ends_with("You add numbers.")) << beginning(marked.cache_points[0]);
  EXPECT_NE(beginning(marked.cache_points[1]).find("What is 1 + 2?"), std::string::npos);
  EXPECT_EQ(beginning(marked.cache_points[1]).find("And 4"), std::string::npos);
}

TEST_F(ProtocolsTest, B34_AStreamedThinkingBlockHasASignatureFromItsStart) {
  const std::string stream = streamed("/v1/messages", messages_body(R"("stream":true)"), 1, "hm</think>91");
  EXPECT_NE(stream.find(R"("content_block":{"type":"thinking","thinking":"","signature":""})"),
            std::string::npos);
  EXPECT_NE(stream.find(R"("type":"signature_delta","signature":"msg_)"), std::string::npos);
  EXPECT_NE(stream.find("event: message_stop"), std::string::npos);
  EXPECT_EQ(stream.find("[DONE]"), std::string::npos);
}

TEST_F(ProtocolsTest, B40_AMessagesStreamPingsWhileNothingComes) {
  GatewayOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  client_->send(http_post("/v1/messages", messages_body(R"("stream":true,)" + std::string(kNoThinking))));
  tokens_.wait_for_request(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(client_->read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n"), "");
  }
  tokens_.finish(1, FinishReason::kStop);
  EXPECT_NE(client_->read_until("message_stop").find("message_delta"), std::string::npos);
}

TEST_F(ProtocolsTest, ErrorsOfMessagesHaveTheirShape) {
  const Answer answer = post_to("/v1/messages", messages_body(R"("temperature":3)"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.text({"type"}), "error");
  EXPECT_EQ(answer.text({"error", "type"}), "invalid_request_error");
  EXPECT_TRUE(answer.text({"request_id"}).starts_with("req_"));
  tokens_.refusal = Error(Code::kResourceExhausted, "full");
  EXPECT_EQ(post_to("/v1/messages", messages_body("")).text({"error", "type"}), "rate_limit_error");
}

TEST_F(ProtocolsTest, AnOverloadedServerIs529ForMessagesAnd503ForOthersAndSaysWhenToComeBack) {
  tokens_.refusal = Error(Code::kUnavailable, "stopping");
  const Answer messages = post_to("/v1/messages", messages_body(""));
  EXPECT_TRUE(messages.head.starts_with("HTTP/1.1 529 Overloaded\r\n")) << messages.head;
  EXPECT_EQ(messages.text({"error", "type"}), "overloaded_error");
  const Answer chat = post(chat_body(""));
  EXPECT_EQ(chat.status, 503);
  for (const Answer& answer : {messages, chat}) {
    EXPECT_NE(answer.head.find("\r\nRetry-After: 1\r\n"), std::string::npos) << answer.head;
  }
}

TEST_F(ProtocolsTest, TokensOfAMessageAreCounted) {
  const Answer counted = post_to("/v1/messages/count_tokens", messages_body(""));
  answered("/v1/messages", messages_body(""), 1, "x");
  EXPECT_EQ(counted.text({"input_tokens"}), std::to_string(tokens_.wait_for_request(1).prompt_ids.size()));
}

// ---- Responses ----

TEST_F(ProtocolsTest, B43_AResponseIsStoredContinuedListedAndDeleted) {
  const Answer first = answered("/v1/responses", responses_body(R"("input":"one")"), 1, "first answer");
  EXPECT_EQ(first.text({"status"}), "completed");
  EXPECT_EQ(first.text({"output", "0", "content", "0", "text"}), "first answer");
  const std::string id = first.text({"id"});
  EXPECT_TRUE(id.starts_with("resp_"));
  EXPECT_EQ(to_json(get("/v1/responses/" + id).body), to_json(first.body));
  EXPECT_EQ(get("/v1/responses/" + id + "/input_items").text({"data", "0", "content", "0", "text"}), "one");

  const Answer second =
      answered("/v1/responses", responses_body(R"("input":"two","previous_response_id":")" + id + "\""), 2,
               "second answer");
  EXPECT_EQ(prompt_of(2),
            "<｜begin▁of▁sentence｜><｜User｜>one<｜Assistant｜></think>first "
            "answer<｜end▁of▁sentence｜><｜User｜>two<｜Assistant｜></think>");
  EXPECT_EQ(second.text({"previous_response_id"}), id);

  client_->send("DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(read_answer(*client_).text({"deleted"}), "true");
  EXPECT_EQ(get("/v1/responses/" + id).status, 404);
  const Answer lost =
      post_to("/v1/responses", responses_body(R"("input":"x","previous_response_id":")" + id + "\""));
  EXPECT_EQ(lost.status, 404);
  EXPECT_EQ(lost.text({"error", "code"}), "previous_response_not_found");
}

TEST_F(ProtocolsTest, AnItemCanBeReferredTo) {
  const Answer first = answered("/v1/responses", responses_body(R"("input":"one")"), 1, "first");
  const std::string item = first.text({"output", "0", "id"});
  answered("/v1/responses",
           responses_body(R"("input":[{"role":"user","content":"one"},{"type":"item_reference","id":")" +
                          item + R"("},{"role":"user","content":"two"}])"),
           2, "second");
  EXPECT_NE(prompt_of(2).find("</think>first<"), std::string::npos);
  EXPECT_EQ(
      post_to("/v1/responses", responses_body(R"("input":[{"type":"item_reference","id":"msg_resp_1_0"}])"))
          .status,
      400);
}

TEST_F(ProtocolsTest, WhatIsNotToBeStoredIsNot) {
  const Answer answer = answered("/v1/responses", responses_body(R"("input":"one","store":false)"), 1, "x");
  EXPECT_EQ(answer.text({"store"}), "false");
  EXPECT_EQ(get("/v1/responses/" + answer.text({"id"})).status, 404);
}

TEST_F(ProtocolsTest, SealedReasoningComesBack) {
  const std::string call =
      R"("tools":[{"type":"function","name":"add"}],"include":["reasoning.encrypted_content"])";
  const Answer first =
      answered("/v1/responses", R"({"model":"mini","input":"one","store":false,)" + call + "}", 1,
               "secret</think>said");
  const std::string sealed = first.text({"output", "0", "encrypted_content"});
  ASSERT_GT(sealed.size(), 20u);
  answered("/v1/responses",
           R"({"model":"mini","input":[{"role":"user","content":"one"},{"type":"reasoning","summary":[],)"
           R"("encrypted_content":")" +
               sealed + R"("},{"role":"assistant","content":"said"},{"role":"user","content":"two"}],)" +
               call + "}",
           2, "x");
  EXPECT_NE(prompt_of(2).find("<think>secret</think>said"), std::string::npos);
}

TEST_F(ProtocolsTest, AStreamOfAResponseEndsWithTheWholeOfIt) {
  const std::string stream = streamed(
      "/v1/responses",
      responses_body(R"("input":"one","stream":true,"tools":[{"type":"function","name":"add"}])"), 1, kCall);
  EXPECT_NE(stream.find("event: response.created"), std::string::npos);
  EXPECT_NE(stream.find(R"("name":"add","arguments":"{\"a\": 1}")"), std::string::npos) << stream;
  EXPECT_NE(stream.find("event: response.completed"), std::string::npos);
}

TEST_F(ProtocolsTest, ABackgroundResponseRunsOnItsOwnAndCanBeCancelled) {
  const Answer begun = post_to("/v1/responses", responses_body(R"("input":"one","background":true)"));
  EXPECT_EQ(begun.text({"status"}), "queued");
  const std::string path = "/v1/responses/" + begun.text({"id"});
  tokens_.wait_for_request(1);
  tokens_.emit(1, "done");
  tokens_.finish(1, FinishReason::kStop);
  const Answer seen = wait_for_status(path, "completed");
  EXPECT_EQ(seen.text({"output", "0", "content", "0", "text"}), "done");

  const Answer other = post_to("/v1/responses", responses_body(R"("input":"two","background":true)"));
  tokens_.wait_for_request(2);
  const std::string other_path = "/v1/responses/" + other.text({"id"});
  EXPECT_EQ(get(other_path).text({"status"}), "queued");
  tokens_.emit(2, "half of an answer");
  EXPECT_EQ(wait_for_status(other_path, "in_progress").text({"background"}), "true");
  const Answer cancelled = post_to(other_path + "/cancel", "");
  EXPECT_EQ(cancelled.text({"status"}), "cancelled");
  EXPECT_EQ(cancelled.text({"error"}), "null");
  EXPECT_EQ(cancelled.text({"output", "0", "content", "0", "text"}), "half of an answer");
  EXPECT_TRUE(tokens_.was_cancelled(2));
  EXPECT_EQ(to_json(get(other_path).body), to_json(cancelled.body));
  EXPECT_EQ(post_to(other_path + "/cancel", "").text({"status"}), "cancelled");
  EXPECT_EQ(post_to(path + "/cancel", "").text({"status"}), "completed");
}

TEST_F(ProtocolsTest, ADeletedResponseThatRunsStaysAway) {
  const Answer begun = post_to("/v1/responses", responses_body(R"("input":"one","background":true)"));
  const std::string path = "/v1/responses/" + begun.text({"id"});
  tokens_.wait_for_request(1);
  tokens_.emit(1, "done");
  client_->send("DELETE " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(read_answer(*client_).text({"deleted"}), "true");
  tokens_.wait_for_cancel(1);
  EXPECT_EQ(get(path).status, 404);
  // One more round through the server's threads: the end has been written by then, if at all.
  answered("/v1/responses", responses_body(R"("input":"two")"), 2, "x");
  EXPECT_EQ(get(path).status, 404);
}

TEST_F(ProtocolsTest, AResponseWhoseClientLeavesIsCancelled) {
  client_->send(http_post("/v1/responses", responses_body(R"("input":"one","stream":true)")));
  const std::string head = client_->read_until("response.in_progress");
  const size_t id = head.find("resp_");
  ASSERT_NE(id, std::string::npos);
  const std::string path = "/v1/responses/" + head.substr(id, head.find('"', id) - id);
  tokens_.wait_for_request(1);
  tokens_.emit(1, "x");
  client_->read_until("output_text.delta");
  client_ = std::make_unique<TestClient>(gateway_->port());
  tokens_.wait_for_cancel(1);
  const Answer left = wait_for_status(path, "cancelled");
  EXPECT_EQ(left.text({"output", "0", "content", "0", "text"}), "x");
}

TEST_F(ProtocolsTest, AStreamThatIsCancelledByAnotherRequestEnds) {
  client_->send(http_post("/v1/responses", responses_body(R"("input":"one","stream":true)")));
  const std::string head = client_->read_until("response.in_progress");
  const std::string id = head.substr(head.find("resp_"), head.find('"', head.find("resp_")) - head.find("resp_"));
  tokens_.wait_for_request(1);
  TestClient other(gateway_->port());
  other.send(http_post("/v1/responses/" + id + "/cancel", ""));
  EXPECT_EQ(read_answer(other).text({"status"}), "cancelled");
  const std::string rest = client_->read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("event: response.incomplete"), std::string::npos) << rest;
  EXPECT_NE(rest.find(R"("status":"cancelled")"), std::string::npos) << rest;
}

TEST_F(ProtocolsTest, AResponseOfAServerThatDiedHasFailed) {
  const std::string path = testing::TempDir() + "protocols_test.sqlite", copy = path + "-copy";
  for (const char* suffix : {"", "-wal", "-shm"}) {
    for (const std::string& file : {path, copy}) std::filesystem::remove(file + suffix);
  }
  GatewayOptions options;
  options.response_store_path = path;
  start(options);
  const Answer begun = post_to("/v1/responses", responses_body(R"("input":"one","background":true)"));
  for (const char* suffix : {"", "-wal"}) std::filesystem::copy(path + suffix, copy + suffix);  // as a crash leaves it
  options.response_store_path = copy;
  start(options);
  const Answer found = get("/v1/responses/" + begun.text({"id"}));
  EXPECT_EQ(found.text({"status"}), "failed");
  EXPECT_EQ(found.text({"error", "code"}), "server_overloaded");
}

TEST_F(ProtocolsTest, AResponseThatIsTooLargeToStoreSaysSo) {
  GatewayOptions options;
  options.max_response_bytes_per_key = 3000;
  start(options);
  const Answer small = answered("/v1/responses", responses_body(R"("input":"one")"), 1, "x");
  EXPECT_EQ(small.text({"store"}), "true");
  // It fits when it begins and not when it ends.
  const Answer grown = answered("/v1/responses", responses_body(R"("input":"one")"), 2, std::string(3000, 'x'));
  EXPECT_EQ(grown.text({"store"}), "false");
  EXPECT_EQ(get("/v1/responses/" + grown.text({"id"})).status, 404);
  const std::string long_input = R"("input":")" + std::string(3000, 'x') + '"';
  const Answer large = answered("/v1/responses", responses_body(long_input), 3, "x");
  EXPECT_EQ(large.text({"store"}), "false");
  EXPECT_EQ(get("/v1/responses/" + large.text({"id"})).status, 404);
  const Answer background = post_to("/v1/responses", responses_body(long_input + R"(,"background":true)"));
  EXPECT_EQ(background.status, 400);
}

TEST_F(ProtocolsTest, AFailedResponseSaysSoInItsStream) {
  client_->send(http_post("/v1/responses", responses_body(R"("input":"one","stream":true)")));
  tokens_.wait_for_request(1);
  tokens_.finish(1, FinishReason::kError, Error(Code::kInternal, "a logit is not finite"));
  const std::string stream = client_->read_until("0\r\n\r\n");
  EXPECT_NE(stream.find("event: response.failed"), std::string::npos);
  EXPECT_NE(stream.find("a logit is not finite"), std::string::npos);
}

// ---- Completions and inspection ----

TEST_F(ProtocolsTest, ACompletionContinuesPlainText) {
  const Answer answer =
      answered("/beta/completions", R"({"model":"mini","prompt":"<think>a","max_tokens":9})", 1, "bc",
               FinishReason::kLength);
  EXPECT_EQ(answer.text({"choices", "0", "text"}), "bc");
  EXPECT_EQ(answer.text({"choices", "0", "finish_reason"}), "length");
  const EngineRequest request = tokens_.wait_for_request(1);
  EXPECT_EQ(mini_tokenizer().decode(request.prompt_ids), "<｜begin▁of▁sentence｜><think>a");
  EXPECT_EQ(std::count(request.prompt_ids.begin(), request.prompt_ids.end(),
                       *mini_tokenizer().id_of_added("<think>")),
            0);
}

TEST_F(ProtocolsTest, SeveralPromptsAndAnswersAreChoices) {
  client_->send(http_post("/v1/completions", R"({"model":"mini","prompt":["a","b"],"n":2,"max_tokens":9})"));
  tokens_.wait_for_request(4);
  for (const uint64_t id : {4, 2, 1, 3}) {
    tokens_.emit(id, std::to_string(id));
    tokens_.finish(id, FinishReason::kStop);
  }
  const Answer answer = read_answer(*client_);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer.text({"choices", std::to_string(i), "text"}), std::to_string(i + 1));
  }
}

TEST_F(ProtocolsTest, SeveralChatAnswersCarryTheirLogprobs) {
  client_->send(http_post("/v1/chat/completions", chat_body(R"("n":2,"logprobs":true,"top_logprobs":1,)" +
                                                            std::string(kNoThinking))));
  tokens_.wait_for_request(2);
  EXPECT_EQ(tokens_.wait_for_request(1).n, 2);
  EXPECT_EQ(tokens_.wait_for_request(1).top_logprobs, 1);
  for (const uint64_t id : {2, 1}) {
    tokens_.emit(id, id == 1 ? "one" : "two");
    tokens_.finish(id, FinishReason::kStop);
  }
  const Answer answer = read_answer(*client_);
  EXPECT_EQ(answer.text({"choices", "0", "message", "content"}), "one");
  EXPECT_EQ(answer.text({"choices", "1", "message", "content"}), "two");
  std::string joined;
  for (size_t i = 0; i < mini_tokenizer().encode("one").size(); ++i) {
    joined += answer.text({"choices", "0", "logprobs", "content", std::to_string(i), "token"});
  }
  EXPECT_EQ(joined, "one");
}

TEST_F(ProtocolsTest, PromptsCanBeInspected) {
  const Answer rendered = post_to("/render", chat_body(kNoThinking));
  EXPECT_EQ(rendered.text({"prompt"}), "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>");
  const Answer chat = post_to("/tokenize", chat_body(kNoThinking));
  EXPECT_EQ(chat.text({"tokens"}), rendered.text({"tokens"}));
  const Answer plain = post_to("/tokenize", R"({"prompt":"hi","add_special_tokens":false})");
  EXPECT_EQ(post_to("/detokenize", R"({"tokens":)" + plain.text({"tokens"}) + "}").text({"prompt"}), "hi");
  EXPECT_EQ(post_to("/detokenize", R"({"tokens":[99999999]})").status, 400);
}

TEST_F(ProtocolsTest, FillingInTheMiddleNeedsItsTokens) {
  const Answer answer = post_to("/v1/completions", R"({"model":"mini","prompt":"a","suffix":"z"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.text({"error", "message"}).find("suffix"), std::string::npos);
}

// ---- Around the protocols ----

TEST_F(ProtocolsTest, AKeyIsAskedForWhereOneIsSet) {
  GatewayOptions options;
  options.api_key = "secret";
  start(options);
  for (const char* header : {"", "Authorization: Bearer wrong!\r\n", "x-api-key: secre\r\n"}) {
    client_->send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + std::string(header) + "\r\n");
    const Answer refused = read_answer(*client_);
    EXPECT_EQ(refused.status, 401) << header;
    EXPECT_EQ(refused.text({"error", "type"}), "authentication_error");
  }
  for (const char* header :
       {"Authorization: Bearer secret\r\n", "authorization: bearer secret\r\n", "X-Api-Key: secret\r\n"}) {
    client_->send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + std::string(header) + "\r\n");
    EXPECT_EQ(read_answer(*client_).status, 200) << header;
  }
  for (const char* path : {"/health", "/openapi.json"}) EXPECT_EQ(get(path).status, 200) << path;
}

TEST_F(ProtocolsTest, OtherOriginsAreAllowedOnRequest) {
  client_->send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a\r\n\r\n");
  EXPECT_EQ(client_->read_until("\r\n\r\n").find("Access-Control"), std::string::npos);
  GatewayOptions options;
  options.allow_origin = "https://a";
  start(options);
  client_->send(
      "OPTIONS /v1/messages HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a\r\nAccess-Control-Request-Headers: "
      "x-api-key\r\n\r\n");
  const std::string head = client_->read_until("\r\n\r\n");
  EXPECT_NE(head.find("204"), std::string::npos);
  EXPECT_NE(head.find("Access-Control-Allow-Origin: https://a\r\n"), std::string::npos);
  EXPECT_NE(head.find("Access-Control-Allow-Headers: x-api-key\r\n"), std::string::npos);
}

TEST_F(ProtocolsTest, AWholeAnswerThatIsLongInComingIsKeptAlive) {
  GatewayOptions options;
  options.keep_alive_interval = std::chrono::milliseconds(5);
  start(options);
  begin_chat(kNoThinking);
  tokens_.wait_for_request(1);
  client_->read_until("\r\n\r\n");
  EXPECT_NE(client_->read_until("1\r\n\n\r\n"), "");
  tokens_.emit(1, "late");
  tokens_.finish(1, FinishReason::kStop);
  EXPECT_NE(client_->read_until("0\r\n\r\n").find("\"content\":\"late\""), std::string::npos);
}

TEST_F(ProtocolsTest, ASlowReaderPausesItsAnswerAndGetsAllOfIt) {
  GatewayOptions options;
  options.max_unsent_bytes = 1000;
  start(options);
  begin_chat(std::string(R"("stream":true,)") + kNoThinking);
  tokens_.wait_for_request(1);
  constexpr int kBursts = 30;  // more than the buffers of both sockets take
  std::thread engine([this] {
    const std::string text(2000, 'x');
    for (int i = 0; i < kBursts; ++i) tokens_.emit(1, text);
    tokens_.finish(1, FinishReason::kStop);
  });
  tokens_.wait_for_pause(1);
  engine.join();
  const std::string stream = client_->read_until("[DONE]");
  EXPECT_EQ(joined_deltas(stream).content, std::string(2000 * kBursts, 'x'));
  tokens_.wait_for_resume(1);
}

TEST_F(ProtocolsTest, RequestsAreCounted) {
  answered("/v1/chat/completions", chat_body(kNoThinking), 1, "x");
  client_->send(http_get("/metrics"));
  const std::string head = client_->read_until("\r\n\r\n");
  EXPECT_NE(head.find("text/plain; version=0.0.4"), std::string::npos);
  const std::string text = client_->read_bytes(std::stoul(head.substr(head.find("Content-Length: ") + 16)));
  EXPECT_NE(text.find("deepinfer_requests_total{protocol=\"chat_completions\",status=\"done\"} 1\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("deepinfer_time_to_first_token_seconds_count 1\n"), std::string::npos);
}

TEST_F(ProtocolsTest, EveryRouteIsDescribedAndEveryDescriptionServed) {
  const JsonValue document = *parse_json(openapi_text());
  std::set<std::string> described;
  for (const JsonMember& path : *JsonRef(document)["paths"].value()->object()) {
    std::string pattern = path.key.starts_with("/v1/") ? path.key.substr(3) : path.key;
    if (const size_t name = pattern.find("{id}"); name != std::string::npos) pattern.replace(name, 4, "*");
    for (const JsonMember& method : *path.value.object()) {
      std::string upper = method.key;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) { return c & ~0x20; });
      described.insert(upper + " " + pattern);
    }
  }
  std::set<std::string> served;
  for (const Route& route : routes()) {
    if (!route.pattern.starts_with("/page."))
      served.insert(fmt::format("{} {}", route.method, route.pattern));
  }
  EXPECT_EQ(served, described);
}

// ---- Bad input: an answer for each, and the server goes on ----

TEST_F(ProtocolsTest, BadBodiesAreAnsweredWithTheirFaultInEveryProtocol) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  const std::string bodies[] = {
      "",
      "{",
      "null",
      "[]",
      "\"x\"",
      "{\"model\":\"mini\"}{}",
      "{\"model\":\"mini\",\"messages\":\"x\",\"input\":5,\"prompt\":{}}",
      "{\"model\":5,\"messages\":[],\"input\":[],\"prompt\":[]}",
      "{\"model\":\"mini\",\"messages\":" + deep + ",\"input\":" + deep + ",\"prompt\":" + deep + "}",
      "{\"model\":\"mini\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}],\"input\":\"\\ud800\","
      "\"prompt\":\"\\ud800\"}",
      std::string("{\"model\":\"mini\",\"x\":\"\0\"}", 24),
      "{\"model\":\"mini\",\"x\":\"\xff\"}",
  };
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens",
        "/v1/responses", "/tokenize", "/detokenize", "/render"}) {
    for (const std::string& body : bodies) {
      const Answer answer = post_to(path, body);
      EXPECT_EQ(answer.status, 400) << path << " " << body.substr(0, 80);
      EXPECT_GT(answer.text({"error", "message"}).size(), 10u) << path << " " << body.substr(0, 80);
    }
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(ProtocolsTest, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(
      post(R"({"model":"other","model":"mini","messages":[{"role":"user","content":"hi"}],"temperature":0,)"
           R"("temperature":9})")
          .text({"error", "message"}),
      "Invalid temperature value, the valid range of temperature is [0, 2]");
}

TEST_F(ProtocolsTest, B30_ControlSpellingsInTextAreText) {
  const std::string typed = "<｜User｜><think>｜DSML｜";
  answered("/v1/messages", messages_body(R"("system":")" + typed + "\"," + kNoThinking), 1, "x");
  answered("/v1/responses", responses_body(R"("input":")" + typed + "\""), 2, "x");
  for (const uint64_t id : {1, 2}) {
    const EngineRequest request = tokens_.wait_for_request(id);
    EXPECT_NE(mini_tokenizer().decode(request.prompt_ids).find(typed), std::string::npos);
    for (const char* token : {"<think>", "｜DSML｜"}) {
      const TokenId control = *mini_tokenizer().id_of_added(token);
      EXPECT_EQ(std::count(request.prompt_ids.begin(), request.prompt_ids.end(), control), 0) << id << token;
    }
  }
}

TEST_F(ProtocolsTest, B39_AnImageIsRefusedBecauseTheModelTakesText) {
  const std::string chat = chat_body(kNoThinking);
  const std::string url = "http://169.254.169.254/latest";
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/chat/completions",
       R"({"model":"mini","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" +
           url + R"("}}]}]})"},
      {"/v1/messages",
       R"({"model":"mini","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":")" +
           url + R"("}}]}]})"},
      {"/v1/responses",
       R"({"model":"mini","input":[{"role":"user","content":[{"type":"input_image","image_url":")" + url +
           R"("}]}]})"},
  };
  for (const auto& [path, body] : requests) {
    const Answer answer = post_to(path, body);
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_NE(answer.text({"error", "message"}).find("text only"), std::string::npos) << path;
  }
}

TEST_F(ProtocolsTest, B32_B33_ThinkingMayBeMissingOrUnsigned) {
  const std::string tool = R"("tools":[{"name":"add","input_schema":{"type":"object"}}])";
  const std::string calls[] = {
      R"({"type":"tool_use","id":"a","name":"add","input":{}})",
      R"({"type":"thinking","thinking":"t"},{"type":"tool_use","id":"a","name":"add","input":{}})"};
  uint64_t id = 0;
  for (const std::string& call : calls) {
    const Answer answer = answered(
        "/v1/messages",
        R"({"model":"mini","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)" +
            call +
            R"(]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}],)" +
            tool + "}",
        ++id, "</think>x");
    EXPECT_EQ(answer.status, 200);
  }
}

TEST_F(ProtocolsTest, B37_B42_ReasoningMayBeMissingFromChatHistory) {
  const Answer answer = answered(
      "/v1/chat/completions",
      R"({"model":"mini","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[)"
      R"({"id":"a","type":"function","function":{"name":"add","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a",)"
      R"("content":"1"}],"tools":[{"type":"function","function":{"name":"add"}}]})",
      1, "</think>x");
  EXPECT_EQ(answer.status, 200);
}

TEST_F(ProtocolsTest, B28_AnAnswerAfterAnAssistantMessageIsDefined) {
  const Answer open_call =
      post(R"({"model":"mini","messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[)"
           R"({"id":"a","type":"function","function":{"name":"add","arguments":"{}"}}]}]})");
  EXPECT_EQ(open_call.status, 400);
  const Answer answer =
      answered("/v1/chat/completions",
               R"({"model":"mini","thinking":{"type":"disabled"},"messages":[{"role":"user","content":"q"},)"
               R"({"role":"assistant","content":"one, ","prefix":true}]})",
               1, "two");
  EXPECT_EQ(answer.text({"choices", "0", "message", "content"}), "two");
  EXPECT_TRUE(prompt_of(1).ends_with("</think>one, "));
}

TEST_F(ProtocolsTest, B25_B44_AStreamSaysWhatAWholeAnswerSays) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"add"}}],)";
  const Answer whole =
      answered("/v1/chat/completions", chat_body(tools + kNoThinking), 1, std::string("Adding.") + kCall);
  const std::string stream =
      streamed("/v1/chat/completions", chat_body(R"("stream":true,)" + tools + kNoThinking), 2,
               std::string("Adding.") + kCall);
  const Deltas deltas = joined_deltas(stream);
  EXPECT_EQ(deltas.content, whole.text({"choices", "0", "message", "content"}));
  EXPECT_EQ(deltas.content, "Adding.");
  EXPECT_EQ(deltas.arguments,
            whole.text({"choices", "0", "message", "tool_calls", "0", "function", "arguments"}));
}

TEST_F(ProtocolsTest, B26_ACutCallShowsNoMarkup) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"add"}}],)";
  const std::string cut = std::string(kCall).substr(0, 90);
  const Answer answer =
      answered("/v1/chat/completions", chat_body(tools + kNoThinking), 1, cut, FinishReason::kLength);
  EXPECT_EQ(answer.text({"choices", "0", "finish_reason"}), "length");
  EXPECT_EQ(answer.text({"choices", "0", "message", "content"}).find("DSML"), std::string::npos);
}

TEST_F(ProtocolsTest, B38_ThinkingIsOnUnlessDisabled) {
  answered("/v1/chat/completions", chat_body(""), 1, "</think>x");
  EXPECT_TRUE(prompt_of(1).ends_with("<think>"));
  answered("/v1/chat/completions", chat_body(kNoThinking), 2, "x");
  EXPECT_TRUE(prompt_of(2).ends_with("</think>"));
}

TEST_F(ProtocolsTest, B35_ThinkingOfMessagesIsReasoningOfTheModelBothWays) {
  const std::string tool = R"("tools":[{"name":"add","input_schema":{"type":"object"}}])";
  const Answer answer = answered(
      "/v1/messages",
      R"({"model":"mini","max_tokens":9,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)"
      R"({"type":"thinking","thinking":"earlier","signature":"s"},{"type":"text","text":"said"}]},)"
      R"({"role":"user","content":"next"}],)" +
          tool + "}",
      1, "now</think>x");
  EXPECT_NE(prompt_of(1).find("<think>earlier</think>said"), std::string::npos);
  EXPECT_EQ(answer.text({"content", "0", "thinking"}), "now");
}

TEST_F(ProtocolsTest, B14_ACallOfTheHistoryMayLackItsArguments) {
  for (const char* arguments : {R"(,"arguments":null)", R"(,"arguments":"")", R"(,"arguments":"null")", ""}) {
    static uint64_t id = 0;
    const Answer answer = answered(
        "/v1/chat/completions",
        std::string(
            R"({"model":"mini","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[)"
            R"({"id":"a","type":"function","function":{"name":"add")") +
            arguments +
            R"(}}]},{"role":"tool","tool_call_id":"a","content":"1"}],"tools":[{"type":"function","function":{"name":"add"}}]})",
        ++id, "</think>x");
    EXPECT_EQ(answer.status, 200) << arguments;
    EXPECT_NE(prompt_of(id).find("invoke name=\"add\">\n\n</｜DSML｜ invoke>"), std::string::npos)
        << arguments;
  }
}

// ---- Reasoning that clients lose ----

constexpr char kAddTool[] = R"("tools":[{"type":"function","function":{"name":"add"}}])";

std::string history_with_call(const std::string& call_id, const std::string& more) {
  return R"({"model":"mini","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null)" +
         more + R"(,"tool_calls":[{"id":")" + call_id +
         R"(","type":"function","function":{"name":"add","arguments":"{}"}}]},{"role":"tool","tool_call_id":")" +
         call_id + R"(","content":"1"}],)" + kAddTool + "}";
}

TEST_F(ProtocolsTest, B37_ReasoningBeforeACallIsRestoredWhereTheClientLostIt) {
  const Answer first =
      answered("/v1/chat/completions", chat_body(kAddTool), 1, std::string("I add.</think>") + kCall);
  const std::string call_id = first.text({"choices", "0", "message", "tool_calls", "0", "id"});
  client_->send(http_post("/v1/chat/completions", history_with_call(call_id, "")));
  EXPECT_NE(prompt_of(2).find("<think>I add.</think>"), std::string::npos);
  tokens_.finish(2, FinishReason::kStop);
  EXPECT_NE(client_->read_until("\r\n\r\n").find("x-ds-reasoning-restored: 1\r\n"), std::string::npos);
}

TEST_F(ProtocolsTest, ReasoningThatTheClientSendsIsTaken) {
  const Answer first =
      answered("/v1/chat/completions", chat_body(kAddTool), 1, std::string("I add.</think>") + kCall);
  const std::string call_id = first.text({"choices", "0", "message", "tool_calls", "0", "id"});
  uint64_t id = 1;
  for (const auto& [sent, shown] :
       {std::pair<const char*, const char*>{R"(,"reasoning_content":"mine")", "mine"},
        {R"(,"reasoning_content":"")", ""},
        {R"(,"reasoning":"other")", "other"},
        {R"(,"reasoning_details":[{"type":"reasoning.text","text":"a"},{"text":"b"}])", "ab"}}) {
    answered("/v1/chat/completions", history_with_call(call_id, sent), ++id, "</think>x");
    EXPECT_NE(prompt_of(id).find(std::string("<think>") + shown + "</think>"), std::string::npos) << sent;
  }
}

// ---- Extensions ----

TEST_F(ProtocolsTest, ACallWithoutAResultIsAnErrorUnlessTheHistoryIsLenient) {
  const std::string messages =
      R"({"model":"mini","messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[)"
      R"({"id":"a","type":"function","function":{"name":"add","arguments":"{}"}},)"
      R"({"id":"b","type":"function","function":{"name":"add","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"b","content":"two"},{"role":"user","content":"go on"}])";
  EXPECT_EQ(post(messages + "}").status, 400);
  answered("/v1/chat/completions", messages + R"(,"lenient_history":true})", 1, "</think>x");
  EXPECT_NE(prompt_of(1).find("<tool_result></tool_result>\n\n<tool_result>two</tool_result>\n\ngo on"),
            std::string::npos);
}

TEST_F(ProtocolsTest, TheUsageOfAStreamCanComeInAChunkOfItsOwn) {
  const std::string stream =
      streamed("/v1/chat/completions",
               chat_body(R"("stream":true,"stream_options":{"include_usage":true,"usage_chunk":"openai"},)" +
                         std::string(kNoThinking)),
               1, "91");
  EXPECT_NE(stream.find(R"("finish_reason":"stop"}],"usage":null})"), std::string::npos);
  EXPECT_NE(stream.find(R"("choices":[],"usage":{"prompt_tokens")"), std::string::npos);
}

TEST_F(ProtocolsTest, AnEffortMayBeANumber) {
  answered("/v1/chat/completions", chat_body(R"("reasoning_effort":33)"), 1, "</think>x");
  answered("/v1/responses", R"({"model":"mini","input":"hi","reasoning":{"effort":33}})", 2, "</think>x");
  answered("/v1/messages", messages_body(R"("output_config":{"effort":33})"), 3, "</think>x");
  for (const uint64_t id : {1, 2, 3}) {
    EXPECT_NE(prompt_of(id).find("Reasoning Effort: 33 (range"), std::string::npos) << id;
  }
  for (const char* wrong : {"0", "101", "1.5"}) {
    EXPECT_EQ(post(chat_body(std::string(R"("reasoning_effort":)") + wrong)).status, 400) << wrong;
  }
}

TEST_F(ProtocolsTest, ATruncatedInputLosesItsOldestTurns) {
  tokens_.context_tokens = 120;
  std::string input;
  for (int turn = 0; turn < 20; ++turn) {
    input += fmt::format(
        R"({{"role":"user","content":"question {0} is long"}},{{"role":"assistant","content":"answer {0}"}},)",
        turn);
  }
  const std::string body =
      R"("instructions":"Be brief.","input":[)" + input + R"({"role":"user","content":"the last"}])";
  const Answer refused = post_to("/v1/responses", responses_body(body));
  EXPECT_EQ(refused.text({"error", "code"}), "context_length_exceeded");
  const Answer answer = answered("/v1/responses", responses_body(body + R"(,"truncation":"auto")"), 1, "x");
  EXPECT_EQ(answer.status, 200);
  const std::string prompt = prompt_of(1);
  EXPECT_NE(prompt.find("Be brief."), std::string::npos);
  EXPECT_EQ(prompt.find("question 0 "), std::string::npos);
  EXPECT_NE(prompt.find("question 19 "), std::string::npos);
  EXPECT_NE(prompt.find("the last"), std::string::npos);
  EXPECT_LE(tokens_.wait_for_request(1).prompt_ids.size(), 90u);
}

TEST_F(ProtocolsTest, ASummaryOfReasoningIsGivenWhereItIsAskedFor) {
  const std::string body = R"({"model":"mini","input":"hi","reasoning":{"summary":"auto"})";
  const Answer whole = answered("/v1/responses", body + "}", 1, "thought</think>x");
  EXPECT_EQ(whole.text({"output", "0", "summary", "0", "text"}), "thought");
  const std::string stream = streamed("/v1/responses", body + R"(,"stream":true})", 2, "thought</think>x");
  size_t at = 0;
  for (const char* type :
       {"reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
        "reasoning_summary_part.done", "output_item.done"}) {
    at = stream.find(std::string("event: response.") + type, at);
    EXPECT_NE(at, std::string::npos) << type;
  }
  const Answer plain = answered("/v1/responses", R"({"model":"mini","input":"hi"})", 3, "thought</think>x");
  EXPECT_EQ(plain.text({"output", "0", "summary"}), "[]");
}

TEST_F(ProtocolsTest, ADocumentOfTextIsShown) {
  answered(
      "/v1/messages",
      R"({"model":"mini","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":)"
      R"({"type":"text","media_type":"text/plain","data":"the text"}},{"type":"text","text":"q"}]}]})",
      1, "</think>x");
  EXPECT_NE(prompt_of(1).find("the text\n\nq"), std::string::npos);
}

TEST_F(ProtocolsTest, AnImageIsRefusedWithItsPlaceAndWithoutALookAtIt) {
  const std::string data = "data:image/png;base64,iVBORw0KGgo=";
  const Answer answer = post(
      R"({"model":"mini","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},)"
      R"({"type":"image_url","image_url":{"url":")" +
      data + R"("}}]}]})");
  EXPECT_EQ(answer.text({"error", "code"}), "unsupported_parameter");
  EXPECT_TRUE(
      answer.text({"error", "message"}).starts_with("messages[1].content[1]: this model takes text only"));
  for (const char* path : {"/render", "/tokenize"}) {
    EXPECT_EQ(
        post_to(
            path,
            R"({"model":"mini","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" +
                data + R"("}}]}]})")
            .status,
        400)
        << path;
  }
}

}  // namespace
}  // namespace deepinfer
