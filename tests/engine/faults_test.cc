// What may go wrong, and that it goes wrong for one request alone, with a clear error and nothing left behind.
#include <atomic>
#include <limits>
#include <thread>

#include "engine_support.h"

namespace deepinfer {
namespace {

// Makes a number of the next step's first row infinite at one layer, once.
class Planter : public ForwardObserver {
 public:
  std::atomic<int64_t> layer{-1};
  bool replaces() const override { return true; }
  void layer_input(int64_t at, std::span<Bf16> h, std::span<float>) override {
    int64_t wanted = at;
    if (layer.compare_exchange_strong(wanted, -1)) h[0] = to_bf16(std::numeric_limits<float>::infinity());
  }
};

class Turning : public Clock {  // turned by hand
 public:
  time_point now() const override { return start_ + std::chrono::milliseconds(ms_.load()); }
  std::chrono::system_clock::time_point wall_now() const override { return {}; }
  void turn(int64_t ms) { ms_ += ms; }

 private:
  const time_point start_ = std::chrono::steady_clock::now();
  std::atomic<int64_t> ms_{0};
};

class EngineFaultsTest : public testing::TestWithParam<int> {
 protected:
  void open(ModelOptions model_options, EngineOptions options = {}) {
    engine_.reset();
    auto model = load_model(model_directory("mini"), model_options);
    ASSERT_NE(model, nullptr);
    vocab_ = model->config().vocab_size;
    options.scheduling_depth = GetParam();
    options.speculation.fixed_drafts = GetParam() == 0 ? 0 : 2;  // this clock shows no costs to choose by
    options.observer = &planter_;
    options.clock = &clock_;
    engine_ = std::make_unique<Engine>(std::move(model), options, counters_);
  }
  static EngineRequest request(uint32_t seed, int64_t prompt, int64_t answer) {
    EngineRequest request;
    request.prompt_ids = random_ids(seed, prompt, 2000);
    request.max_tokens = answer;
    request.sampling.seed = seed;
    return request;
  }
  // Stats are published by the engine thread once a turn.
  void expect_settled() {
    EngineStats stats;
    for (int i = 0; i < 5000; ++i) {
      stats = engine_->stats();
      if (stats.running == 0 && stats.waiting == 0 && stats.blocks_used <= stats.states_kept &&
          stats.states_free + stats.states_kept == stats.states_total) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.blocks_free + stats.blocks_cached + stats.blocks_used, stats.blocks_total);
    EXPECT_LE(stats.blocks_used, stats.states_kept) << describe(stats);  // a kept state may hold one block
    EXPECT_EQ(stats.states_free + stats.states_kept, stats.states_total) << describe(stats);
    EXPECT_EQ(stats.swap_blocks_used, 0);
  }

