// The engine on the mini model. Its prompts are arbitrary ids: what the model says does not matter here.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <stdexcept>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "source_path.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

// The events of one request; wait() returns when the last one came.
class Collector {
 public:
  EventSink sink() {
    return [this](const EngineEvent& event) {
      if (event.kind == EngineEvent::Kind::kToken) {
        tokens.push_back(event.token_id);
        if (on_token) on_token();
      } else {
        last = event;
        done_.set_value();
      }
    };
  }
  void wait() { done_.get_future().wait(); }

  std::vector<int32_t> tokens;
  EngineEvent last;
  std::function<void()> on_token;

 private:
  std::promise<void> done_;
};

class EngineTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string directory = source_path("models/mini");
    auto checkpoint = Checkpoint::open(directory);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    auto tokenizer = Tokenizer::load(directory + "/tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, checkpoint->config().vocab_size),
                             {.max_context_tokens = 64, .max_batch_tokens = 16});
    ASSERT_TRUE(model.ok()) << model.error().message();
    engine_ = std::make_unique<Engine>(std::move(*model), EngineOptions{.max_queued_requests = 4}, counters_);
  }

  static EngineRequest request(int64_t max_tokens, double temperature = 0) {
    EngineRequest request;
    request.prompt_ids = {0, 17, 42, 99, 7, 300, 12, 44, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    request.max_tokens = max_tokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    return request;
  }

  Counters counters_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, ARequestGetsItsTokensAndOneEnd) {
  Collector collector;
  ASSERT_TRUE(engine_->submit(request(7), collector.sink()).ok());
  collector.wait();
  EXPECT_EQ(collector.tokens.size(), 7u);
  EXPECT_EQ(collector.last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(collector.last.prompt_tokens, 20);
  EXPECT_EQ(collector.last.completion_tokens, 7);
  EXPECT_EQ(counters_.get("completion_tokens").value(), 7);
}

TEST_F(EngineTest, AStopIdEndsTheAnswerAndIsNotDelivered) {
  Collector free_run, stopped;
  ASSERT_TRUE(engine_->submit(request(8), free_run.sink()).ok());
  free_run.wait();
  EngineRequest with_stop = request(8);
  with_stop.stop_ids = {free_run.tokens[3]};
  ASSERT_TRUE(engine_->submit(with_stop, stopped.sink()).ok());
  stopped.wait();
  EXPECT_EQ(stopped.last.finish_reason, FinishReason::kStop);
  const auto first = std::find(free_run.tokens.begin(), free_run.tokens.end(), free_run.tokens[3]);
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free_run.tokens.begin(), first));
}

TEST_F(EngineTest, SameSeedSameTokensWhateverRunsBesides) {
  Collector alone, crowd[3];
  ASSERT_TRUE(engine_->submit(request(10, 1.0), alone.sink()).ok());
  alone.wait();
  for (Collector& collector : crowd) ASSERT_TRUE(engine_->submit(request(10, 1.0), collector.sink()).ok());
  for (Collector& collector : crowd) {
    collector.wait();
    EXPECT_EQ(collector.tokens, alone.tokens);
  }
}

