#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/checked_math.h"
#include "base/counters.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/random.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace deepinfer {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error(Code::kInvalidArgument, "half: found {}, expected an even number", value);
  return value / 2;
}

Status check_quarter(int value) {
  ASSIGN_OR_RETURN(const int halved, half(value));
  RETURN_IF_ERROR(half(halved));
  return {};
}

TEST(StatusTest, ErrorsTravelWithCodeAndMessage) {
  EXPECT_TRUE(check_quarter(8).ok());
  const Status failed = check_quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(failed.error().message(), "half: found 3, expected an even number");
  EXPECT_EQ(failed.error().in("load").message(), "load: half: found 3, expected an even number");
}

TEST(CheckedMathTest, OverflowIsSeen) {
  EXPECT_EQ(checked_mul(3, 5), 15u);
  EXPECT_EQ(checked_mul(SIZE_MAX, 2), std::nullopt);
  EXPECT_EQ(checked_add(SIZE_MAX, 1), std::nullopt);
  EXPECT_EQ(round_up(129, 128), 256u);
}

TEST(AlignedBufferTest, SmallAndLargeBuffersAreAlignedAndZero) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    auto buffer = AlignedBuffer::allocate(size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    for (const std::byte value : buffer->bytes()) ASSERT_EQ(value, std::byte{0});
  }
}

TEST(AlignedBufferTest, AnImpossibleSizeIsAnError) {
  const auto buffer = AlignedBuffer::allocate(SIZE_MAX / 4);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code(), Code::kResourceExhausted);
}

// docs/spec/model.md A.6: key = seed, counter = (0, 0, sequence low, sequence high).
TEST(PhiloxTest, MatchesThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(1234, {0, 0, 0, 0}), (Words{0x2090b348, 0xda7cf0ab, 0x4401906f, 0xcbca470e}));
  EXPECT_EQ(philox4x32(1234, {0, 0, 3, 0}), (Words{0xa8faf0a4, 0xbf4a632d, 0xabd21f9f, 0x677b289a}));
  EXPECT_EQ(philox4x32(UINT64_MAX, {0, 0, 1, 0})[0], 0xa74236edu);
}

TEST(ThreadPoolTest, EveryIndexIsVisitedOnceForAnyThreadCount) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& visit : visits) ASSERT_EQ(visit.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, ManyRegionsInARowStayCorrect) {
  ThreadPool pool(2);
  int64_t total = 0;
  for (int round = 0; round < 5000; ++round) {
    int64_t parts[2] = {0, 0};
    pool.parallel_for(2, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) parts[i] = round;
    });
    total += parts[0] + parts[1];
  }
  EXPECT_EQ(total, int64_t{5000} * 4999);
}

// Late workers meet regions that are over, being replaced or new; whichever claims, each range runs once.
TEST(ThreadPoolTest, MoreThreadsThanCoresRunEachRangeOnce) {
  ThreadPool pool(17);
  std::vector<std::atomic<int>> visits(17);
  for (int round = 1; round <= 2000; ++round) {
    const int64_t count = 2 + round % 16;
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    int64_t total = 0;
    for (auto& visit : visits) total += visit.exchange(0);
    ASSERT_EQ(total, count);
  }
}

// Random phases with random needs: no share begins before what it needs has ended, each runs once, and all have run when
// run() returns.
TEST(ThreadPoolTest, SharesWaitForWhatTheyNeedAndRunOnce) {
  struct Trace {
    std::vector<std::atomic<int>> runs = std::vector<std::atomic<int>>(Region::kMaxShares);
    std::atomic<int> early{0};
    struct PhaseNeeds {
      int shares = 0;
      std::vector<std::pair<int, bool>> needs;  // phase, same share
    };
    std::vector<PhaseNeeds> phases;

    void run(int phase, const Share& share) {
      for (const auto& [needed, same] : phases[phase].needs) {
        const int count = phases[needed].shares;
        for (int i = 0; i < count; ++i) {
          const bool overlaps = i * share.count < (share.index + 1) * count && (i + 1) * share.count > share.index * count;
          if ((!same || overlaps) && runs[64 * needed + i] != 1) ++early;
        }
      }
      ++runs[64 * phase + share.index];
    }
  };
  std::mt19937 rng(7);
  const auto pick = [&](int most) { return static_cast<int>(rng() % static_cast<unsigned>(most)); };
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    Region region;
    Region::Phase before = Region::kNone;  // of the region before: has ended
    for (int round = 0; round < 2000; ++round) {
      Trace trace;
      std::vector<Region::Phase> added;
      for (int phase = 0, count = 1 + pick(6); phase < count; ++phase) {
        trace.phases.emplace_back();
        trace.phases.back().shares = 1 + pick(7);
        std::vector<Region::Need> needs = {before, before};
        if (phase > 0) {
          for (Region::Need& need : needs) {
            if (pick(3) == 0) continue;
            const int needed = pick(phase);
            const bool same = pick(2) == 0;
            trace.phases.back().needs.emplace_back(needed, same);
            need = {added[needed], same};
          }
        }
        auto* const all = &trace;
        added.push_back(region.add(trace.phases.back().shares, {needs[0], needs[1]},
                                   [all, phase](const Share& share) { all->run(phase, share); }));
      }
      pool.run(region);
      region.clear();
      before = added.back();
      ASSERT_EQ(trace.early, 0) << "round " << round;
      int shares = 0, runs = 0;
      for (const auto& phase : trace.phases) shares += phase.shares;
      for (const auto& run : trace.runs) runs += run;
      ASSERT_EQ(runs, shares) << "round " << round;
    }
  }
}

