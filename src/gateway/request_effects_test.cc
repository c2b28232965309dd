// What fields of a request become where the engine is asked, on every path.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <set>

#include "gateway/gateway_test_support.h"

namespace deepinfer {
namespace {

const std::pair<const char*, std::string> kPaths[] = {
    {"/v1/chat/completions", R"({"model":"mini","messages":[{"role":"user","content":"hi"}])"},
    {"/v1/responses", R"({"model":"mini","input":"hi","store":false)"},
    {"/v1/messages", R"({"model":"mini","messages":[{"role":"user","content":"hi"}])"},
    {"/v1/completions", R"({"model":"mini","prompt":"hi")"},
};

class RequestEffects : public GatewayTest {
 protected:
  // What the engine was asked for.
  EngineRequest asked(const std::string& path, const std::string& body) {
    client_->send(http_post(path, body));
    const EngineRequest request = tokens_.wait_for_request(++last_id_);
    tokens_.finish(last_id_, FinishReason::kStop);
    EXPECT_EQ(read_answer(*client_).status, 200) << body;
    return request;
  }
  // Ids that may come next.
  static std::vector<int32_t> allowed(ConstraintState& state) {
    const int64_t vocab = mini_tokenizer().vocab_size();
    std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab)));
    std::vector<int32_t> ids;
    const bool restricts = state.fill_mask(mask);
    for (int32_t id = 0; id < vocab; ++id) {
      if (!restricts || (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    return ids;
  }
  static bool has(const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  uint64_t last_id_ = 0;
};

TEST_F(RequestEffects, StopIdsEndAnAnswerAndPenaltiesReachTheEngine) {
  for (const auto& [path, body] : kPaths) {
    const EngineRequest plain = asked(path, body + "}");
    EXPECT_EQ(plain.constraint, nullptr);
    EXPECT_EQ(plain.sampling.repetition_penalty, 1);
    const EngineRequest request = asked(path, body + R"(,"stop_token_ids":[300,301],"repetition_penalty":1.5})");
    EXPECT_EQ(request.stop_ids.size(), plain.stop_ids.size() + 2);
    EXPECT_TRUE(has(request.stop_ids, 300) && has(request.stop_ids, 301));
    EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  }
}

TEST_F(RequestEffects, AnAnswerDoesNotEndBeforeItsFewestTokens) {
  const int32_t end = *mini_tokenizer().id_of_added("<｜end▁of▁sentence｜>");
  for (const auto& [path, body] : kPaths) {
    const auto state = asked(path, body + R"(,"min_tokens":2,"stop_token_ids":[300]})").constraint->start();
    for (int i = 0; i < 2; ++i) {
      const std::vector<int32_t> ids = allowed(*state);
      EXPECT_FALSE(has(ids, end) || has(ids, 300)) << path;
      EXPECT_TRUE(has(ids, 301));
      ASSERT_TRUE(state->accept(301).ok());
    }
    EXPECT_TRUE(has(allowed(*state), end) && has(allowed(*state), 300)) << path;
    const auto endless = asked(path, body + R"(,"ignore_eos":true,"stop_token_ids":[300]})").constraint->start();
    EXPECT_FALSE(has(allowed(*endless), end)) << path;
    EXPECT_TRUE(has(allowed(*endless), 300)) << path;
    const auto few = asked(path, body + R"(,"allowed_token_ids":[5,300]})").constraint->start();
    EXPECT_EQ(allowed(*few), (std::vector<int32_t>{5, 300})) << path;
  }
}

TEST_F(RequestEffects, IdsThatTheModelLacksAreRefused) {
  const int64_t vocab = mini_tokenizer().vocab_size();
  for (const auto& [path, body] : kPaths) {
    for (const std::string& field :
         {fmt::format(R"("logit_bias":{{"{}":1}})", vocab), fmt::format(R"("stop_token_ids":[{}])", vocab),
          fmt::format(R"("allowed_token_ids":[1,{}])", vocab)}) {
      const Answer answer = post_to(path, body + "," + field + "}");
      EXPECT_EQ(answer.status, 400) << path << field;
      EXPECT_NE(
          answer.text({"error", "message"}).find(fmt::format("found token id {}, expected 0 to {}", vocab, vocab - 1)),
          std::string::npos);
    }
    EXPECT_EQ(asked(path, body + fmt::format(R"(,"logit_bias":{{"{}":1}}}})", vocab - 1)).sampling.logit_bias.size(),
              1u);
  }
}

// The cache is shared by equal users with equal salts of one key, and by nobody else.
TEST_F(RequestEffects, SaltsNarrowWhoSharesTheCache) {
  for (const auto& served : kPaths) {
    const std::string path = served.first, body = served.second;
    const bool messages = path == "/v1/messages";
    const auto salted = [&](const std::string& user, const std::string& salt) {
      const std::string who = messages ? R"("metadata":{"user_id":")" + user + "\"}" : R"("user_id":")" + user + '"';
      return asked(path, body + "," + who + R"(,"cache_salt":")" + salt + "\"}").cache_salt;
    };
    EXPECT_EQ(salted("", ""), "");
    EXPECT_EQ(salted("u", "s"), salted("u", "s"));
    std::set<std::string> all;
    for (const auto& [user, salt] :
         {std::pair("", ""), {"u", ""}, {"", "u"}, {"u", "s"}, {"us", ""}, {"", "us"}, {"1 u", ""}}) {
      EXPECT_TRUE(all.insert(salted(user, salt)).second) << path << user << salt;
    }
  }
}

