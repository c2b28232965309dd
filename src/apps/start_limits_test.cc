#include "apps/start_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace deepinfer {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// Weights of 100 MiB, 1,000 KV blocks of 1 MiB (10 a context), 50 MiB for the rest.
StartNeeds needs_of(uint64_t threads = 4) {
  StartNeeds needs;
  needs.plan.model = {
      .weight_bytes = 100 * kMiB, .kv_block_bytes = kMiB, .kv_blocks = 1000, .workspace_bytes = 50 * kMiB};
  needs.context_blocks = 10;
  needs.threads = threads;
  needs.thread_flags = "--threads or --http-threads";
  return needs;
}

std::string refusal(const StartNeeds& needs, const StartLimits& limits) {
  const Status status = check_start(needs, limits);
  return status.ok() ? "" : status.error().message();
}

TEST(StartLimits, TheSentenceHasBothNumbersAndTheFlagThatHelps) {
  EXPECT_EQ(refusal(needs_of(), {.memory = {{4096 * kMiB, "this machine's memory"}}}), "");
  const std::string text =
      refusal(needs_of(), {.memory = {{600 * kMiB, "the memory limit of cgroup /a (memory.max)"}}});
  EXPECT_THAT(text,
              HasSubstr("takes 1246 MiB and the memory limit of cgroup /a (memory.max) is 600 MiB: --kv-blocks "));
  StartNeeds fewer = needs_of();
  fewer.plan.model.kv_blocks = std::stoull(text.substr(text.find("--kv-blocks ") + 12));
  EXPECT_EQ(refusal(fewer, {.memory = {{600 * kMiB, ""}}}), "") << text;
  ++fewer.plan.model.kv_blocks;
  EXPECT_NE(refusal(fewer, {.memory = {{600 * kMiB, ""}}}), "") << text;
}

TEST(StartLimits, WhereNoWholeContextFitsOtherFlagsAreNamed) {
  EXPECT_THAT(refusal(needs_of(), {.memory = {{250 * kMiB, "this machine's memory"}}}),
              HasSubstr("lower --max-running"));
  EXPECT_THAT(refusal(needs_of(), {.memory = {{150 * kMiB, "this machine's memory"}}}), HasSubstr("the weights alone"));
}

TEST(StartLimits, ThreadsAndTheirAddressesNameTheFlagsOfThreads) {
  EXPECT_EQ(refusal(needs_of(10), {.threads = {{9, "what pids.max of cgroup / leaves"}}}),
            "this start takes 10 threads and what pids.max of cgroup / leaves is 9: lower --threads or --http-threads");
  EXPECT_EQ(refusal(needs_of(10), {.threads = {{10, "what pids.max leaves"}}}), "");
  EXPECT_THAT(refusal(needs_of(100), {.address_space = {{2000 * kMiB, "ulimit -v"}}}), HasSubstr("lower --threads"));
  EXPECT_EQ(refusal(needs_of(4), {.address_space = {{2000 * kMiB, "ulimit -v"}}}), "");
}

class ReadStartLimits : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string root_ = testing::TempDir() + "start_limits";
};

TEST_F(ReadStartLimits, EveryGroupAboveTheProcessCounts) {
  write("/proc/meminfo", "MemTotal:       24683520 kB\nMemFree:  1 kB\n");
  write("/proc/self/cgroup", "0::/system.slice/a.service\n");
  write("/sys/fs/cgroup/system.slice/a.service/memory.max", "max\n");
  write("/sys/fs/cgroup/system.slice/memory.max", "314572800\n");
  write("/sys/fs/cgroup/system.slice/a.service/pids.max", "20\n");
  write("/sys/fs/cgroup/system.slice/a.service/pids.current", "3\n");
  const StartLimits limits = read_start_limits(root_);
  ASSERT_EQ(limits.memory.size(), 2u);
  EXPECT_EQ(limits.memory[0].most, 24683520ull << 10);
  EXPECT_EQ(limits.memory[1].most, 314572800u);
  EXPECT_EQ(limits.memory[1].what, "the memory limit of cgroup /system.slice (memory.max)");
  ASSERT_EQ(limits.threads.size(), 1u);
  EXPECT_EQ(limits.threads[0].most, 17u);
}

TEST_F(ReadStartLimits, VersionOneHasAFolderForEachController) {
  write("/proc/self/cgroup", "9:pids:/box\n4:memory:/box\n1:name=systemd:/box\n");
  write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1048576\n");
  write("/sys/fs/cgroup/pids/box/pids.max", "8\n");
  const StartLimits limits = read_start_limits(root_);
  ASSERT_EQ(limits.memory.size(), 1u);
  EXPECT_EQ(limits.memory[0].most, 1048576u);
  ASSERT_EQ(limits.threads.size(), 1u);
  EXPECT_EQ(limits.threads[0].most, 8u);
}

TEST_F(ReadStartLimits, AMachineWithoutAnyOfThemHasNoLimits) {
  const StartLimits limits = read_start_limits(root_);
  EXPECT_TRUE(limits.memory.empty() && limits.threads.empty() && limits.address_space.empty());
}

}  // namespace
}  // namespace deepinfer
