#include <gtest/gtest.h>

#include <random>
#include <set>

#include "simulator/histogram.h"
#include "simulator/shared_store.h"
#include "simulator/step_times.h"
#include "simulator/traffic.h"

namespace deepinfer::simulator {
namespace {

TEST(Histogram, PercentilesAreWithinABin) {
  Histogram histogram;
  for (int i = 1; i <= 10000; ++i) histogram.add(i * 1e-3);
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0})
    EXPECT_NEAR(histogram.percentile(share) / (10 * share), 1, 0.02) << share;
  EXPECT_NEAR(histogram.mean(), 5.0005, 1e-9);
  EXPECT_EQ(Histogram().percentile(0.5), 0);
  Histogram ends;
  ends.add(0);
  ends.add(1e12, 3);
  EXPECT_LT(ends.percentile(0.1), 2e-6);
  EXPECT_GT(ends.percentile(0.9), 1e6);
}

TEST(StepTimes, LinesBetweenKnots) {
  const auto times = parse_step_times(R"({"decode": [[1, 0.1], [4, 0.2], [16, 0.5]], "prefill_row_seconds": 0.01})");
  ASSERT_TRUE(times.ok()) << times.error().message();
  EXPECT_EQ(times->decode_seconds(0), 0);
  EXPECT_DOUBLE_EQ(times->decode_seconds(1), 0.1);
  EXPECT_DOUBLE_EQ(times->decode_seconds(10), 0.35);
  EXPECT_DOUBLE_EQ(times->decode_seconds(32), 0.9) << "the last line goes on";
  EXPECT_DOUBLE_EQ(times->step_seconds(4, 10, 5), 0.2 + 0.2);
}

TEST(StepTimes, OfAServerAreThoseOfTheMachineModel) {
  const auto times = step_times_of("cpu:2x64c-ddr5,nvme:2");
  ASSERT_TRUE(times.ok());
  EXPECT_NEAR(times->decode_seconds(16), 0.099, 0.001);
  EXPECT_NEAR(1 / times->prefill_row_s, 1128, 1);
  EXPECT_EQ(times->load_bytes_per_s, 12e9);
  EXPECT_FALSE(step_times_of("cpu:nothing").ok());
  EXPECT_FALSE(step_times_of("nothing").ok());
}

TEST(StepTimes, BadOnesAreRefused) {
  const auto refused = [](std::string_view json) {
    const auto times = parse_step_times(json);
    EXPECT_FALSE(times.ok()) << json;
    return times.ok() ? "" : times.error().message();
  };
  EXPECT_EQ(refused(R"({"decode": [[1, -0.1]], "prefill_row_seconds": 0.01})"),
            "decode[0][1]: found -0.1, expected a number above 0");
  EXPECT_EQ(refused(R"({"decode": [[4, 1], [4, 2]], "prefill_row_seconds": 0.01})"),
            "decode[1]: found 4 rows behind 4, expected more");
  EXPECT_EQ(refused(R"({"decode": [], "prefill_row_seconds": 0.01})"),
            "decode: found no pair, expected [[rows, seconds], ...]");
  refused(R"({"decode": [[1, 0.1]]})");
  refused(R"({"decode": [1], "prefill_row_seconds": 1})");
  refused("{");
}

TEST(Traffic, CopiesHavePrefixesOfTheirOwn) {
  const auto trace =
      planner::parse_trace(R"({"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 600, "output_length": 0, "hash_ids": [1, 3]})",
                           "t");
  ASSERT_TRUE(trace.ok());
  const Traffic one = scale_trace(*trace, 1, 7), three = scale_trace(*trace, 3, 7);
  ASSERT_EQ(one.requests.size(), 2u);
  EXPECT_EQ(one.requests[1].output, 1) << "a request draws at least one token";
  ASSERT_EQ(three.requests.size(), 6u);
  EXPECT_EQ(std::set<int64_t>(three.ids.begin(), three.ids.end()).size(), 9u);
  for (size_t i = 1; i < three.requests.size(); ++i)
    EXPECT_LE(three.requests[i - 1].arrival_s, three.requests[i].arrival_s);
  const Traffic again = scale_trace(*trace, 3, 7);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(three.requests[i].arrival_s, again.requests[i].arrival_s);
}

