#include "sampling/penalties.h"

#include <gtest/gtest.h>

#include <cmath>

namespace deepinfer {
namespace {

TEST(AdjustLogits, TakesPenaltiesFromTokensOfTheAnswerAndAddsBiases) {
  SamplingParams params;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  params.logit_bias = {{0, 3.0f}, {9, 1.0f}};
  std::vector<float> logits = {1, 1, 1};
  adjust_logits(params, {{1, 2}, {2, 0}, {7, 1}}, logits);
  EXPECT_EQ(logits, (std::vector<float>{4, 0, 1}));
}

TEST(AdjustLogits, ARepetitionPenaltyPushesTokensOfPromptAndAnswerDown) {
  SamplingParams params;
  params.repetition_penalty = 2;
  EXPECT_TRUE(params.adjusts_logits());
  std::vector<float> logits = {4, -3, 1, -INFINITY, 0};
  adjust_logits(params, {{0, 1}, {1, 0}, {3, 5}, {4, 1}, {9, 1}}, logits);
  EXPECT_EQ(logits, (std::vector<float>{2, -6, 1, -INFINITY, 0}));
  params.presence_penalty = 1;
  logits = {4, 4};
  adjust_logits(params, {{0, 1}, {1, 0}}, logits);
  EXPECT_EQ(logits, (std::vector<float>{1, 2}));
}

TEST(AdjustLogits, ChangesNothingByDefault) {
  std::vector<float> logits = {1, 2};
  EXPECT_FALSE(SamplingParams().adjusts_logits());
  adjust_logits({}, {{0, 5}}, logits);
  EXPECT_EQ(logits, (std::vector<float>{1, 2}));
}

TEST(TokenLogprobs, AreTheLogSoftmaxLikeliestFirst) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(2.0f), -INFINITY};
  const TokenLogprobs found = token_logprobs(logits, 0, 3);
  EXPECT_NEAR(found.chosen.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(found.top.size(), 3u);
  EXPECT_EQ(found.top[0].token_id, 1);
  EXPECT_EQ(found.top[1].token_id, 2);
  EXPECT_EQ(found.top[2].token_id, 0);
  EXPECT_NEAR(found.top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(token_logprobs(logits, 1, 0).top.size(), 0u);
  EXPECT_EQ(token_logprobs(logits, 1, 20).top.size(), 3u);  // one that can't be drawn is not listed
}

TEST(CheckSamplingParams, RefusesPenaltiesAndBiasesOutOfRange) {
  SamplingParams params;
  params.presence_penalty = 2.5;
  EXPECT_FALSE(check_sampling_params(params).ok());
  params = {};
  params.frequency_penalty = NAN;
  EXPECT_FALSE(check_sampling_params(params).ok());
  for (const double penalty : {0.0, -1.0, 2.1, double{NAN}}) {
    params = {};
    params.repetition_penalty = penalty;
    EXPECT_FALSE(check_sampling_params(params).ok());
  }
  params = {};
  params.logit_bias = {{1, 101.0f}};
  EXPECT_FALSE(check_sampling_params(params).ok());
}

}  // namespace
}  // namespace deepinfer
