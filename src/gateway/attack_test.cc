// What pages, strangers and greedy clients can do.
#include <gtest/gtest.h>

#include <set>

#include "gateway/fair_share.h"
#include "gateway/gateway_test_support.h"
#include "gateway/metric_names.h"

namespace deepinfer {
namespace {

class AttackTest : public GatewayTest {
 protected:
  // The status of a request with these header lines.
  int asked(const std::string& method, const std::string& path, const std::string& headers,
            const std::string& body = "") {
    TestClient client(gateway_->port());
    client.send(method + " " + path + " HTTP/1.1\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    last_ = client.read_until("\r\n\r\n");
    return last_.size() < 12 ? 0 : std::stoi(last_.substr(9, 3));
  }
  std::string own_host() const { return "127.0.0.1:" + std::to_string(gateway_->port()); }

  std::string last_;  // the head of the last answer
};

// ---- Web pages ----

TEST_F(AttackTest, APageThatGaveItsNameOurAddressReadsNothing) {
  for (const char* path : {"/", "/health", "/v1/models", "/metrics", "/status", "/openapi.json"}) {
    EXPECT_EQ(asked("GET", path, "Host: evil.example\r\n"), 403) << path;
    EXPECT_EQ(asked("GET", path, "Host: evil.example:8000\r\n"), 403) << path;
  }
  EXPECT_EQ(asked("GET", "http://evil.example/v1/models", "Host: localhost\r\n"), 403);  // the target says more
  for (const char* host :
       {"localhost", "LOCALHOST:1", "localhost.", "a.localhost", "127.0.0.1", "[::1]:8000", "10.1.2.3:80", ""}) {
    EXPECT_EQ(asked("GET", "/v1/models", std::string("Host: ") + host + "\r\n"), 200) << host;
  }
  for (const char* host : {"localhost.evil.example", "evillocalhost", "127.0.0.1.evil.example", "[::1", "1.2.3"}) {
    EXPECT_EQ(asked("GET", "/v1/models", std::string("Host: ") + host + "\r\n"), 403) << host;
  }
  GatewayOptions options;
  options.allow_hosts = {"box.example"};
  start(options);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: Box.example:8000\r\n"), 200);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: evil.example\r\n"), 403);
  options.allow_hosts = {"*"};
  start(options);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: evil.example\r\n"), 200);
  options = {};
  options.api_key = "k";  // which the page does not have
  start(options);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: box.example\r\nx-api-key: k\r\n"), 200);
}

TEST_F(AttackTest, AnotherPageCanNotAsk) {
  const std::string body = R"({"prompt":"hi"})";
  for (const char* origin : {"http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"}) {
    for (const char* type : {"text/plain", "application/json"}) {
      EXPECT_EQ(asked("POST", "/tokenize",
                      "Host: " + own_host() + "\r\nOrigin: " + origin + "\r\nContent-Type: " + type + "\r\n", body),
                403)
          << origin << " " << type;
    }
  }
  EXPECT_EQ(asked("OPTIONS", "/tokenize", "Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
  EXPECT_EQ(last_.find("Access-Control-Allow-Origin"), std::string::npos);
}

TEST_F(AttackTest, OurPageAndPlainClientsCanAsk) {
  const std::string body = R"({"prompt":"hi"})";
  const std::string own = "Host: " + own_host() + "\r\nOrigin: http://" + own_host() + "\r\n";
  EXPECT_EQ(asked("POST", "/tokenize", own + "Content-Type: application/json\r\n", body), 200);
  EXPECT_EQ(asked("POST", "/tokenize", own + "Content-Type: text/plain;charset=UTF-8\r\n", body), 415);
  EXPECT_EQ(asked("POST", "/tokenize", own, body), 415);
  EXPECT_EQ(asked("POST", "/tokenize", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", body), 415);
  // As `curl -d` says it.
  EXPECT_EQ(asked("POST", "/tokenize", "Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n", body),
            200);
}

TEST_F(AttackTest, PagesThatAreAllowedCanAskAndOthersCanNot) {
  GatewayOptions options;
  options.allow_origin = "https://pages.example";
  start(options);
  EXPECT_EQ(asked("OPTIONS", "/tokenize", "Host: localhost\r\nOrigin: https://pages.example\r\n"), 204);
  EXPECT_NE(last_.find("Access-Control-Allow-Origin: https://pages.example\r\n"), std::string::npos);
  EXPECT_EQ(asked("GET", "/v1/none", "Host: localhost\r\nOrigin: https://pages.example\r\n"), 404);
  EXPECT_NE(last_.find("Access-Control-Allow-Origin: https://pages.example\r\n"), std::string::npos);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: localhost\r\nOrigin: https://evil.example\r\n"), 403);
  options.allow_origin = "*";
  start(options);
  EXPECT_EQ(asked("GET", "/v1/models", "Host: localhost\r\nOrigin: https://evil.example\r\n"), 200);
  EXPECT_NE(last_.find("Access-Control-Allow-Origin: *\r\n"), std::string::npos);
}

TEST_F(AttackTest, WithoutTheKeyNoBodyIsRead) {
  GatewayOptions options;
  options.api_key = "secret";
  start(options);
  TestClient client(gateway_->port());
  client.send("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
  const Answer answer = read_answer(client);
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.text({"type"}), "error");  // in the protocol's shape
  EXPECT_TRUE(answer.text({"request_id"}).starts_with("req_"));
}

// ---- Clients that go half ----

TEST_F(AttackTest, AClientThatEndsItsSideWhileAGrammarIsCompiledGetsItsAnswer) {
  for (uint64_t id = 1; id <= 20; ++id) {
    TestClient client(gateway_->port());
    client.send(http_post("/v1/chat/completions",
                          chat_body(std::string(kNoThinking) + R"(,"structured_outputs":{"regex":"[a-z]{)" +
                                    std::to_string(id) + R"(}"})")));
    client.stop_sending();
    tokens_.wait_for_request(id);
    tokens_.emit(id, "x");
    tokens_.finish(id, FinishReason::kStop);
    EXPECT_NE(client.read_all().find(R"("content":"x")"), std::string::npos);
  }
}

// ---- Shares ----

TEST(FairShare, ThoseWithinTheirShareComeFirst) {
  FairShare share(32, 1024);
  const auto greedy = share.admit("1.1.1.1", 1, 128);
  ASSERT_TRUE(greedy.ok());
  EXPECT_EQ((*greedy)->priority(), 3);
  EXPECT_EQ((*share.admit("1.1.1.1", 2, 1))->priority(), 2);  // another program of the same machine
  EXPECT_EQ((*share.admit("2.2.2.2", 3, 16))->priority(), 1);
  EXPECT_EQ((*share.admit("2.2.2.2", 3, 17))->priority(), 3);
  EXPECT_EQ((*share.admit("2.2.2.2", 4, 1))->priority(), 1);  // what was given back does not count
}

TEST(FairShare, ATicketMayOutliveIt) {
  auto share = std::make_unique<FairShare>(32, 1024);
  auto ticket = share->admit("1.1.1.1", 1, 2);
  ASSERT_TRUE(ticket.ok());
  share.reset();
  EXPECT_EQ((*ticket)->priority(), 1);  // the end of the ticket touches nothing that is gone
}

TEST(FairShare, NobodyTakesAllPlaces) {
  FairShare share(24, 1000);  // 1,024 places
  std::vector<std::shared_ptr<FairShare::Ticket>> held;
  const auto ask = [&](const char* client, uint64_t connection, int64_t answers) {
    auto ticket = share.admit(client, connection, answers);
    if (ticket.ok()) held.push_back(*ticket);
    return ticket.ok();
  };
  EXPECT_TRUE(ask("a", 1, 128));
  EXPECT_TRUE(ask("a", 1, 128));
  EXPECT_FALSE(ask("a", 1, 1));  // a quarter is held by the connection
  EXPECT_TRUE(ask("a", 2, 256));
  EXPECT_FALSE(ask("a", 3, 128));  // a half by the client
  EXPECT_TRUE(ask("a", 4, 1));     // of another program there
  EXPECT_FALSE(ask("a", 4, 1));
  EXPECT_TRUE(ask("b", 5, 128));
  EXPECT_FALSE(ask("c", 6, 257));
  held.clear();
  EXPECT_TRUE(ask("a", 1, 256));
}

TEST_F(AttackTest, GreedyRequestsGiveWayAndAreRefusedInTheEnd) {
  GatewayOptions options;
  options.running_answers = 8;
  options.waiting_answers = 504;
  start(options);
  std::vector<std::unique_ptr<TestClient>> greedy;
  uint64_t next = 1;
  for (int i = 0; i < 2; ++i, next += 128) {
    greedy.push_back(std::make_unique<TestClient>(gateway_->port()));
    greedy.back()->send(http_post("/v1/chat/completions", chat_body(R"("n":128,"max_tokens":2000)")));
    EXPECT_EQ(tokens_.wait_for_request(next).priority, 3);
  }
  const Answer third = post(chat_body(R"("n":128,"max_tokens":2000)"));
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(third.text({"error", "type"}), "rate_limit_error");
  begin_chat(kNoThinking);  // an honest one from the same address
  EXPECT_EQ(tokens_.wait_for_request(next).priority, 2);
  tokens_.finish(next, FinishReason::kStop);
  EXPECT_EQ(read_answer(*client_).status, 200);
  for (const auto& client : greedy) client->close_now();
  for (uint64_t id = 1; id < next; ++id) tokens_.finish(id, FinishReason::kStop);
  // Everything is given back, each on the thread of its connection.
  int32_t priority = 2;
  for (uint64_t id = next + 1; priority != 1 && id < next + 200; ++id) {
    begin_chat(kNoThinking);
    priority = tokens_.wait_for_request(id).priority;
    tokens_.finish(id, FinishReason::kStop);
    EXPECT_EQ(read_answer(*client_).status, 200);
  }
  EXPECT_EQ(priority, 1);
}

// ---- What is counted ----

TEST_F(AttackTest, EveryMetricSaysWhatItIs) {
  get("/v1/none");
  post("{");
  TestClient junk(gateway_->port());
  junk.send("junk\r\n\r\n");
  junk.read_all();
  client_->send(http_get("/metrics"));
  const std::string head = client_->read_until("\r\n\r\n");
  const std::string text = client_->read_bytes(std::stoul(head.substr(head.find("Content-Length: ") + 16)));
  std::set<std::string> helped, typed, counters;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::string name = line.starts_with("# ") ? line.substr(7, line.find(' ', 7) - 7) : "";
    if (line.starts_with("# HELP ")) {
      EXPECT_GT(line.size(), name.size() + 10) << line;
      helped.insert(name);
    }
    if (line.starts_with("# TYPE ")) typed.insert(name);
    if (line.ends_with(" counter")) counters.insert(name);
  }
  EXPECT_EQ(helped, typed);
  for (const char* name : {"deepinfer_engine_steps", "deepinfer_engine_hit_tokens", "deepinfer_grammar_compiled"}) {
    EXPECT_EQ(counters.count(name), 1u) << name;
  }
  for (const char* name :
       {"deepinfer_engine_running", "deepinfer_engine_blocks_free", "deepinfer_grammar_cached_bytes"}) {
    EXPECT_EQ(counters.count(name), 0u) << name;
    EXPECT_EQ(typed.count(name), 1u) << name;
  }
  EXPECT_NE(text.find("deepinfer_http_answers_total{status=\"404\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("deepinfer_http_answers_total{status=\"400\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("deepinfer_requests_total{protocol=\"chat_completions\",status=\"refused\"} 1\n"),
            std::string::npos);
}

TEST_F(AttackTest, AStreamTellsProxiesNotToWait) {
  begin_chat(std::string(R"("stream":true,)") + kNoThinking);
  tokens_.wait_for_request(1);
  EXPECT_NE(client_->read_until("\r\n\r\n").find("X-Accel-Buffering: no\r\n"), std::string::npos);
  tokens_.finish(1, FinishReason::kStop);
  client_->read_until("[DONE]");
}

TEST(BodyLimit, FollowsTheContext) {
  EXPECT_EQ(body_limit(8192), size_t{8} << 20);
  EXPECT_EQ(body_limit(131072), size_t{16} << 20);
  EXPECT_EQ(body_limit(1 << 20), size_t{64} << 20);
  EXPECT_EQ(body_limit(INT64_MAX), size_t{64} << 20);
}

}  // namespace
}  // namespace deepinfer
