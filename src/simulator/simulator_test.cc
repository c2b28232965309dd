#include "simulator/simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deepinfer::simulator {
namespace {

// Times of a small server: 0.1 s a decode step, growing; 1 ms a row of prefill.
StepTimes small_times() {
  StepTimes times;
  times.decode = {{1, 0.1}, {16, 0.2}};
  times.prefill_row_s = 0.001;
  return times;
}

Cluster small_cluster(int64_t workers = 1) {
  Cluster cluster;
  cluster.workers = workers;
  cluster.times = small_times();
  cluster.worker.num_blocks = 2000;
  return cluster;
}

Traffic requests(std::initializer_list<Request> list) {
  Traffic traffic;
  traffic.id_tokens = 128;
  traffic.requests = list;
  for (int64_t id = 0; id < 100; ++id) traffic.ids.push_back(id);
  return traffic;
}

Results run(const Cluster& cluster, const Traffic& traffic) {
  auto results = simulate(cluster, traffic);
  EXPECT_TRUE(results.ok()) << results.error().message();
  return std::move(*results);
}

// What must hold of every run: everybody got all tokens, and every token of a prompt was hit or computed once.
void expect_complete(const Results& results, const Traffic& traffic) {
  int64_t input = 0, output = 0;
  for (const Request& request : traffic.requests) {
    input += request.input;
    output += request.output;
  }
  EXPECT_EQ(results.tally.finished, std::ssize(traffic.requests));
  EXPECT_EQ(results.tally.input_tokens, input);
  EXPECT_EQ(results.tally.output_tokens, output);
  EXPECT_EQ(results.tally.ttft.count(), std::ssize(traffic.requests));
  EXPECT_EQ(results.tally.tbt.count(), output - std::ssize(traffic.requests));
  EXPECT_LE(results.utilisation, 1 + 1e-9);
}

TEST(Simulator, ALoneRequestTakesItsPrefillAndItsSteps) {
  const Traffic traffic = requests({{.arrival_s = 5, .input = 1000, .output = 11}});
  const Results results = run(small_cluster(), traffic);
  expect_complete(results, traffic);
  // 860 rows of the encoder half, 140 of all layers; then ten steps of one row.
  EXPECT_NEAR(results.tally.ttft.mean(), 0.860 + 0.280, 1e-9);
  EXPECT_NEAR(results.tally.tbt.mean(), 0.1, 1e-9);
  EXPECT_NEAR(results.seconds, 5 + 1.14 + 1, 1e-9);
}

TEST(Simulator, ASecondTurnComputesOnlyWhatIsNew) {
  const Traffic traffic = requests({{.arrival_s = 0, .input = 1280, .output = 2, .first_id = 0, .num_ids = 10},
                                    {.arrival_s = 10, .input = 1500, .output = 2, .first_id = 0, .num_ids = 11}});
  const Results results = run(small_cluster(), traffic);
  expect_complete(results, traffic);
  // The last block of the first prompt held its last token, which is computed always but published.
  EXPECT_EQ(results.tally.hit_tokens, 1280);
  EXPECT_EQ(results.tally.misses[static_cast<size_t>(MissReason::kAbsent)], 2);
}

TEST(Simulator, ABatchSharesItsSteps) {
  Traffic traffic;
  for (int i = 0; i < 16; ++i) traffic.requests.push_back({.arrival_s = 0, .input = 10, .output = 100});
  const Results results = run(small_cluster(), traffic);
  expect_complete(results, traffic);
  EXPECT_LT(results.seconds, 100 * 0.2 + 16 * 100 * 0.001);
  EXPECT_GT(results.output_per_s, 70);
}

Traffic random_traffic(uint64_t seed, int count, double mean_gap_s = 1.25) {
  std::mt19937_64 random(seed);
  Traffic traffic;
  traffic.id_tokens = 128;
  double when = 0;
  int64_t next = 0;
  for (int i = 0; i < count; ++i) {
    when += 2 * mean_gap_s * std::ldexp(static_cast<double>(random() >> 11), -53);  // never at the end of a step
    const int64_t ids = static_cast<int64_t>(random() % 20), tail = static_cast<int64_t>(1 + random() % 127);
    Request request{when, ids * 128 + tail, static_cast<int64_t>(1 + random() % 400), std::ssize(traffic.ids), ids};
    const int64_t chain = static_cast<int64_t>(random() % 6) * 1000;
    for (int64_t j = 0; j < ids; ++j) traffic.ids.push_back(j < 12 ? chain + j : 100000 + next++);
    traffic.requests.push_back(request);
  }
  return traffic;
}

TEST(Simulator, EqualStepsAsOneEventChangeNothing) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Traffic traffic = random_traffic(seed, 150, 12);
    Cluster cluster = small_cluster();
    const Results fast = run(cluster, traffic);
    cluster.worker.coalesce = false;
    const Results slow = run(cluster, traffic);
    expect_complete(fast, traffic);
    EXPECT_EQ(fast.tally.steps, slow.tally.steps) << "seed " << seed;
    EXPECT_LT(fast.tally.events * 4, slow.tally.events);
    EXPECT_EQ(fast.tally.hit_tokens, slow.tally.hit_tokens);
    EXPECT_NEAR(fast.tally.ttft.mean(), slow.tally.ttft.mean(), 1e-6);
    EXPECT_NEAR(fast.tally.tbt.mean(), slow.tally.tbt.mean(), 1e-6);
    EXPECT_NEAR(fast.seconds, slow.seconds, 1e-6);
  }
}

