#include "speculate/ngram.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "speculate/proposer.h"

namespace deepinfer {
namespace {

std::vector<int32_t> continuation(const NgramMatch& match) {
  return {match.continuation.begin(), match.continuation.end()};
}

TEST(NgramTest, WhatFollowedTheLastTokensIsProposed) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 9, 2, 3};
  const NgramMatch match = find_ngram(tokens, 2, 8, 3);
  EXPECT_EQ(match.length, 2);
  EXPECT_EQ(continuation(match), (std::vector<int32_t>{4, 5, 9}));
}

TEST(NgramTest, TheLongestAgreementWinsThenTheNewest) {
  const std::vector<int32_t> tokens = {1, 2, 3, 7, 8, 2, 3, 6, 5, 2, 3, 4, 1, 2, 3};
  EXPECT_EQ(continuation(find_ngram(tokens, 2, 8, 1)), std::vector<int32_t>{7});  // 1 2 3, not 2 3
  EXPECT_EQ(continuation(find_ngram(tokens, 2, 2, 1)), std::vector<int32_t>{4});
}

TEST(NgramTest, NothingIsProposedWithoutARepetition) {
  EXPECT_EQ(find_ngram(std::vector<int32_t>{}, 2, 8, 5).length, 0);
  EXPECT_EQ(find_ngram(std::vector<int32_t>{1}, 2, 8, 5).length, 0);
  EXPECT_EQ(find_ngram(std::vector<int32_t>{1, 2, 3, 4}, 2, 8, 5).length, 0);
  EXPECT_EQ(find_ngram(std::vector<int32_t>{1, 2, 3, 2}, 2, 8, 5).length, 0);
}

TEST(NgramTest, AgreesWithTheDefinitionOnRandomTexts) {
  std::mt19937 rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> tokens(rng() % 40);
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % 3);
    const auto size = std::ssize(tokens);
    const NgramMatch match = find_ngram(tokens, 2, 6, 4);
    int64_t best = 0, best_end = 0;
    for (int64_t length = 6; length >= 2 && best == 0; --length) {
      for (int64_t end = size - 1; end >= length && best == 0; --end) {
        if (std::equal(tokens.begin() + end - length, tokens.begin() + end, tokens.end() - length)) {
          best = length;
          best_end = end;
        }
      }
    }
    ASSERT_EQ(match.length, best);
    if (best > 0) {
      EXPECT_EQ(match.continuation.data(), tokens.data() + best_end);
    }
  }
}

TEST(NgramTest, ScoresFollowWhatWasAccepted) {
  const auto proposer = make_ngram_proposer({.max_drafts = 4});
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 9, 2, 3};
  const SamplingParams params;
  Draft draft;
  const auto propose = [&] {
    draft.clear();
    const DraftTask task = {.last_token = 3, .history = tokens, .sampling = &params, .out = &draft};
    EXPECT_TRUE(proposer->propose({&task, 1}).ok());
    EXPECT_EQ(draft.position, 8);
    return draft.scores[0];
  };
  const float first = propose();
  for (int i = 0; i < 20; ++i) proposer->learn(draft, 4, 4);
  const float better = propose();
  for (int i = 0; i < 60; ++i) proposer->learn(draft, 4, 0);
  EXPECT_GT(better, first);
  EXPECT_LT(propose(), first);
}

}  // namespace
}  // namespace deepinfer
