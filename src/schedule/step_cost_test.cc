#include "schedule/step_cost.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(StepCostTest, WithoutKnowledgeTheSliceIsTheLargest) {
  EXPECT_EQ(StepCost().prefill_slice(4, 1.8, 64), 64);
}

TEST(StepCostTest, TheSliceKeepsAStepWithinItsFactor) {
  StepCost cost;
  for (int i = 0; i < 200; ++i) {
    cost.observe(4, 0, 0.010);
    cost.observe(4, 16, 0.010 + 16 * 0.0005);
  }
  EXPECT_EQ(cost.prefill_slice(4, 1.8, 64), 16);  // 8 ms of prompt rows
  EXPECT_EQ(cost.prefill_slice(4, 3.0, 64), 40);
  EXPECT_EQ(cost.prefill_slice(4, 9.0, 64), 64);
  EXPECT_EQ(cost.prefill_slice(4, 1.0, 64), 1);
}

TEST(StepCostTest, SizesNotSeenYetTakeTheNearestThatWas) {
  StepCost cost;
  cost.observe(32, 0, 0.020);
  cost.observe(0, 100, 0.100);
  EXPECT_EQ(cost.prefill_slice(40, 2.0, 64), 20);
  EXPECT_EQ(cost.prefill_slice(1, 2.0, 64), 20);
}

}  // namespace
}  // namespace deepinfer
