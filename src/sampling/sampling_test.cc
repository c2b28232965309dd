#include "sampling/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "sampling/distribution.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The first `count` draws of one seed at positions 0, 1, ...
std::vector<int32_t> draw_many(std::span<const float> logits, const SamplingParams& params, int64_t count) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  std::vector<int32_t> ids;
  for (int64_t position = 0; position < count; ++position) {
    ids.push_back(sampler.sample(logits, params, position).value());
  }
  return ids;
}

int32_t sample_once(std::span<const float> logits, const SamplingParams& params) {
  return draw_many(logits, params, 1)[0];
}

// Every id that 2,000 draws found, ascending.
std::vector<int32_t> reachable(std::span<const float> logits, const SamplingParams& params) {
  std::vector<int32_t> ids = draw_many(logits, params, 2000);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

using Ids = std::vector<int32_t>;

TEST(SamplingParamsTest, EachValueOutOfRangeIsNamed) {
  const auto message = [](const SamplingParams& params) {
    return check_sampling_params(params).error().message();
  };
  EXPECT_TRUE(check_sampling_params({}).ok());
  EXPECT_EQ(message({.temperature = -1}), "temperature: found -1, expected a finite number >= 0");
  EXPECT_EQ(message({.temperature = kInfinity}), "temperature: found inf, expected a finite number >= 0");
  EXPECT_EQ(message({.top_p = 0}), "top_p: found 0, expected a number in (0, 1]");
  EXPECT_EQ(message({.top_p = 1.5}), "top_p: found 1.5, expected a number in (0, 1]");
  EXPECT_EQ(message({.top_k = -1}), "top_k: found -1, expected a number >= 0");
  EXPECT_EQ(message({.min_p = 2}), "min_p: found 2, expected a number in [0, 1]");
  for (const SamplingParams& params :
       {SamplingParams{.temperature = kNan}, SamplingParams{.top_p = kNan}, SamplingParams{.min_p = kNan}}) {
    EXPECT_EQ(check_sampling_params(params).error().code(), Code::kInvalidArgument);
  }
}

TEST(ArgmaxTest, TheLowestIdWinsAmongEquals) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInfinity, -5, -kInfinity}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-0.0f, 0.0f}), 0);
}

TEST(ArgmaxTest, ALogitThatIsNotANumberGivesNoToken) {
  EXPECT_EQ(argmax(std::vector<float>{1, kNan, 2}), -1);
  EXPECT_EQ(argmax(std::vector<float>{kNan, 1}), -1);
}

TEST(SamplerTest, TemperatureZeroTakesTheLargestLogit) {
  EXPECT_EQ(sample_once(std::vector<float>{0.1f, 0.2f, 0.2f}, {.temperature = 0}), 1);
}

TEST(SamplerTest, ATinyTemperatureTakesTheLargestLogitToo) {
  const std::vector<float> logits = {1.0f, 1.5f, -3.0f, 1.25f};
  for (const double temperature : {1e-5, 1e-300, 5e-324}) {
    EXPECT_EQ(reachable(logits, {.temperature = temperature}), Ids{1}) << temperature;
  }
}

TEST(SamplerTest, ALogitThatIsNotANumberIsAnErrorThatNamesItsId) {
  Sampler sampler(3);
  const auto token = sampler.sample(std::vector<float>{0, 1, kNan}, {}, 7);
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code(), Code::kInternal);
  EXPECT_EQ(token.error().message(), "sampling: logit of id 2 at position 7 is not a number");
}

TEST(SamplerTest, ARowWithoutAFiniteLargestLogitIsAnError) {
  Sampler sampler(2);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}, {}, 0).error().code(),
            Code::kInternal);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, kInfinity}, {.temperature = 0}, 0).error().code(),
            Code::kInternal);
}

TEST(SamplerTest, AMaskedTokenIsNeverDrawn) {
  EXPECT_EQ(reachable(std::vector<float>{-kInfinity, 0, -kInfinity, 0}, {}), (Ids{1, 3}));
}

TEST(SamplerTest, TopKKeepsTheLikeliestTokens) {
  const auto logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(reachable(logits, {.top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(reachable(logits, {.top_k = 100}), (Ids{0, 1, 2, 3}));
}

TEST(SamplerTest, TopPKeepsTheShortestPrefixThatReachesTheMass) {
  const auto logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(reachable(logits, {.top_p = 0.69}), (Ids{1, 3}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.75}), (Ids{1, 2, 3}));
  EXPECT_EQ(reachable(logits, {.top_p = 1e-9}), (Ids{3}));
}

TEST(SamplerTest, MinPKeepsTokensNearTheLikeliest) {
  const auto logits = logits_of({0.1, 0.3, 0.19, 0.41});
  EXPECT_EQ(reachable(logits, {.min_p = 0.5}), (Ids{1, 3}));
  EXPECT_EQ(reachable(logits, {.min_p = 1}), (Ids{3}));
}

// top_k 3 leaves 0.4, 0.3, 0.2; their renormalized mass would reach 0.75 after two tokens, the unfiltered one
// after three.
TEST(SamplerTest, LimitsReferToTheUnfilteredSoftmaxAndTheStricterWins) {
  const auto logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(reachable(logits, {.top_p = 0.75, .top_k = 3}), (Ids{1, 2, 3}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.75, .top_k = 2}), (Ids{1, 3}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.69, .top_k = 3}), (Ids{1, 3}));
}