TEST(Traffic, KeysTellBlocksApart) {
  std::set<PrefixKey> keys;
  std::set<size_t> hashes;
  for (int64_t id = 0; id < 2000; ++id)
    for (int64_t part = 0; part < 4; ++part) {
      keys.insert(block_key(id, part));
      hashes.insert(PrefixKeyHash()(block_key(id, part)));
    }
  EXPECT_EQ(keys.size(), 8000u);
  EXPECT_EQ(hashes.size(), 8000u);
  EXPECT_GE(block_token(block_key(5, 1)), 0) << "negative ones stand for what is like nothing else";
}

TEST(Traffic, SessionsSendWhatWasSaidBefore) {
  const SessionOptions options{.sessions_per_s = 0.05, .hours = 1};
  const Traffic traffic = draw_sessions(options, 1);
  ASSERT_GT(traffic.requests.size(), 300u);
  std::set<int64_t> seen;
  int64_t repeated = 0, all = 0;
  for (const Request& request : traffic.requests) {
    EXPECT_GE(request.input / 128, request.num_ids);
    for (int64_t i = 0; i < request.num_ids; ++i, ++all)
      repeated += seen.insert(traffic.ids[static_cast<size_t>(request.first_id + i)]).second ? 0 : 1;
  }
  EXPECT_GT(repeated, all / 2);
  const Traffic again = draw_sessions(options, 1), other = draw_sessions(options, 2);
  EXPECT_EQ(again.ids, traffic.ids);
  EXPECT_NE(other.ids, traffic.ids);
}

SharedStore::Options store_of(int64_t blocks, double retention_s) {
  return {.num_blocks = blocks, .retention_s = retention_s};
}

TEST(SharedStore, WithoutPromisesTheOldestGoes) {
  SharedStore store(store_of(3, 0));
  for (int64_t id = 0; id < 5; ++id) store.put(block_key(id, 0), static_cast<double>(id));
  EXPECT_EQ(store.num_blocks(), 3);
  EXPECT_FALSE(store.age(block_key(1, 0), 9));
  EXPECT_EQ(store.age(block_key(2, 0), 9), 7);
  store.put(block_key(2, 0), 10);
  EXPECT_EQ(store.age(block_key(2, 0), 12), 10) << "a block that is there is not written again";
}

TEST(SharedStore, PromisedBlocksStayAndNewOnesAreRefused) {
  SharedStore store({.num_blocks = 10, .retention_s = 24 * 3600, .promised_share = 0.8});
  for (int64_t id = 0; id < 30; ++id) store.put(block_key(id, 0), 0);
  for (int64_t id = 0; id < 8; ++id) EXPECT_TRUE(store.age(block_key(id, 0), 0)) << id;
  EXPECT_EQ(store.num_blocks(), 10);
  EXPECT_EQ(store.refused(), 0) << "what isn't promised gives way";
  store.put(block_key(100, 0), 26 * 3600);  // the promises have ended
  EXPECT_TRUE(store.age(block_key(100, 0), 26 * 3600));
  SharedStore full({.num_blocks = 10, .retention_s = 24 * 3600, .promised_share = 1});
  for (int64_t id = 0; id < 30; ++id) full.put(block_key(id, 0), 0);
  EXPECT_EQ(full.refused(), 20);
  full.put(block_key(100, 0), 23 * 3600);
  EXPECT_FALSE(full.age(block_key(100, 0), 23 * 3600));
  full.put(block_key(101, 0), 26 * 3600);
  EXPECT_TRUE(full.age(block_key(101, 0), 26 * 3600));
}

}  // namespace
}  // namespace deepinfer::simulator
