#include "verify/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer::golden {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
using Floats = std::vector<float>;

TEST(CompareTest, OneBf16StepIsOneUlpOnBothSidesOfAPowerOfTwo) {
  EXPECT_EQ(worst_bf16_ulps(Floats{1.0f}, Floats{1.0078125f}, 1), 1);
  EXPECT_EQ(worst_bf16_ulps(Floats{0.99609375f}, Floats{1.0f}, 1), 1);
}

TEST(CompareTest, NearlyCancelledSumsAreMeasuredAgainstTheirRow) {
  // 1e-6 beside 1: off by its own size, yet within the rounding errors of the row's sums.
  EXPECT_LE(worst_bf16_ulps(Floats{1.0f, 1e-6f}, Floats{1.0f, 2e-6f}, 2), 1);
  EXPECT_GT(worst_bf16_ulps(Floats{1.0f, 1e-3f}, Floats{1.0f, 2e-3f}, 2), 1);
}

TEST(CompareTest, NanOrInfinityOnOneSideIsInfinitelyFar) {
  for (const float bad : {kNan, kInf}) {
    EXPECT_EQ(worst_absolute(Floats{1.0f}, Floats{bad}), kInf);
    EXPECT_EQ(worst_of_rms(Floats{1.0f}, Floats{bad}, 1), kInf);
    EXPECT_EQ(worst_bf16_ulps(Floats{1.0f}, Floats{bad}, 1), kInf);
    EXPECT_EQ(relative_rms(Floats{1.0f}, Floats{bad}), kInf);
    EXPECT_EQ(worst_absolute(Floats{bad}, Floats{bad}), 0);
  }
}

TEST(CompareTest, RelativeRmsIsTheLengthOfTheDifferenceInLengthsOfTheExpected) {
  EXPECT_DOUBLE_EQ(relative_rms(Floats{3.0f, 4.0f}, Floats{3.0f, 4.5f}), 0.1);
  EXPECT_EQ(relative_rms(Floats{0.0f}, Floats{0.0f}), 0);
  EXPECT_EQ(relative_rms(Floats{0.0f}, Floats{1.0f}), kInf);
}

TEST(CompareTest, RowsAreMeasuredEachAgainstItself) {
  const Floats expected = {100.0f, 100.0f, 1.0f, 1.0f}, found = {100.0f, 100.0f, 1.0f, 1.5f};
  EXPECT_EQ(worst_of_rms(expected, found, 2), 0.5);
  const auto rows = row_relative_rms(expected, found, 2);
  EXPECT_EQ(rows[0], 0);
  EXPECT_NEAR(rows[1], std::sqrt(0.125), 1e-12);
}

TEST(CompareTest, SignedZerosMismatchInBitsButNotInValue) {
  EXPECT_EQ(count_mismatches(Floats{0.0f, kNan}, Floats{-0.0f, -kNan}), 1);
  EXPECT_EQ(worst_absolute(Floats{0.0f}, Floats{-0.0f}), 0);
}

TEST(CompareTest, QuantileIsTheSmallestValueThatEnoughValuesDoNotExceed) {
  std::vector<double> values(100, 0.0);
  values[7] = 5;
  EXPECT_EQ(quantile(values, 0.99), 0);
  values[8] = 4;
  EXPECT_EQ(quantile(values, 0.99), 4);
  EXPECT_EQ(quantile({}, 0.99), 0);
}

}  // namespace
}  // namespace deepinfer::golden
