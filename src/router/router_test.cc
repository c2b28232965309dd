#include "router/router.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace deepinfer {
namespace {

TEST(Router, CostIsInSeconds) {
  const RouteRequest request{.tokens = 1000, .seconds_per_token = 0.001};
  EXPECT_DOUBLE_EQ(route_cost(request, {.queued_s = 3}, 1), 4);
  EXPECT_DOUBLE_EQ(route_cost(request, {.queued_s = 3, .hit_tokens = 800, .load_s = 0.1}, 1), 4 - 0.7);
  EXPECT_DOUBLE_EQ(route_cost(request, {.queued_s = 3, .hit_tokens = 800, .load_s = 0.1}, 2), 4 - 1.4);
  EXPECT_DOUBLE_EQ(route_cost(request, {.hit_tokens = 800, .load_s = 5}, 1), 1)
      << "a load that does not pay is not done";
}

TEST(Router, DecodePressureIsSteepFrom85Percent) {
  EXPECT_EQ(decode_pressure({.running = 8, .max_running = 10, .kv_use = 0.85}), 0);
  EXPECT_NEAR(decode_pressure({.max_running = 10, .kv_use = 0.925}), kMostPressure / 4, 1e-9);
  EXPECT_DOUBLE_EQ(decode_pressure({.running = 10, .max_running = 10}), kMostPressure);
  EXPECT_DOUBLE_EQ(decode_pressure({.running = 30, .max_running = 10}), kMostPressure);
}

TEST(Router, CacheWeighsMoreUnderLoad) {
  EXPECT_EQ(cache_weight(0), 1);
  EXPECT_DOUBLE_EQ(cache_weight(0.35), 1.5);
  EXPECT_EQ(cache_weight(0.7), 2);
  EXPECT_EQ(cache_weight(5), 2);
}

TEST(Router, WeightDecidesBetweenAHitAndAShortQueue) {
  const RouteRequest request{.tokens = 1000, .seconds_per_token = 0.001};
  const std::vector<WorkerView> workers = {{.queued_s = 1.5, .hit_tokens = 1000}, {.queued_s = 0}};
  EXPECT_EQ(choose_worker(RoutePolicy::kCost, request, workers, 0), 1u);
  EXPECT_EQ(choose_worker(RoutePolicy::kCost2, request, workers, 0), 0u);
  EXPECT_EQ(choose_worker(RoutePolicy::kAdaptive, request, workers, 0, 0.0), 1u);
  EXPECT_EQ(choose_worker(RoutePolicy::kAdaptive, request, workers, 0, 0.9), 0u);
  EXPECT_EQ(choose_worker(RoutePolicy::kPrefix, request, workers, 0), 0u);
  EXPECT_EQ(choose_worker(RoutePolicy::kLeastQueue, request, workers, 0), 1u);
  EXPECT_EQ(choose_worker(RoutePolicy::kWeighted, request, workers, 0), 0u);
}

TEST(Router, ThresholdGivesWayToUnevenQueues) {
  const RouteRequest request{.tokens = 1000, .seconds_per_token = 0.001};
  std::vector<WorkerView> workers = {{.queued_s = 1, .hit_tokens = 600}, {.queued_s = 0}};
  EXPECT_EQ(choose_worker(RoutePolicy::kThreshold, request, workers, 0), 0u);
  workers[0].waiting = 40;
  EXPECT_EQ(choose_worker(RoutePolicy::kThreshold, request, workers, 0), 1u);
  workers[0].waiting = 0;
  workers[0].hit_tokens = 400;
  EXPECT_EQ(choose_worker(RoutePolicy::kThreshold, request, workers, 0), 1u);
}

TEST(Router, HashMovesOnlyWhatALostWorkerHad) {
  std::vector<WorkerView> workers(8);
  int moved = 0;
  std::vector<int> counts(8);
  for (uint64_t prefix = 0; prefix < 4000; ++prefix) {
    const auto before = choose_worker(RoutePolicy::kHash, {.tokens = 1, .prefix = prefix}, workers, prefix);
    const auto after =
        choose_worker(RoutePolicy::kHash, {.tokens = 1, .prefix = prefix}, std::span(workers).first(7), 77);
    ++counts[*before];
    if (*before != 7) {
      EXPECT_EQ(before, after);
    } else {
      ++moved;
    }
  }
  EXPECT_NEAR(moved, 500, 100);
  for (const int count : counts) EXPECT_NEAR(count, 500, 100);
}

// Whatever the views are, a worker at its cap gets nothing, and somebody gets it while anybody has room.
TEST(Router, CapsHoldForEveryPolicy) {
  constexpr uint64_t kSeed = 3;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<WorkerView> workers(1 + random() % 9);
    bool any = false;
    for (WorkerView& worker : workers) {
      worker = {.queued_s = static_cast<double>(random() % 5),
                .hit_tokens = static_cast<int64_t>(random() % 3 * 500),
                .running = static_cast<int64_t>(random() % 5),
                .max_running = 4,
                .waiting = static_cast<int64_t>(random() % 4),
                .max_waiting = 2};
      any |= worker.waiting < 2;
    }
    for (int policy = 0; policy < kNumRoutePolicies; ++policy) {
      const RouteRequest request{.tokens = 1000, .seconds_per_token = 0.001, .prefix = random()};
      const uint64_t number = random();
      const auto chosen = choose_worker(static_cast<RoutePolicy>(policy), request, workers, number);
      ASSERT_EQ(chosen.has_value(), any) << "seed " << kSeed;
      if (!chosen) continue;
      EXPECT_LT(workers[*chosen].waiting, 2);
      EXPECT_EQ(chosen, choose_worker(static_cast<RoutePolicy>(policy), request, workers, number))
          << "the same views, another worker";
    }
  }
}

TEST(Router, EqualWorkersAreUsedEvenly) {
  const std::vector<WorkerView> workers(4);
  std::vector<int> counts(4);
  for (uint64_t i = 0; i < 4000; ++i)
    ++counts[*choose_worker(RoutePolicy::kCost, {.tokens = 100, .seconds_per_token = 0.001}, workers, i)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Router, PoliciesHaveNames) {
  for (int policy = 0; policy < kNumRoutePolicies; ++policy)
    EXPECT_EQ(find_route_policy(route_policy_name(static_cast<RoutePolicy>(policy))), static_cast<RoutePolicy>(policy));
  EXPECT_FALSE(find_route_policy("fastest"));
}

}  // namespace
}  // namespace deepinfer
