// Both modes of verification give the target's distribution: chi-square over 1.5 million draws each, with the
// p-value printed, and a rule with a planted fault that the same test catches.
#include "speculate/verification.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "base/random.h"
#include "speculate/chi_square.h"

namespace deepinfer {
namespace {

TEST(ChiSquareTest, KnownTails) {
  EXPECT_NEAR(chi_square_p(3.841, 1), 0.05, 1e-4);
  EXPECT_NEAR(chi_square_p(30.578, 15), 0.01, 1e-4);
  EXPECT_NEAR(chi_square_p(5.0, 15), 0.992, 1e-3);
}

constexpr int kVocab = 6;
constexpr int64_t kDraws = 1'500'000;

// Target and draft logits of the first token, and of the second behind each first: as different as real ones.
struct Toy {
  std::array<float, kVocab> target, draft;
};
Toy toy(int context) {
  Toy rows;
  for (int i = 0; i < kVocab; ++i) {
    const auto words = philox4x32(77, {static_cast<uint32_t>(context), static_cast<uint32_t>(i), 0, 0});
    rows.target[static_cast<size_t>(i)] = static_cast<float>(words[0]) * 0x1p-32f * 4;
    rows.draft[static_cast<size_t>(i)] =
        rows.target[static_cast<size_t>(i)] + static_cast<float>(words[1]) * 0x1p-32f * 3 - 1.5f;
  }
  return rows;
}

std::array<double, kVocab> softmax(const std::array<float, kVocab>& logits) {
  std::array<double, kVocab> p = {};
  double sum = 0;
  for (int i = 0; i < kVocab; ++i)
    sum += p[static_cast<size_t>(i)] = std::exp(static_cast<double>(logits[static_cast<size_t>(i)]));
  for (double& value : p) value /= sum;
  return p;
}

// Two tokens an answer, as two steps of verification give them; each answer has a seed of its own.
using Rule = std::function<std::array<int32_t, 2>(uint64_t seed, int64_t& accepted)>;

// The p-value of the pairs under the target.
double test_rule(const char* name, const Rule& rule) {
  std::vector<double> expected(kVocab * kVocab);
  const auto first = softmax(toy(0).target);
  for (int a = 0; a < kVocab; ++a) {
    const auto second = softmax(toy(1 + a).target);
    for (int b = 0; b < kVocab; ++b)
      expected[static_cast<size_t>(a * kVocab + b)] =
          first[static_cast<size_t>(a)] * second[static_cast<size_t>(b)];
  }
  std::vector<int64_t> seen(expected.size());
  int64_t accepted = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const auto pair = rule(static_cast<uint64_t>(i), accepted);
    ++seen[static_cast<size_t>(pair[0] * kVocab + pair[1])];
  }
  const ChiSquare test = chi_square(seen, expected);
  std::printf("%s: %lld draws, chi-square %.1f with %lld degrees of freedom, p = %.4g; %.3f drafts accepted a pair\n",
              name, static_cast<long long>(2 * kDraws), test.statistic, static_cast<long long>(test.degrees), test.p,
              static_cast<double>(accepted) / static_cast<double>(kDraws));
  return test.p;
}

struct Distributions {
  std::vector<Masses> target, draft;
  explicit Distributions(int64_t support) {
    Sampler sampler(kVocab);
    for (int context = 0; context <= kVocab; ++context) {
      const Toy rows = toy(context);
      EXPECT_TRUE(sampler.masses(rows.target, {}, 0, target.emplace_back()).ok());
      EXPECT_TRUE(sampler.masses(rows.draft, {}, support, draft.emplace_back()).ok());
    }
  }
};

// Two drafts, verified one after another; a rejection leaves the second token to a step without a draft.
std::array<int32_t, 2> by_rejection(const Distributions& d, uint64_t seed, int64_t& accepted,
                                    bool fresh_word) {
  std::array<int32_t, 2> out = {};
  const int32_t draft0 = d.draft[0].draw(random_word(seed, 10, Purpose::kDraft, 0));
  const int32_t draft1 =
      d.draft[static_cast<size_t>(1 + draft0)].draw(random_word(seed, 11, Purpose::kDraft, 1));
  const auto word = [&](int64_t position,
                        Purpose purpose) {  // the planted fault: one word for draft and test
    return fresh_word ? random_word(seed, position, purpose)
                      : random_word(seed, position, Purpose::kDraft, position - 10);
  };
  const Verdict first = verify_by_rejection(d.target[0], &d.draft[0], draft0, word(10, Purpose::kAccept),
                                            word(10, Purpose::kResidual));
  out[0] = first.token;
  accepted += first.accepted ? 1 : 0;
  const auto context = static_cast<size_t>(1 + out[0]);
  if (!first.accepted) {
    out[1] = d.target[context].draw(random_word(seed, 11, Purpose::kToken));
    return out;
  }
  const Verdict second = verify_by_rejection(d.target[context], &d.draft[context], draft1,
                                             word(11, Purpose::kAccept), word(11, Purpose::kResidual));
  accepted += second.accepted ? 1 : 0;
  out[1] = second.token;
  return out;
}

TEST(VerificationTest, RejectionModeGivesTheTargetsDistribution) {
  const Distributions whole(0), cut(3);
  EXPECT_GT(
      test_rule("rejection", [&](uint64_t seed, int64_t& n) { return by_rejection(whole, seed, n, true); }),
      1e-3);
  EXPECT_GT(test_rule("rejection, draft support of 3 of 6",
                      [&](uint64_t seed, int64_t& n) { return by_rejection(cut, seed, n, true); }),
            1e-3);
}

TEST(VerificationTest, ACertainDraftLosesNothing) {
  const Distributions d(0);
  const auto rule = [&](uint64_t seed, int64_t& accepted) {
    std::array<int32_t, 2> out = {};
    size_t context = 0;
    for (int64_t i = 0; i < 2; ++i) {
      const int32_t draft = static_cast<int32_t>((context + 3) % kVocab);  // as copied from somewhere
      const Verdict verdict =
          verify_by_rejection(d.target[context], nullptr, draft, random_word(seed, i, Purpose::kAccept),
                              random_word(seed, i, Purpose::kResidual));
      accepted += verdict.accepted ? 1 : 0;
      out[static_cast<size_t>(i)] = verdict.token;
      context = static_cast<size_t>(1 + verdict.token);
    }
    return out;
  };
  EXPECT_GT(test_rule("rejection, certain drafts", rule), 1e-3);
}

TEST(VerificationTest, DeterministicModeGivesTheTargetsDistribution) {
  Sampler sampler(kVocab);
  std::vector<Toy> rows;
  for (int context = 0; context <= kVocab; ++context) rows.push_back(toy(context));
  const auto rule = [&](uint64_t seed, int64_t& accepted) {
    std::array<int32_t, 2> out = {};
    SamplingParams params;
    params.seed = seed;
    size_t context = 0, drafted_after = 0;
    bool right = true;
    for (int64_t i = 0; i < 2; ++i) {
      const int32_t draft = *sampler.sample(rows[drafted_after].draft, params, 20 + i);
      out[static_cast<size_t>(i)] = *sampler.sample(rows[context].target, params, 20 + i);
      right = right && out[static_cast<size_t>(i)] == draft;
      accepted += right ? 1 : 0;
      context = static_cast<size_t>(1 + out[static_cast<size_t>(i)]);
      drafted_after = static_cast<size_t>(1 + draft);
    }
    return out;
  };
  EXPECT_GT(test_rule("deterministic", rule), 1e-3);
}

TEST(VerificationTest, AWrongRuleIsCaught) {
  const Distributions d(0);
  EXPECT_LT(test_rule("planted: one word for draft and test",
                      [&](uint64_t seed, int64_t& n) { return by_rejection(d, seed, n, false); }),
            1e-9);
  // Planted: a rejected draft is replaced by a draw from the target itself.
  const auto no_residual = [&](uint64_t seed, int64_t& accepted) {
    std::array<int32_t, 2> out = {};
    size_t context = 0;
    for (int64_t i = 0; i < 2; ++i) {
      const int32_t draft = d.draft[context].draw(random_word(seed, i, Purpose::kDraft));
      const Verdict verdict = verify_by_rejection(d.target[context], &d.draft[context], draft,
                                                  random_word(seed, i, Purpose::kAccept), 0);
      accepted += verdict.accepted ? 1 : 0;
      out[static_cast<size_t>(i)] =
          verdict.accepted ? draft : d.target[context].draw(random_word(seed, i, Purpose::kToken));
      context = static_cast<size_t>(1 + out[static_cast<size_t>(i)]);
    }
    return out;
  };
  EXPECT_LT(test_rule("planted: no residual", no_residual), 1e-9);
}

TEST(VerificationTest, GreedyMassesAcceptTheArgmaxAlone) {
  Sampler sampler(kVocab);
  SamplingParams greedy;
  greedy.temperature = 0;
  Masses target, drafted;
  const std::vector<float> logits = {0, 3, 1, 3, 2, -1};
  ASSERT_TRUE(sampler.masses(logits, greedy, 0, target).ok());
  for (int32_t draft = 0; draft < kVocab; ++draft) {
    drafted.entries = {{draft, uint32_t{1} << 31}};
    drafted.total = uint64_t{1} << 31;
    const Verdict verdict = verify_by_rejection(target, &drafted, draft, ~uint64_t{0}, ~uint64_t{0});
    EXPECT_EQ(verdict.token, 1);
    EXPECT_EQ(verdict.accepted, draft == 1);
  }
}

TEST(VerificationTest, MassesFollowTheSamplersFilters) {
  Sampler sampler(kVocab);
  SamplingParams params;
  params.top_p = 0.7;
  Masses masses;
  const std::vector<float> logits = {0, 3, 1, 2.5f, 2, -INFINITY};
  ASSERT_TRUE(sampler.masses(logits, params, 0, masses).ok());
  ASSERT_EQ(masses.entries.size(), 2u);  // 3 and 2.5 hold 0.7
  EXPECT_EQ(masses.entries[0].id, 1);
  EXPECT_EQ(masses.entries[1].id, 3);
  EXPECT_NEAR(static_cast<double>(masses.of(1)) / static_cast<double>(masses.total), 1 / (1 + std::exp(-0.5)),
              1e-6);
  EXPECT_EQ(masses.of(0), 0u);
  ASSERT_TRUE(sampler.masses(logits, {}, 3, masses).ok());
  EXPECT_EQ(masses.entries.size(), 3u);
  ASSERT_TRUE(sampler.masses(logits, {}, 0, masses).ok());
  EXPECT_EQ(masses.entries.size(), 5u);  // what can't be drawn has no mass
  EXPECT_FALSE(sampler.masses(std::vector<float>(kVocab, NAN), {}, 0, masses).ok());
}

}  // namespace
}  // namespace deepinfer
