// For tests of this room: the service over a real socket, with the tokenizer of the mini model and an engine
// whose tokens the test says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gateway/gateway.h"
#include "gateway/scripted_tokens.h"
#include "json/json.h"
#include "net/test_client.h"
#include "source_path.h"

namespace deepinfer {

inline const Tokenizer& mini_tokenizer() {
  static const Result<Tokenizer> tokenizer = Tokenizer::load(source_path("models/mini/tokenizer.json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return *tokenizer;
}

inline constexpr char kNoThinking[] = R"("thinking":{"type":"disabled"})";

inline std::string chat_body(const std::string& more) {
  return R"({"model":"mini","messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) +
         "}";
}

inline std::string http_post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

inline std::string http_get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

struct Answer {
  int status = 0;
  std::string head;  // status line and headers
  JsonValue body;

  std::string text(const std::vector<std::string>& path) const {
    JsonRef at(body);
    for (const std::string& key : path)
      at = key.find_first_not_of("0123456789") == std::string::npos ? at[std::stoul(key)] : at[key];
    return at.present() ? at.string().ok() ? *at.string() : to_json(*at.value()) : "absent";
  }
};

class GatewayTest : public testing::Test {
 protected:
  GatewayTest() : tokens_(mini_tokenizer()) {}

  void SetUp() override { start({}); }

  void start(GatewayOptions options) {
    client_.reset();
    gateway_.reset();
    options.served_model_name = "mini";
    options.system_fingerprint = "fp";
    auto gateway = Gateway::start(std::move(options),
                                  {tokens_, mini_tokenizer(), system_clock(), [this] { return ++random_; }});
    ASSERT_TRUE(gateway.ok()) << gateway.error().message();
    gateway_ = std::move(*gateway);
    client_ = std::make_unique<TestClient>(gateway_->port());
  }

  // Reads one whole answer with a Content-Length.
  static Answer read_answer(TestClient& client) {
    const std::string head = client.read_until("\r\n\r\n");
    Answer answer;
    if (head.size() < 12) return answer;
    answer.status = std::stoi(head.substr(9, 3));
    answer.head = head;
    const size_t length = head.find("Content-Length: ");
    const std::string body = client.read_bytes(std::stoul(head.substr(length + 16)));
    const Result<JsonValue> json = parse_json(body);
    if (json.ok()) answer.body = *json;
    return answer;
  }
  Answer get(const std::string& path) {
    client_->send(http_get(path));
    return read_answer(*client_);
  }
  Answer post(const std::string& body) { return post_to("/v1/chat/completions", body); }
  Answer post_to(const std::string& path, const std::string& body) {
    client_->send(http_post(path, body));
    return read_answer(*client_);
  }
  void begin_chat(const std::string& more) {
    client_->send(http_post("/v1/chat/completions", chat_body(more)));
  }

  std::atomic<uint64_t> random_{6};
  ScriptedTokens tokens_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<TestClient> client_;
};

}  // namespace deepinfer