TEST(ThreadPoolTest, AShareKnowsItsThreadAndThePoolCountsRegions) {
  ThreadPool pool(3);
  Region region;
  std::atomic<int> strange{0};
  auto* const bad = &strange;
  region.add(30, {}, [bad](const Share& share) { *bad += share.thread < 0 || share.thread >= 3 || share.count != 30; });
  const uint64_t before = pool.num_regions();
  pool.run(region);
  region.clear();
  EXPECT_EQ(strange, 0);
  EXPECT_EQ(pool.num_regions(), before + 1);
  region.add(1, {}, [](const Share&) {});  // nothing to share: the caller alone
  pool.run(region);
  EXPECT_EQ(pool.num_regions(), before + 1);
}

class ReadFileTest : public testing::Test {
 protected:
  ~ReadFileTest() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "read_file_test_" + std::to_string(::getpid());
};

TEST_F(ReadFileTest, BytesAreReadAtTheirPlaceAndTheEndIsDataLoss) {
  std::ofstream(path_) << "0123456789";
  const auto file = ReadFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), 10u);
  std::string text(3, ' ');
  ASSERT_TRUE(file->read(4, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "456");
  EXPECT_EQ(file->read(8, std::as_writable_bytes(std::span(text))).error().code(), Code::kDataLoss);
  std::filesystem::resize_file(path_, 5);  // shrinks after it was opened
  EXPECT_EQ(file->read(4, std::as_writable_bytes(std::span(text))).error().message(),
            path_ + ": the file ends at byte 5, expected 2 more (it had 10 bytes when it was opened)");
}

TEST_F(ReadFileTest, TextHasALimit) {
  std::ofstream(path_) << "0123456789";
  EXPECT_EQ(*ReadFile::read_text(path_, 10), "0123456789");
  EXPECT_EQ(ReadFile::read_text(path_, 9).error().code(), Code::kResourceExhausted);
}

TEST_F(ReadFileTest, WhatIsNoFileIsAnErrorAndNeverAWait) {
  EXPECT_EQ(ReadFile::open(path_).error().code(), Code::kNotFound);
  EXPECT_EQ(ReadFile::open(path_ + "/below").error().code(), Code::kNotFound);
  EXPECT_EQ(ReadFile::open(testing::TempDir()).error().code(), Code::kIo);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ReadFile::open(path_).error().code(), Code::kIo);
}

TEST(PrintableTest, ControlCharactersAreSpelled) {
  EXPECT_EQ(printable(std::string_view("a\n\x1b[1m\0\x7f\xc3\xa9", 10)), R"(a\x0a\x1b[1m\x00\x7fé)");
}

TEST(CountersTest, CountersKeepTheirOrderAndValue) {
  Counters counters;
  counters.get("requests").add(2);
  counters.get("tokens").set(7);
  counters.get("requests").add();
  const auto readings = counters.read_all();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_EQ(readings[0].name, "requests");
  EXPECT_EQ(readings[0].value, 3);
  EXPECT_EQ(readings[1].value, 7);
}

TEST(LogTest, AnUnknownLevelIsAnError) {
  EXPECT_FALSE(init_logging("loud").ok());
  EXPECT_TRUE(init_logging("warn").ok());
}

}  // namespace
}  // namespace deepinfer