  Planter planter_;
  Turning clock_;
  Counters counters_;
  std::unique_ptr<Engine> engine_;
  int64_t vocab_ = 0;
};

TEST_P(EngineFaultsTest, NumbersThatAreNotFiniteEndOneAnswerNamingLayerAndPosition) {
  open({.max_context_tokens = 256, .max_sequences = 8});
  Receiver bad, good;
  good.on_token = [&, count = 0]() mutable {
    // The first row of a step is that of the answer first in order.
    if (++count == 3) planter_.layer = 4;
  };
  ASSERT_TRUE(engine_->submit(request(1, 20, 100), bad.sink()).ok());
  ASSERT_TRUE(engine_->submit(request(2, 20, 60), good.sink()).ok());
  bad.wait();
  good.wait();
  EXPECT_EQ(good.end().finish_reason, FinishReason::kLength);
  EXPECT_EQ(bad.end().finish_reason, FinishReason::kError);
  ASSERT_TRUE(bad.end().error.has_value());
  EXPECT_EQ(bad.end().error->code(), Code::kInternal);
  EXPECT_NE(bad.end().error->message().find("layer 4"), std::string::npos) << bad.end().error->message();
  EXPECT_NE(bad.end().error->message().find("position"), std::string::npos);
  expect_settled();
}

TEST_P(EngineFaultsTest, ADeadlineEndsARequestThatRunsOrWaits) {
  open({.max_context_tokens = 256, .max_sequences = 1});
  Receiver running, waiting;
  EngineRequest late = request(1, 20, 200);
  late.deadline = clock_.now() + std::chrono::seconds(5);
  EngineRequest behind = request(2, 20, 5);
  behind.deadline = late.deadline;
  running.on_token = [&, count = 0]() mutable {
    if (++count == 4) clock_.turn(6000);
  };
  ASSERT_TRUE(engine_->submit(late, running.sink()).ok());
  ASSERT_TRUE(engine_->submit(behind, waiting.sink()).ok());
  running.wait();
  waiting.wait();
  for (const Receiver* receiver : {&running, &waiting}) {
    ASSERT_TRUE(receiver->end().error.has_value());
    EXPECT_EQ(receiver->end().error->code(), Code::kDeadlineExceeded);
  }
  EXPECT_LT(running.tokens[0].size(), 200u);
  expect_settled();
}

TEST_P(EngineFaultsTest, ARequestLargerThanThePoolIsRefusedAtTheDoor) {
  open({.max_context_tokens = 1024, .max_sequences = 4, .num_blocks = 3});
  Receiver receiver;
  const auto refused = engine_->submit(request(1, 300, 100), receiver.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("the pool has 3"), std::string::npos);
  ASSERT_TRUE(engine_->submit(request(1, 300, 84), receiver.sink()).ok());
  receiver.wait();
  EXPECT_EQ(receiver.end().finish_reason, FinishReason::kLength);
}

TEST_P(EngineFaultsTest, PoolsMuchTooSmallForAllStillServeAll) {
  for (const int64_t swap_blocks : {0, 4, 64}) {
    open({.max_context_tokens = 512, .max_sequences = 20, .num_blocks = 7},
         {.reserve_tokens = 1, .swap_blocks = swap_blocks});
    std::vector<std::unique_ptr<Receiver>> receivers;
    for (uint32_t i = 0; i < 20; ++i) {
      receivers.push_back(std::make_unique<Receiver>());
      EngineRequest r = request(i % 5, 50 + 20 * (i % 7), 60 + 3 * i);
      r.priority = static_cast<int32_t>(i % 4);
      ASSERT_TRUE(engine_->submit(r, receivers.back()->sink()).ok());
    }
    for (auto& receiver : receivers) {
      receiver->wait();
      EXPECT_EQ(receiver->end().finish_reason, FinishReason::kLength)
          << (receiver->end().error ? receiver->end().error->message() : "");
    }
    EXPECT_GT(engine_->stats().preempted_swap + engine_->stats().preempted_recompute, 0);
    expect_settled();
  }
}

TEST_P(EngineFaultsTest, AnAbortStormLeavesEveryBlockAndState) {
  open({.max_context_tokens = 400, .max_sequences = 12, .num_blocks = 16}, {.reserve_tokens = 1, .swap_blocks = 6});
  std::mt19937 rng(17);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Receiver>> receivers;
    std::vector<Engine::RequestId> ids;
    for (uint32_t i = 0; i < 60; ++i) {
      EngineRequest r = request(i % 6, 1 + static_cast<int64_t>(rng() % 250), 1 + static_cast<int64_t>(rng() % 60));
      r.n = i % 7 == 0 ? 3 : 1;
      r.priority = static_cast<int32_t>(rng() % 4);
      if (i % 5 == 0) r.context_mode = ContextMode::kExact;
      receivers.push_back(std::make_unique<Receiver>(r.n));
      const int32_t answers = r.n;
      const auto id = engine_->submit(std::move(r), receivers.back()->sink());
      ASSERT_TRUE(id.ok()) << id.error().message();
      for (int32_t a = 0; a < answers; ++a) ids.push_back(*id + static_cast<uint64_t>(a));
      if (rng() % 2 == 0) engine_->cancel(ids[rng() % ids.size()]);
      if (rng() % 4 == 0) std::this_thread::yield();
    }
    std::shuffle(ids.begin(), ids.end(), rng);
    for (const auto id : ids) engine_->cancel(id);
    for (auto& receiver : receivers) receiver->wait();
    expect_settled();
  }
}

TEST_P(EngineFaultsTest, CancellingTheFirstAnswerLeavesTheOthers) {
  open({.max_context_tokens = 512, .max_sequences = 8, .max_batch_tokens = 16});
  EngineRequest several = request(3, 300, 6);
  several.n = 3;
  Receiver all(3), again(3);
  const auto id = engine_->submit(several, all.sink());
  ASSERT_TRUE(id.ok());
  all.wait();
  const auto second = engine_->submit(several, again.sink());
  ASSERT_TRUE(second.ok());
  engine_->cancel(*second);
  again.wait();
  EXPECT_EQ(again.last[0].finish_reason, FinishReason::kCancelled);
  for (const size_t answer : {1u, 2u}) {
    EXPECT_EQ(again.last[answer].finish_reason, FinishReason::kLength);
    EXPECT_EQ(again.tokens[answer].size(), 6u);
  }
  expect_settled();
}

TEST_P(EngineFaultsTest, AReaderThatNeverReadsHoldsNobodyUp) {
  open({.max_context_tokens = 256, .max_sequences = 2, .num_blocks = 4}, {.max_running = 2, .reserve_tokens = 1});
  Receiver silent;
  std::atomic<bool> paused{false};
  std::promise<Engine::RequestId> id_promise;
  const auto known_id = id_promise.get_future().share();
  silent.on_token = [&] {
    if (!paused.exchange(true)) engine_->pause(known_id.get());
  };
  const auto id = engine_->submit(request(1, 20, 150), silent.sink());
  ASSERT_TRUE(id.ok());
  id_promise.set_value(*id);
  while (!paused) std::this_thread::yield();
  for (uint32_t i = 0; i < 4; ++i) {
    Receiver other;
    ASSERT_TRUE(engine_->submit(request(10 + i, 100, 150), other.sink()).ok());
    other.wait();
    EXPECT_EQ(other.end().finish_reason, FinishReason::kLength);
  }
  EXPECT_FALSE(silent.is_done());
  engine_->resume(*id);
  silent.wait();
  EXPECT_EQ(silent.tokens[0].size(), 150u);
}

TEST_P(EngineFaultsTest, PromptLogprobsCoverEveryTokenButTheFirst) {
  open({.max_context_tokens = 512, .max_sequences = 4, .max_batch_tokens = 32});
  EngineRequest asked = request(4, 200, 3);
  asked.prompt_logprobs = 2;
  asked.top_logprobs = 0;
  asked.sampling.temperature = 0;
  Receiver receiver;
  ASSERT_TRUE(engine_->submit(asked, receiver.sink()).ok());
  receiver.wait();
  ASSERT_NE(receiver.prompt_logprobs, nullptr);
  ASSERT_EQ(receiver.prompt_logprobs->size(), 199u);
  for (size_t i = 0; i < 199; ++i) {
    EXPECT_EQ((*receiver.prompt_logprobs)[i].chosen.token_id, asked.prompt_ids[i + 1]);
    EXPECT_EQ((*receiver.prompt_logprobs)[i].top.size(), 2u);
  }
}

TEST_P(EngineFaultsTest, AThousandWaitAndAreServedInOrder) {
  open({.max_context_tokens = 64, .max_sequences = 280, .num_blocks = 280, .max_batch_tokens = 256},
       {.max_queued_requests = 1024, .max_running = 256});
  std::vector<std::unique_ptr<Receiver>> receivers;
  size_t served = 0;
  for (uint32_t i = 0; i < 1280; ++i) {
    receivers.push_back(std::make_unique<Receiver>());
    while (!engine_->submit(request(i, 6, 4), receivers.back()->sink()).ok()) receivers[served++]->wait();
  }
  for (auto& receiver : receivers) {
    receiver->wait();
    EXPECT_EQ(receiver->tokens[0].size(), 4u);
  }
  expect_settled();
}

// Two sequences read the same blocks; QA1, QA8, QA9 and QA11 are about wrong data in them.
TEST_P(EngineFaultsTest, QA1_QA8_QA9_QA11_TheSamePromptAgainUnderLoadSaysTheSame) {
  open({.max_context_tokens = 600, .max_sequences = 10, .num_blocks = 24}, {.context_mode = ContextMode::kExact});
  std::vector<int32_t> first;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Receiver>> others;
    for (uint32_t i = 0; i < 5; ++i) {  // push blocks and states out in between
      others.push_back(std::make_unique<Receiver>());
      ASSERT_TRUE(engine_->submit(request(100 + i + 10 * static_cast<uint32_t>(round), 300, 10), others.back()->sink()).ok());
    }
    Receiver receiver;
    ASSERT_TRUE(engine_->submit(request(42, 400, 20), receiver.sink()).ok());
    receiver.wait();
    for (auto& other : others) other->wait();
    if (round == 0) first = receiver.tokens[0];
    EXPECT_EQ(receiver.tokens[0], first) << "round " << round;
  }
}

