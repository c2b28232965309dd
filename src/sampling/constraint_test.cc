#include "sampling/constraint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace deepinfer {
namespace {

TEST(ApplyMask, ForbidsEveryIdWithoutItsBit) {
  std::vector<float> logits(70);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  apply_mask(std::vector<uint32_t>{0x80000001, ~uint32_t{0}, 0x20}, logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool allowed = i == 0 || (i >= 31 && i < 64) || i == 69;
    EXPECT_EQ(logits[i], allowed ? static_cast<float>(i) : -INFINITY) << i;
  }
}

}  // namespace
}  // namespace deepinfer
