#include "apps/progress_bar.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(ProgressText, SpeedAndTimeComeOnceThereIsEnoughToTellThemFrom) {
  const auto text = [](uint64_t done, uint64_t total, int milliseconds) {
    return progress_text({done, total, std::chrono::milliseconds(milliseconds)});
  };
  EXPECT_EQ(text(0, 8'000'000, 150), "0.00 of 0.01 GB");
  EXPECT_EQ(text(70'000, 8'000'000, 100), "0.00 of 0.01 GB");
  EXPECT_EQ(text(0, 1'000'000'000, 5'000), "0.00 of 1.00 GB");
  EXPECT_EQ(text(10'000'000, 1'000'000'000, 600), "0.01 of 1.00 GB");
  EXPECT_EQ(text(250'000'000, 1'000'000'000, 1'000), "0.25 of 1.00 GB, 0.25 GB/s, 3.0 s left");
}

}  // namespace
}  // namespace deepinfer