TEST(Simulator, RandomClustersFinishEverythingAndRepeatBySeed) {
  constexpr uint64_t kSeed = 20261201;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 25; ++i) {
    const Traffic traffic = random_traffic(random(), 120);
    Cluster cluster = small_cluster(1 + static_cast<int64_t>(random() % 5));
    cluster.policy = static_cast<RoutePolicy>(random() % kNumRoutePolicies);
    cluster.worker.num_blocks = 30 + static_cast<int64_t>(random() % 200);
    cluster.worker.max_running = 1 + static_cast<int64_t>(random() % 12);
    cluster.worker.kept_states = static_cast<int64_t>(random() % 4);
    cluster.worker.reserve_tokens = static_cast<int64_t>(random() % 300);
    cluster.max_waiting = random() % 2 == 0 ? INT64_MAX : 1 + static_cast<int64_t>(random() % 3);
    cluster.store = {.num_blocks = static_cast<int64_t>(random() % 3 * 500),
                     .retention_s = static_cast<double>(random() % 2 * 7200)};
    cluster.seed = random();
    const Results one = run(cluster, traffic), two = run(cluster, traffic);
    expect_complete(one, traffic);
    EXPECT_EQ(one.events, two.events) << "seed " << kSeed << " case " << i;
    EXPECT_EQ(one.tally.hit_tokens, two.tally.hit_tokens);
    EXPECT_EQ(one.tally.preempted, two.tally.preempted);
    EXPECT_EQ(one.seconds, two.seconds);
    EXPECT_EQ(one.tally.ttft.mean(), two.tally.ttft.mean());
  }
}

TEST(Simulator, ShortOfBlocksAnswersGiveWayAndEnd) {
  Traffic traffic;
  for (int i = 0; i < 8; ++i) traffic.requests.push_back({.arrival_s = 0.01 * i, .input = 200, .output = 1500});
  Cluster cluster = small_cluster();
  cluster.worker.num_blocks = 30;
  cluster.worker.reserve_tokens = 0;
  const Results results = run(cluster, traffic);
  expect_complete(results, traffic);
  EXPECT_GT(results.tally.preempted, 0);
}

TEST(Simulator, PoliciesRankAsInTheReplay) {
  const Traffic traffic = draw_sessions({.sessions_per_s = 0.12, .hours = 1}, 5);
  Cluster cluster = small_cluster(8);
  cluster.times.decode = {{1, 0.02}, {16, 0.03}};
  cluster.worker.num_blocks = 3000;
  const auto with = [&](RoutePolicy policy, int64_t store_blocks) {
    cluster.policy = policy;
    cluster.store.num_blocks = store_blocks;
    return run(cluster, traffic);
  };
  const Results least = with(RoutePolicy::kLeastQueue, 0), cost1 = with(RoutePolicy::kCost, 0),
                cost2 = with(RoutePolicy::kCost2, 0), store = with(RoutePolicy::kLeastQueue, 1 << 20);
  EXPECT_LT(least.hit() + 0.1, cost1.hit());
  EXPECT_LE(cost1.hit(), cost2.hit() + 0.01);
  EXPECT_LE(cost2.hit(), store.hit() + 0.01);
  EXPECT_LT(store.tally.ttft.percentile(0.5), least.tally.ttft.percentile(0.5));
  EXPECT_LT(cost2.tally.ttft.percentile(0.5), least.tally.ttft.percentile(0.5));
  EXPECT_GT(store.store_hit(), 0.2);
  EXPECT_GT(store.tally.store_age.count(), 0);
}

TEST(Simulator, TheSmallestClusterMeetsItsObjectiveAndOneLessDoesNot) {
  const Traffic traffic = draw_sessions({.sessions_per_s = 0.1, .hours = 0.5}, 9);
  Cluster cluster = small_cluster();
  cluster.worker.num_blocks = 8000;
  cluster.worker.prefill_rows = 512;
  cluster.worker.decode_slowdown = 8;
  const Objective objective{.ttft_p90 = 20};
  const auto sized = smallest_cluster(cluster, traffic, objective, 32);
  ASSERT_TRUE(sized.ok()) << sized.error().message();
  ASSERT_TRUE(sized->has_value());
  EXPECT_TRUE(meets(objective, (*sized)->results));
  ASSERT_GT((*sized)->workers, 1);
  cluster.workers = (*sized)->workers - 1;
  EXPECT_FALSE(meets(objective, run(cluster, traffic)));
  const auto never = smallest_cluster(cluster, traffic, {.tbt_p50 = 1e-6}, 2);
  ASSERT_TRUE(never.ok());
  EXPECT_FALSE(never->has_value());
}

TEST(Simulator, WhatCanNotRunIsRefused) {
  Cluster cluster = small_cluster();
  cluster.worker.num_blocks = 10;
  const Traffic traffic = requests({{.arrival_s = 0, .input = 5000, .output = 1}});
  EXPECT_EQ(simulate(cluster, traffic).error().message(),
            "request 1: 5000 tokens of input and 1 of output need 41 KV blocks, found 10 a worker; expected more "
            "(--kv-blocks)");
  cluster.workers = 0;
  EXPECT_FALSE(simulate(cluster, traffic).ok());
  cluster = small_cluster();
  cluster.worker.max_running = 0;
  EXPECT_FALSE(simulate(cluster, traffic).ok());
  cluster = small_cluster();
  cluster.times.prefill_row_s = 0;
  EXPECT_FALSE(simulate(cluster, traffic).ok());
}

}  // namespace
}  // namespace deepinfer::simulator
