// Answers under a constraint: the seam of sampling/constraint.h, with scripted languages.
#include <cmath>

#include "engine_support.h"
#include "sampling/constraint.h"

namespace deepinfer {
namespace {

// Any id whose index in the answer, modulo `period`, equals the id modulo `period`. Breaks when told to.
class Striped : public OutputConstraint {
 public:
  explicit Striped(int32_t period, int64_t breaks_at = -1) : period_(period), breaks_at_(breaks_at) {}

  std::unique_ptr<ConstraintState> start() const override {
    struct State : ConstraintState {
      int32_t period = 1;
      int64_t breaks_at = -1, length = 0;
      bool fill_mask(TokenMask mask) override {
        std::fill(mask.begin(), mask.end(), 0);
        if (length == breaks_at) return true;  // a language that has run dry
        for (int64_t id = length % period; id < std::ssize(mask) * 32; id += period) mask[id / 32] |= 1u << id % 32;
        return true;
      }
      Status accept(int32_t id) override {
        if (id % period != length % period) return Error(Code::kInvalidArgument, "id {} at {}", id, length);
        ++length;
        return {};
      }
      void rollback(int64_t n) override { length -= n; }
      int64_t max_rollback() const override { return 1000; }
    };
    auto state = std::make_unique<State>();
    state->period = period_;
    state->breaks_at = breaks_at_;
    return state;
  }

 private:
  const int32_t period_;
  const int64_t breaks_at_;
};

class EngineConstraintTest : public testing::TestWithParam<int> {
 protected:
  void open(ModelOptions model_options, EngineOptions options = {}) {
    auto model = load_model(model_directory("mini"), model_options);
    ASSERT_NE(model, nullptr);
    options.scheduling_depth = GetParam();
    engine_ = std::make_unique<Engine>(std::move(model), options, counters_);
  }
  static EngineRequest request(uint32_t seed, int64_t prompt, int64_t answer) {
    EngineRequest request;
    request.prompt_ids = random_ids(seed, prompt, 2000);
    request.max_tokens = answer;
    request.sampling.seed = seed;
    return request;
  }
  static void expect_striped(std::span<const int32_t> tokens, int32_t period) {
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i] % period, static_cast<int32_t>(i) % period) << i;
  }

  Counters counters_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineConstraintTest, EveryAnswerKeepsToItWhateverItsParameters) {
  open({.max_context_tokens = 256, .max_sequences = 12, .max_batch_tokens = 32});
  const auto stripes = std::make_shared<Striped>(7);
  EngineRequest free = request(1, 20, 12);
  Receiver alone;
  ASSERT_TRUE(engine_->submit(free, alone.sink()).ok());
  alone.wait();

  EngineRequest greedy = request(2, 20, 12), hot = request(3, 20, 12), forked = request(4, 20, 12);
  greedy.sampling.temperature = 0;
  hot.sampling.temperature = 1.5;
  hot.sampling.frequency_penalty = 2;
  hot.sampling.logit_bias = {{5, 100.0f}};  // forbidden at most places, and then its bias is of no use
  forked.n = 3;
  greedy.constraint = hot.constraint = forked.constraint = stripes;
  Receiver of_greedy, of_hot, of_forked(3), of_free;
  ASSERT_TRUE(engine_->submit(greedy, of_greedy.sink()).ok());
  ASSERT_TRUE(engine_->submit(free, of_free.sink()).ok());
  ASSERT_TRUE(engine_->submit(hot, of_hot.sink()).ok());
  ASSERT_TRUE(engine_->submit(forked, of_forked.sink()).ok());
  for (Receiver* receiver : {&of_greedy, &of_free, &of_hot, &of_forked}) receiver->wait();
  expect_striped(of_greedy.tokens[0], 7);
  expect_striped(of_hot.tokens[0], 7);
  for (const auto& tokens : of_forked.tokens) {
    EXPECT_EQ(tokens.size(), 12u);
    expect_striped(tokens, 7);
  }
  EXPECT_EQ(of_hot.tokens[0][5], 5);
  EXPECT_EQ(of_free.tokens[0], alone.tokens[0]);  // a neighbour without one draws what it draws alone
}

TEST_P(EngineConstraintTest, ItsLogprobsAreThoseOfTheAllowedIds) {
  open({.max_context_tokens = 128, .max_batch_tokens = 32});
  EngineRequest one = request(1, 20, 1);
  one.constraint = std::make_shared<Striped>(1000);  // a few ids are left
  one.top_logprobs = 20;
  std::shared_ptr<const TokenLogprobs> logprobs;
  Receiver receiver;
  ASSERT_TRUE(engine_->submit(one, [&, sink = receiver.sink()](const EngineEvent& event) {
    if (event.logprobs != nullptr) logprobs = event.logprobs;
    sink(event);
  }).ok());
  receiver.wait();
  ASSERT_NE(logprobs, nullptr);
  double mass = 0;
  for (const Logprob& entry : logprobs->top) {
    EXPECT_EQ(entry.token_id % 1000, 0);
    mass += std::exp(entry.logprob);
  }
  EXPECT_EQ(std::ssize(logprobs->top), (engine_->vocab_size() + 999) / 1000);
  EXPECT_NEAR(mass, 1, 1e-5);
}

TEST_P(EngineConstraintTest, ALanguageThatRunsDryEndsItsAnswerAlone) {
  open({.max_context_tokens = 128, .max_batch_tokens = 32});
  EngineRequest broken = request(1, 20, 12);
  broken.constraint = std::make_shared<Striped>(3, 4);
  Receiver of_broken, of_free;
  ASSERT_TRUE(engine_->submit(broken, of_broken.sink()).ok());
  ASSERT_TRUE(engine_->submit(request(2, 20, 12), of_free.sink()).ok());
  of_broken.wait();
  of_free.wait();
  EXPECT_EQ(of_broken.tokens[0].size(), 4u);
  EXPECT_EQ(of_broken.end().finish_reason, FinishReason::kError);
  EXPECT_EQ(of_free.end().finish_reason, FinishReason::kLength);
}

TEST_P(EngineConstraintTest, PreemptionDoesNotChangeAConstrainedAnswer) {
  const auto run = [&](ModelOptions model_options, EngineOptions options) {
    open(model_options, options);
    std::vector<std::unique_ptr<Receiver>> receivers;
    for (uint32_t i = 0; i < 4; ++i) {
      EngineRequest one = request(10 + i, 100, 200);
      one.constraint = std::make_shared<Striped>(5);
      receivers.push_back(std::make_unique<Receiver>());
      EXPECT_TRUE(engine_->submit(one, receivers.back()->sink()).ok());
    }
    std::vector<std::vector<int32_t>> all;
    for (const auto& receiver : receivers) {
      receiver->wait();
      all.push_back(receiver->tokens[0]);
      expect_striped(all.back(), 5);
    }
    return all;
  };
  const auto wide = run({.max_context_tokens = 384, .max_sequences = 12, .max_batch_tokens = 64}, {});
  const auto tight = run({.max_context_tokens = 384, .max_sequences = 12, .num_blocks = 8, .max_batch_tokens = 64},
                         {.reserve_tokens = 1});
  const EngineStats stats = engine_->stats();
  EXPECT_GT(stats.preempted_swap + stats.preempted_recompute, 0);
  EXPECT_EQ(wide, tight);
}

INSTANTIATE_TEST_SUITE_P(Depth, EngineConstraintTest, testing::Values(0, 1));

}  // namespace
}  // namespace deepinfer
