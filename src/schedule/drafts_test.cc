// Properties of the choice of drafts, and a simulation of the policy over steps: against no drafts and every
// fixed number, for curves of machines that read weights and machines that compute. The clock is simulated,
// so speeds may be asserted.
#include "schedule/drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

namespace deepinfer {
namespace {

CostCurve curve_of(const std::function<double(int64_t)>& seconds, int64_t most = 400) {
  CostCurve curve;
  for (int round = 0; round < 5; ++round) {
    for (int64_t size = 1; size <= most; ++size) curve.observe(size, seconds(size));
  }
  return curve;
}

TEST(CostCurveTest, WhatWasSeenIsKnownAndLiesBetween) {
  CostCurve curve;
  EXPECT_EQ(curve.seconds(3), 0);
  for (int i = 0; i < 50; ++i) {
    curve.observe(1, 0.010);
    curve.observe(5, 0.018);
  }
  EXPECT_NEAR(curve.seconds(1), 0.010, 2e-4);
  EXPECT_NEAR(curve.seconds(3), 0.014, 2e-4);
  EXPECT_NEAR(curve.nearest(4), 0.018, 2e-4);
  EXPECT_LT(curve.seconds(10), 0.036);  // beyond: on the low side, but not less than what is known
  EXPECT_GE(curve.seconds(10), 0.0175);
}

TEST(CostCurveTest, ASlowerMachineMakesEverySizeDearer) {
  CostCurve curve = curve_of([](int64_t n) { return 0.01 + 0.001 * static_cast<double>(n); }, 12);
  for (int i = 0; i < 400; ++i) curve.observe(2, 2 * 0.012);
  EXPECT_NEAR(curve.seconds(2), 0.024, 1e-3);
  EXPECT_GT(curve.seconds(10), 0.022);  // was 0.020
}

TEST(CostCurveTest, OneOutlierIsForgotten) {
  CostCurve curve;
  curve.observe(4, 0.5);
  for (int i = 0; i < 100; ++i) curve.observe(4, 0.01);
  EXPECT_NEAR(curve.seconds(4), 0.01, 1e-3);
  curve.observe(4, 5);
  EXPECT_LT(curve.seconds(4), 0.014);
}

// Against all allocations, on small cases.
TEST(ChooseDraftsTest, NoBudgetPromisesMoreTokensASecond) {
  std::mt19937 rng(5);
  std::uniform_real_distribution<float> uniform(0, 1);
  DraftChoice choice;
  for (int round = 0; round < 500; ++round) {
    const double fixed = uniform(rng), each = uniform(rng), beside = uniform(rng);
    const CostCurve rows =
        curve_of([&](int64_t n) { return fixed + each * static_cast<double>(n) + 1e-3; }, 16);
    std::vector<std::vector<float>> survivals(1 + rng() % 3);
    std::vector<DraftView> views;
    for (auto& list : survivals) {
      float survival = 1;
      for (size_t k = 0, count = rng() % 5; k < count; ++k) list.push_back(survival *= uniform(rng));
      views.push_back({list, list});
    }
    const int64_t most = 1 + static_cast<int64_t>(rng() % 12);
    choose_drafts(views, {rows, beside}, most, choice);
    const auto rate_of = [&](const std::vector<int64_t>& drafts) {
      double tokens = static_cast<double>(views.size());
      int64_t total = 0;
      for (size_t s = 0; s < views.size(); ++s) {
        for (int64_t k = 0; k < drafts[s]; ++k) tokens += survivals[s][static_cast<size_t>(k)];
        total += drafts[s];
      }
      return tokens / (rows.seconds(std::ssize(views) + total) + beside);
    };
    int64_t total = 0;
    for (size_t s = 0; s < views.size(); ++s) {
      ASSERT_LE(choice.drafts[s], std::ssize(survivals[s]));
      total += choice.drafts[s];
    }
    ASSERT_LE(total, most);
    ASSERT_EQ(total, choice.total);
    std::vector<int64_t> drafts(views.size());
    double best = 0;
    const std::function<void(size_t, int64_t)> visit = [&](size_t s, int64_t left) {
      if (s == views.size()) {
        best = std::max(best, rate_of(drafts));
        return;
      }
      for (drafts[s] = 0; drafts[s] <= std::min(left, std::ssize(survivals[s])); ++drafts[s])
        visit(s + 1, left - drafts[s]);
      drafts[s] = 0;
    };
    visit(0, most);
    ASSERT_NEAR(rate_of(choice.drafts), best, 1e-9 * best);
  }
}

// In rejection mode: how many rows there are depends on older scores alone, and whether draft k is verified
// only on the scores of drafts up to k of its own sequence.
TEST(ChooseDraftsTest, WhatIsVerifiedDoesNotDependOnLaterScores) {
  std::mt19937 rng(6);
  std::uniform_real_distribution<float> uniform(0, 1);
  const CostCurve rows = curve_of([](int64_t n) { return 0.01 + 0.002 * static_cast<double>(n); });
  DraftChoice before, after;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::vector<float>> older(4), newest(4);
    std::vector<DraftView> views;
    for (size_t s = 0; s < 4; ++s) {
      float a = 1, b = 1;
      for (int k = 0; k < 5; ++k) {
        older[s].push_back(a *= uniform(rng));
        newest[s].push_back(b *= uniform(rng));
      }
      views.push_back({older[s], newest[s]});
    }
    choose_drafts(views, {rows, 0.001}, 20, before);
    const size_t s = rng() % 4, k = rng() % 5;
    float survival = k == 0 ? 1 : newest[s][k - 1];
    for (size_t later = k; later < 5; ++later) newest[s][later] = survival *= uniform(rng);
    choose_drafts(views, {rows, 0.001}, 20, after);
    EXPECT_EQ(before.total, after.total);
    for (size_t earlier = 0; earlier < k; ++earlier) {
      EXPECT_EQ(before.drafts[s] > static_cast<int64_t>(earlier),
                after.drafts[s] > static_cast<int64_t>(earlier));
    }
  }
}

TEST(ChooseDraftsTest, WithoutKnowledgeOfCostsAllAreVerified) {
  const std::vector<float> survivals = {0.5f, 0.2f};
  const std::vector<DraftView> views(3, {survivals, survivals});
  DraftChoice choice;
  choose_drafts(views, {CostCurve(), 0}, 5, choice);
  EXPECT_EQ(choice.total, 5);
  EXPECT_EQ(choice.seconds, 0);
}

// ---- simulation
// ------------------------------------------------------------------------------------------------------

struct Machine {
  const char* name;
  double (*rows)(double);
  double (*pass)(double);
};
// A step in units of a one-row step. Weights that are read once a step, then arithmetic; experts that each
// row adds; rows that cost the same each (models that lie in the caches).
constexpr Machine kMachines[] = {
    {"reads weights", [](double n) { return std::max(0.95, 0.03 * n) + 0.05 * n; },
     [](double n) { return 0.10 + 0.010 * n; }},
    {"reads experts", [](double n) { return 0.4 + 3.4 * (1 - std::pow(1 - 6.0 / 32, n)) + 0.02 * n; },
     [](double n) { return 0.12 + 0.02 * n; }},
    {"computes", [](double n) { return 0.02 + 0.98 * n; }, [](double n) { return 0.3 + 1.0 * n; }},
};

// Every stream has a level of its own that wanders; each draft a confidence around it that is right on
// average.
class Simulation {
 public:
  Simulation(const Machine& machine, int64_t streams, int drafts) : machine_(machine), fixed_(drafts) {
    streams_.resize(static_cast<size_t>(streams));
    for (size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].usual = streams_[i].level =
          0.5 + 0.4 * static_cast<double>(2 * i + 1) / static_cast<double>(2 * streams);
    }
  }