TEST_F(RequestEffects, AKeyIsATenantOfTheCache) {
  std::set<std::string> tenants;
  for (const char* key : {"", "secret-a", "secret-b"}) {
    GatewayOptions options;
    options.api_key = key;
    start(options);
    const std::string body = R"({"model":"mini","prompt":"hi","cache_salt":"s","user_id":"u"})";
    client_->send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: {}\r\nContent-Length: {}\r\n\r\n{}", key,
                    body.size(), body));
    const EngineRequest request = tokens_.wait_for_request(++last_id_);
    tokens_.finish(last_id_, FinishReason::kStop);
    read_answer(*client_);
    EXPECT_TRUE(tenants.insert(request.tenant).second);
    EXPECT_EQ(request.tenant.find("secret"), std::string::npos);
  }
}

TEST_F(RequestEffects, AMaxTokensThatDoesNotFitIsABound) {
  tokens_.context_tokens = 100;
  for (const auto& [path, body] : kPaths) {
    const char* name = std::string(path) == "/v1/responses" ? "max_output_tokens" : "max_tokens";
    const EngineRequest request = asked(path, body + fmt::format(R"(,"{}":5000}})", name));
    EXPECT_EQ(request.max_tokens, 100 - std::ssize(request.prompt_ids)) << path;
  }
  GatewayOptions options;
  options.strict_max_tokens = true;
  start(options);
  for (const auto& [path, body] : kPaths) {
    const char* name = std::string(path) == "/v1/responses" ? "max_output_tokens" : "max_tokens";
    EXPECT_EQ(post_to(path, body + fmt::format(R"(,"{}":5000}})", name)).text({"error", "code"}),
              "context_length_exceeded");
  }
}

TEST_F(RequestEffects, APromptThatLeavesNoRoomIsRefused) {
  const EngineRequest request = asked("/v1/completions", R"({"model":"mini","prompt":"hi"})");
  tokens_.context_tokens = std::ssize(request.prompt_ids);
  const Answer answer = post_to("/v1/completions", R"({"model":"mini","prompt":"hi","max_tokens":5})");
  EXPECT_EQ(answer.text({"error", "code"}), "context_length_exceeded");
}