// Hits, states, evictions and pre-emptions at random: every answer is the one of a cold run.
TEST_P(EngineFaultsTest, UnderAnyLoadExactAndStableAnswersAreThoseOfColdRuns) {
  constexpr uint32_t kKinds = 10;
  const auto kind = [](uint32_t k) {  // beginnings in common, of several lengths
    EngineRequest r = request(k % 3, 60 + 47 * static_cast<int64_t>(k), 6 + k);
    r.sampling.seed = k;
    r.context_mode = k % 2 == 0 ? ContextMode::kExact : ContextMode::kStable;
    return r;
  };
  std::vector<std::vector<int32_t>> cold;
  open({.max_context_tokens = 640, .max_sequences = 4}, {.prefix_cache = false});
  for (uint32_t k = 0; k < kKinds; ++k) {
    Receiver receiver;
    ASSERT_TRUE(engine_->submit(kind(k), receiver.sink()).ok());
    receiver.wait();
    cold.push_back(receiver.tokens[0]);
  }
  open({.max_context_tokens = 640, .max_sequences = 7, .num_blocks = 9}, {.max_running = 5, .reserve_tokens = 1, .swap_blocks = 5});
  std::mt19937 rng(23);
  std::vector<std::pair<uint32_t, std::unique_ptr<Receiver>>> receivers;
  for (int i = 0; i < 60; ++i) {
    const uint32_t k = rng() % kKinds;
    EngineRequest r = kind(k);
    r.priority = static_cast<int32_t>(rng() % 4);
    receivers.emplace_back(k, std::make_unique<Receiver>());
    const auto id = engine_->submit(std::move(r), receivers.back().second->sink());
    ASSERT_TRUE(id.ok());
    if (rng() % 6 == 0) engine_->cancel(*id);
  }
  int64_t whole = 0;
  for (auto& [k, receiver] : receivers) {
    receiver->wait();
    if (receiver->end().finish_reason != FinishReason::kLength) continue;
    ++whole;
    EXPECT_EQ(receiver->tokens[0], cold[k]) << "kind " << k;
  }
  EXPECT_GT(whole, 30);
  const EngineStats stats = engine_->stats();
  EXPECT_GT(stats.hits, 5) << describe(stats);
  EXPECT_GT(stats.preempted_swap + stats.preempted_recompute, 0) << describe(stats);
  expect_settled();
}