  // Tokens a second over `steps` behind a quarter of them, in which costs are learnt; fixed: drafts of every
  // stream (0: none are made), -1: the policy.
  double run(int64_t steps) {
    double tokens = 0, seconds = 0;
    std::mt19937_64 levels(7);  // the same for every policy
    CostCurve rows;
    DraftPolicy policy(5, DraftPolicy::Budget::kOlder);
    std::vector<DraftCandidate> candidates(streams_.size());
    for (int64_t step = 0; step < steps; ++step) {
      for (size_t i = 0; i < streams_.size(); ++i) {
        candidates[i] = {&streams_[i].profile, streams_[i].scores, true};
      }
      if (fixed_ < 0) policy.plan(candidates, rows, 1000);
      int64_t num_rows = 0, drafting = 0;
      for (size_t i = 0; i < streams_.size(); ++i) {
        Stream& stream = streams_[i];
        const int64_t count =
            fixed_ < 0 ? candidates[i].drafts : std::min<int64_t>(fixed_, std::ssize(stream.scores));
        const bool make = fixed_ < 0 ? candidates[i].make : fixed_ > 0;
        int64_t accepted = 0;
        double promised = 0, survival = 1;
        for (int64_t k = 0; k < count; ++k) promised += survival *= stream.scores[static_cast<size_t>(k)];
        while (accepted < count && uniform() < stream.scores[static_cast<size_t>(accepted)]) ++accepted;
        if (fixed_ < 0 && count > 0) policy.observe_verified(promised, static_cast<double>(accepted));
        tokens += static_cast<double>(1 + accepted);
        num_rows += 1 + count;
        drafting += make ? 1 : 0;
        const double step = std::uniform_real_distribution<double>(-0.04, 0.04)(levels);
        stream.level += step + 0.01 * (stream.usual - stream.level);
        stream.scores.clear();
        for (int k = 0; make && k < 5; ++k) {
          stream.scores.push_back(
              static_cast<float>(std::clamp(stream.level + 0.6 * (uniform() - 0.5), 0.02, 0.99)));
        }
      }
      const double pass = drafting > 0 ? noisy(machine_.pass(static_cast<double>(drafting))) : 0;
      const double time = noisy(machine_.rows(static_cast<double>(num_rows)));
      rows.observe(num_rows, time);
      if (drafting > 0) policy.observe_pass(drafting, pass);
      seconds += time + pass;
      if (step == steps / 4) tokens = seconds = 0;
    }
    return tokens / seconds;
  }

