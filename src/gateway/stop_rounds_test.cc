// Starting, asking and stopping, many times over: no round may wait for anything. STOP_ROUNDS says how many.
#include <cstdlib>
#include <random>
#include <thread>

#include "gateway/gateway_test_support.h"

namespace deepinfer {
namespace {

// Answers every request with one token and the end, on a thread of its own, as an engine does. Those that begin in the
// background it leaves running.
class Answering {
 public:
  explicit Answering(ScriptedTokens& tokens)
      : thread_([&tokens](std::stop_token stop) {
          for (uint64_t id = 1; !stop.stop_requested(); ++id) {
            const EngineRequest request = tokens.wait_for_request(id);
            if (request.max_tokens == kForEver) continue;
            tokens.emit(id, "x");
            tokens.finish(id, FinishReason::kStop);
          }
        }) {}
  // One more request lets the thread see that it is to stop.
  void stop(ScriptedTokens& tokens) {
    thread_.request_stop();
    EngineRequest last;
    last.max_tokens = kForEver;
    (void)tokens.submit(std::move(last), [](const EngineEvent&) {});
    thread_.join();
  }
  static constexpr int64_t kForEver = 77;

 private:
  std::jthread thread_;
};

class StopRounds : public GatewayTest {
 protected:
  void SetUp() override {}

  // What clients may be doing when the signal comes.
  void ask(unsigned kind) {
    switch (kind) {
      case 0:  // answered, and the client stays
        EXPECT_EQ(post(chat_body(kNoThinking)).status, 200);
        return;
      case 1:  // answered, and the client leaves as the server stops
        EXPECT_EQ(post(chat_body(kNoThinking)).status, 200);
        return client_->close_now();
      case 2:
        begin_chat(std::string(R"("stream":true,)") + kNoThinking);
        EXPECT_NE(client_->read_until("data: [DONE]\n\n"), "");
        return client_->close_now();
      case 3:  // left in the middle
        return begin_chat(R"("stream":true)");
      default:  // runs in the background, without a client
        EXPECT_EQ(post_to("/v1/responses", R"({"model":"mini","input":"hi","background":true,"max_output_tokens":77})")
                      .status,
                  200);
        return client_->close_now();
    }
  }
};

TEST_F(StopRounds, AServerStopsWhateverItsClientsDid) {
  std::mt19937 random(20261201);
  std::vector<std::jthread> load;  // so that threads are interrupted anywhere
  for (int i = 0; i < 3; ++i) {
    load.emplace_back([](std::stop_token stop) {
      while (!stop.stop_requested()) {
      }
    });
  }
  Answering answering(tokens_);
  for (int round = 0; round < STOP_ROUNDS; ++round) {
    start({});
    const unsigned kind = random() % 5;
    ask(kind);
    ASSERT_TRUE(gateway_->stop(std::chrono::milliseconds(kPatienceMs))) << "round " << round << ", kind " << kind;
    gateway_.reset();
  }
  answering.stop(tokens_);
}

}  // namespace
}  // namespace deepinfer