TEST_P(EngineFaultsTest, QA21_TheReasonOfEveryMissIsCounted) {
  open({.max_context_tokens = 600, .max_sequences = 8});
  for (int i = 0; i < 2; ++i) {
    Receiver receiver;
    ASSERT_TRUE(engine_->submit(request(5, 400, 2), receiver.sink()).ok());
    receiver.wait();
    EXPECT_EQ(receiver.end().cached_tokens, i == 0 ? 0 : 399);
  }
  Receiver shorter;
  ASSERT_TRUE(engine_->submit(request(6, 50, 2), shorter.sink()).ok());
  shorter.wait();
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.misses_absent, 1);
  EXPECT_EQ(stats.misses_too_short, 1);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.hit_tokens, 399);
}

TEST_P(EngineFaultsTest, QB9_QB10_AnotherSaltHitsNothing) {
  open({.max_context_tokens = 600, .max_sequences = 8});
  for (const char* salt : {"a", "b", "a"}) {
    EngineRequest r = request(5, 400, 2);
    r.cache_salt = salt;
    Receiver receiver;
    ASSERT_TRUE(engine_->submit(r, receiver.sink()).ok());
    receiver.wait();
    EXPECT_EQ(receiver.end().cached_tokens, counters_.get("requests").value() == 3 ? 399 : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Depth, EngineFaultsTest, testing::Values(0, 1),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace deepinfer