 private:
  struct Stream {
    double usual = 0, level = 0;
    std::vector<float> scores;
    DraftProfile profile;
  };
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(rng_); }
  double noisy(double seconds) { return seconds * (0.9 + 0.2 * uniform()) * (uniform() < 0.01 ? 4 : 1); }

  const Machine& machine_;
  const int fixed_;
  std::mt19937_64 rng_{11};
  std::vector<Stream> streams_;
};

TEST(DraftPolicyTest, BeatsEveryFixedLengthAndNeverLosesToNone) {
  for (const Machine& machine : kMachines) {
    for (const int64_t streams : {1, 4, 16, 64}) {
      const int64_t steps = 60000 / streams + 8000;
      const double off = Simulation(machine, streams, 0).run(steps);
      const double scheduled = Simulation(machine, streams, -1).run(steps);
      std::printf("%-14s %2lld streams: scheduled %.3f of off; fixed", machine.name,
                  static_cast<long long>(streams), scheduled / off);
      double best = 0;
      for (int drafts = 1; drafts <= 5; ++drafts) {
        const double fixed = Simulation(machine, streams, drafts).run(steps);
        best = std::max(best, fixed);
        std::printf(" %.3f", fixed / off);
      }
      std::printf("\n");
      EXPECT_GE(scheduled, 0.98 * off) << machine.name << ", " << streams;
      EXPECT_GT(scheduled, 0.99 * best)
          << machine.name << ", " << streams;  // where five always pay, they are the best
    }
  }
}

}  // namespace
}  // namespace deepinfer