TEST(SamplerTest, TopPIsTheMassAtTheTemperature) {
  const auto logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(reachable(logits, {.temperature = 0.1, .top_p = 0.75}), (Ids{3}));
}

TEST(SamplerTest, TiesAtTheThresholdAreKeptInAscendingId) {
  const std::vector<float> logits = {0, 1, 0, 0, 1};
  EXPECT_EQ(reachable(logits, {.top_k = 3}), (Ids{0, 1, 4}));
  EXPECT_EQ(reachable(logits, {.top_k = 4}), (Ids{0, 1, 2, 4}));
  // e / (2 e + 3) = 0.3222 each, 0.1185 each of the zeros.
  EXPECT_EQ(reachable(logits, {.top_p = 0.7}), (Ids{0, 1, 4}));
}

TEST(SamplerTest, ADrawDependsOnSeedAndPositionAlone) {
  const std::vector<float> logits(100, 0.0f);
  const std::vector<float> others = logits_of({0.5, 0.25, 0.25});
  const Ids in_order = draw_many(logits, {.seed = 42}, 50);
  Sampler sampler(100);
  Sampler neighbour(3);
  for (int64_t position = 49; position >= 0; --position) {
    ASSERT_TRUE(neighbour.sample(others, {.top_p = 0.6, .seed = 42}, position).ok());
    EXPECT_EQ(sampler.sample(logits, {.seed = 42}, position).value(), in_order[position]);
  }
  EXPECT_NE(draw_many(logits, {.seed = 43}, 50), in_order);
}

// Equal masses make the token the leading digits of the random number: floor(uniform * 1000).
TEST(SamplerTest, ADrawIsTheInverseOfTheCdfAtTheFirstTwoWords) {
  const std::vector<float> logits(1000, 0.0f);
  const uint64_t seed = 1234;
  const Ids ids = draw_many(logits, {.seed = seed}, 20);
  for (uint32_t position = 0; position < 20; ++position) {
    const auto words = philox4x32(seed, {0, 0, position, 0});
    EXPECT_EQ(ids[position], (uint64_t{words[0]} * 1000) >> 32);
  }
}

TEST(SamplerTest, PositionsAboveThirtyTwoBitsAreTheirOwn) {
  const std::vector<float> logits(100000, 0.0f);
  Sampler sampler(100000);
  EXPECT_NE(sampler.sample(logits, {}, 1).value(),
            sampler.sample(logits, {}, (int64_t{1} << 32) + 1).value());
}

// 99.9 % point of chi-square with k degrees of freedom (Wilson and Hilferty).
double chi_square_limit(double k) {
  const double z = 3.0902, a = 2 / (9 * k);
  return k * std::pow(1 - a + z * std::sqrt(a), 3);
}

double chi_square(const Ids& draws, std::span<const double> expected) {
  std::vector<double> counts(expected.size());
  for (const int32_t id : draws) ++counts[id];
  double sum = 0;
  for (size_t id = 0; id < expected.size(); ++id) {
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "id " << id;
      continue;
    }
    const double wanted = expected[id] * static_cast<double>(draws.size());
    sum += (counts[id] - wanted) * (counts[id] - wanted) / wanted;
  }
  return sum;
}

TEST(SamplerTest, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  constexpr int kVocab = 64;
  std::vector<float> logits;
  std::vector<double> expected;
  for (int i = 0; i < kVocab; ++i) {
    logits.push_back(static_cast<float>(i * 37 % kVocab) / 20.0f);
    expected.push_back(std::exp(logits.back() / 0.8));
  }
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (double& p : expected) p /= sum;
  const Ids draws = draw_many(logits, {.temperature = 0.8, .seed = 7}, 100000);
  EXPECT_LT(chi_square(draws, expected), chi_square_limit(kVocab - 1));
}

TEST(SamplerTest, FrequenciesOfKeptTokensAreRenormalized) {
  const auto logits = logits_of({0.1, 0.3, 0.2, 0.4});
  const Ids draws = draw_many(logits, {.top_k = 3, .seed = 11}, 100000);
  EXPECT_LT(chi_square(draws, std::vector<double>{0, 3.0 / 9, 2.0 / 9, 4.0 / 9}), chi_square_limit(2));
}

TEST(DistributionTest, WeightsAreRelativeToTheLargestAndSummedInIdOrder) {
  const std::vector<float> logits = {0, 2, 1};
  std::vector<float> weights(3);
  const double sum = softmax_weights(logits, 2.0, weights);
  EXPECT_EQ(weights[1], 1.0f);
  EXPECT_FLOAT_EQ(weights[0], std::exp(-1.0f));
  EXPECT_FLOAT_EQ(weights[2], std::exp(-0.5f));
  EXPECT_EQ(sum, double{weights[0]} + weights[1] + weights[2]);
}

}  // namespace
}  // namespace deepinfer