TEST_F(EngineTest, TheContextBoundsTheAnswer) {
  Collector collector;
  ASSERT_TRUE(engine_->submit(request(1000), collector.sink()).ok());
  collector.wait();
  EXPECT_EQ(collector.tokens.size(), 44u);
  EXPECT_EQ(collector.last.finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, CancelEndsRunningAndWaitingRequests) {
  Collector running, waiting;
  std::promise<Engine::RequestId> running_id;
  auto id_future = running_id.get_future().share();
  running.on_token = [&, done = false]() mutable {
    if (!done) engine_->cancel(id_future.get());
    done = true;
  };
  const auto first = engine_->submit(request(40), running.sink());
  const auto second = engine_->submit(request(40), waiting.sink());
  ASSERT_TRUE(first.ok() && second.ok());
  engine_->cancel(*second);
  running_id.set_value(*first);
  running.wait();
  waiting.wait();
  EXPECT_EQ(running.last.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(running.tokens.size(), 40u);
  EXPECT_EQ(waiting.last.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(waiting.tokens.empty());
  EXPECT_EQ(counters_.get("cancelled").value(), 2);
}

TEST_F(EngineTest, AFinishedAnswerEndsAsIfTheModelHadEndedIt) {
  Collector running;
  std::promise<Engine::RequestId> id;
  auto known = id.get_future().share();
  running.on_token = [&, done = false]() mutable {
    if (!done) engine_->finish(known.get());
    done = true;
  };
  const auto submitted = engine_->submit(request(40), running.sink());
  ASSERT_TRUE(submitted.ok());
  id.set_value(*submitted);
  running.wait();
  EXPECT_EQ(running.last.finish_reason, FinishReason::kStop);
  EXPECT_LT(running.tokens.size(), 40u);
  EXPECT_EQ(counters_.get("cancelled").value(), 0);
  EXPECT_EQ(engine_->stats().cancelled, 0);
}

TEST_F(EngineTest, AnExceptionEndsItsRequestAndTheOthersLive) {
  Collector failing, next;
  failing.on_token = [] { throw std::runtime_error("planted"); };
  ASSERT_TRUE(engine_->submit(request(5), failing.sink()).ok());
  ASSERT_TRUE(engine_->submit(request(5), next.sink()).ok());
  failing.wait();
  next.wait();
  EXPECT_EQ(failing.last.finish_reason, FinishReason::kError);
  ASSERT_TRUE(failing.last.error.has_value());
  EXPECT_NE(failing.last.error->message().find("planted"), std::string::npos);
  EXPECT_EQ(next.tokens.size(), 5u);
  EXPECT_EQ(counters_.get("errors").value(), 1);
}

TEST_F(EngineTest, AFullQueueRefusesTheNextRequest) {
  Collector running, waiting[4], refused;
  std::promise<void> started, go_on;
  running.on_token = [&, first = true]() mutable {
    if (first) {
      started.set_value();
      go_on.get_future().wait();
    }
    first = false;
  };
  ASSERT_TRUE(engine_->submit(request(2), running.sink()).ok());
  started.get_future().wait();
  for (Collector& collector : waiting) ASSERT_TRUE(engine_->submit(request(1), collector.sink()).ok());
  EXPECT_EQ(engine_->stats().running, 1);
  EXPECT_EQ(engine_->stats().waiting, 4);
  const auto result = engine_->submit(request(1), refused.sink());
  go_on.set_value();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), Code::kResourceExhausted);
  for (Collector& collector : waiting) collector.wait();
}

TEST_F(EngineTest, ClosingTheEngineEndsEveryRequest) {
  Collector collectors[4];
  for (Collector& collector : collectors) ASSERT_TRUE(engine_->submit(request(40), collector.sink()).ok());
  engine_.reset();
  for (Collector& collector : collectors) collector.wait();
}

TEST_F(EngineTest, BadRequestsAreRefusedWithTheirReason) {
  const auto message = [&](EngineRequest bad) {
    Collector collector;
    const auto result = engine_->submit(std::move(bad), collector.sink());
    return result.ok() ? std::string("accepted") : result.error().message();
  };
  EngineRequest bad = request(5);
  bad.prompt_ids.clear();
  EXPECT_NE(message(bad).find("prompt_ids"), std::string::npos);
  bad = request(5);
  bad.prompt_ids[3] = static_cast<int32_t>(engine_->vocab_size());
  EXPECT_NE(message(bad).find(fmt::format("found {}", engine_->vocab_size())), std::string::npos);
  bad = request(5);
  bad.prompt_ids.assign(64, 5);
  EXPECT_NE(message(bad).find("the context holds 64"), std::string::npos);
  EXPECT_NE(message(request(0)).find("max_tokens"), std::string::npos);
  bad = request(5);
  bad.sampling.top_p = 0;
  EXPECT_NE(message(bad).find("top_p"), std::string::npos);
}

TEST_F(EngineTest, SeveralAnswersHaveIdsInARowAndSeedsOfTheirOwn) {
  EngineRequest several = request(6, 1.5);
  several.n = 3;
  std::array<std::vector<int32_t>, 3> answers;
  std::promise<void> done;
  int finished = 0;
  const auto first = engine_->submit(several, [&](const EngineEvent& event) {
    if (event.kind == EngineEvent::Kind::kToken)
      return answers.at(event.answer_index).push_back(event.token_id);
    if (++finished == 3) done.set_value();
  });
  ASSERT_TRUE(first.ok());
  done.get_future().wait();
  EXPECT_NE(answers[0], answers[1]);
  for (size_t i = 0; i < answers.size(); ++i) {
    EngineRequest one = request(6, 1.5);
    one.sampling.seed += i;
    Collector alone;
    ASSERT_TRUE(engine_->submit(one, alone.sink()).ok());
    alone.wait();
    EXPECT_EQ(alone.tokens, answers[i]) << (alone.last.error ? alone.last.error->message() : "");
  }
}

// The three are one job until the prompt is computed, and the first one gives it its name.
TEST_F(EngineTest, WhatIsPausedIsAnAnswerAndNotTheOthersOfItsPrompt) {
  Collector occupying;  // its first token holds the engine until it was told all this
  std::promise<void> reached, told;
  occupying.on_token = [&, is_first = true]() mutable {
    if (!std::exchange(is_first, false)) return;
    reached.set_value();
    told.get_future().wait();
  };
  ASSERT_TRUE(engine_->submit(request(40), occupying.sink()).ok());
  reached.get_future().wait();
  EngineRequest several = request(4);
  several.prompt_ids = std::vector<int32_t>(40, 5);
  several.n = 3;
  std::array<std::promise<FinishReason>, 3> ends;
  std::array<std::shared_future<FinishReason>, 3> ended;
  for (size_t i = 0; i < 3; ++i) ended[i] = ends[i].get_future().share();
  const auto first = engine_->submit(several, [&](const EngineEvent& event) {
    if (event.kind == EngineEvent::Kind::kFinished) ends.at(event.answer_index).set_value(event.finish_reason);
  });
  ASSERT_TRUE(first.ok());
  engine_->pause(*first);
  engine_->pause(*first + 2);
  engine_->cancel(*first);
  told.set_value();
  EXPECT_EQ(ended[0].get(), FinishReason::kCancelled);
  ASSERT_EQ(ended[1].wait_for(std::chrono::minutes(2)), std::future_status::ready);
  EXPECT_EQ(ended[1].get(), FinishReason::kLength);
  EXPECT_NE(ended[2].wait_for(std::chrono::seconds(0)), std::future_status::ready);
  engine_->resume(*first + 2);
  EXPECT_EQ(ended[2].get(), FinishReason::kLength);
  occupying.wait();
}

TEST_F(EngineTest, LogprobsOfAGreedyAnswerAreTheLargest) {
  EngineRequest asked = request(4);
  asked.top_logprobs = 2;
  std::vector<std::shared_ptr<const TokenLogprobs>> logprobs;
  std::promise<void> done;
  ASSERT_TRUE(engine_
                  ->submit(asked,
                           [&](const EngineEvent& event) {
                             event.kind == EngineEvent::Kind::kToken ? logprobs.push_back(event.logprobs)
                                                                     : done.set_value();
                           })
                  .ok());
  done.get_future().wait();
  ASSERT_FALSE(logprobs.empty());
  for (const auto& entry : logprobs) {
    ASSERT_EQ(entry->top.size(), 2u);
    EXPECT_EQ(entry->chosen.token_id, entry->top[0].token_id);
    EXPECT_LE(entry->top[1].logprob, entry->top[0].logprob);
    EXPECT_LT(entry->chosen.logprob, 0);
  }
}

TEST_F(EngineTest, ABiasForcesATokenAndAPenaltyEndsItsRepetition) {
  EngineRequest biased = request(4);
  biased.sampling.logit_bias = {{42, 100.0f}};
  Collector forced;
  ASSERT_TRUE(engine_->submit(biased, forced.sink()).ok());
  forced.wait();
  EXPECT_EQ(forced.tokens, (std::vector<int32_t>{42, 42, 42, 42}));

  biased.sampling.logit_bias = {{42, 99.0f}, {43, 98.5f}};
  biased.sampling.frequency_penalty = 2;
  Collector penalised;
  ASSERT_TRUE(engine_->submit(biased, penalised.sink()).ok());
  penalised.wait();
  EXPECT_NE(penalised.tokens, (std::vector<int32_t>{42, 42, 42, 42}));
}

}  // namespace
}  // namespace deepinfer