TEST_F(RequestEffects, EveryNameThatRequestsMayUseIsAModel) {
  for (const char* name : {"mini", "deepseek-flash", "deepseek-reasoner", "claude-opus-9"}) {
    const Answer answer = get(std::string("/v1/models/") + name);
    EXPECT_EQ(answer.status, 200) << name;
    EXPECT_EQ(answer.text({"id"}), name);
  }
  EXPECT_EQ(get("/v1/models/gpt-x").status, 404);
}

TEST_F(RequestEffects, TheTokensOfAResponseAreCounted) {
  const Answer counted = post_to("/v1/responses/input_tokens", R"({"model":"mini","input":"hi"})");
  EXPECT_EQ(counted.text({"object"}), "response.input_tokens");
  const EngineRequest request = asked("/v1/responses", R"({"model":"mini","input":"hi"})");
  EXPECT_EQ(counted.text({"input_tokens"}), std::to_string(request.prompt_ids.size()));
  const Answer compact = post_to("/v1/responses/compact", R"({"model":"mini","input":"hi"})");
  EXPECT_EQ(compact.status, 400);
  EXPECT_EQ(compact.text({"error", "code"}), "unsupported_parameter");
  EXPECT_EQ(get("/v1/responses/resp_1?stream=true").text({"error", "code"}), "unsupported_parameter");
}

TEST_F(RequestEffects, AResponseThatRunsWhenTheServerStopsHasFailed) {
  const std::string path = testing::TempDir() + "request_effects_stop_test.sqlite";
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  GatewayOptions options;
  options.response_store_path = path;
  start(options);
  const Answer begun = post_to("/v1/responses", R"({"model":"mini","input":"hi","background":true})");
  tokens_.wait_for_request(1);
  tokens_.emit(1, "half");
  EXPECT_TRUE(gateway_->stop(std::chrono::seconds(30)));
  start(options);
  const Answer found = get("/v1/responses/" + begun.text({"id"}));
  EXPECT_EQ(found.text({"status"}), "failed");
  EXPECT_EQ(found.text({"error", "code"}), "server_overloaded");
}

// As on a full disk: the store's file takes nothing new, or nothing more.
TEST_F(RequestEffects, AResponseThatCanNotBeStoredSaysSo) {
  const std::string path = testing::TempDir() + "request_effects_test.sqlite";
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  GatewayOptions options;
  options.response_store_path = path;
  start(options);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  const auto run = [&](const std::string& sql) {
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(database);
  };
  const auto respond = [&] {
    client_->send(http_post("/v1/responses", R"({"model":"mini","input":"hi","reasoning":{"effort":"none"}})"));
    tokens_.wait_for_request(++last_id_);
    tokens_.emit(last_id_, "x");
    tokens_.finish(last_id_, FinishReason::kStop);
    return read_answer(*client_);
  };
  for (const char* change : {"INSERT", "UPDATE"}) {
    run(fmt::format("CREATE TRIGGER full BEFORE {} ON responses BEGIN SELECT RAISE(ABORT, 'disk full'); END", change));
    const Answer answer = respond();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.text({"store"}), "false") << change;
    EXPECT_EQ(get("/v1/responses/" + answer.text({"id"})).status, 404) << change;
    if (std::string_view(change) == "INSERT") {
      EXPECT_EQ(post_to("/v1/responses", R"({"model":"mini","input":"hi","background":true})").status, 503);
    }
    run("DROP TRIGGER full");
    const Answer stored = respond();
    EXPECT_EQ(stored.text({"store"}), "true");
    EXPECT_EQ(to_json(get("/v1/responses/" + stored.text({"id"})).body), to_json(stored.body));
  }
  sqlite3_close(database);
}

TEST_F(RequestEffects, AByteOrderMarkBeforeTheBodyIsNoFault) {
  for (const auto& [path, body] : kPaths) asked(path, "\xef\xbb\xbf" + body + "}");
}

}  // namespace
}  // namespace deepinfer
