#include "speculate/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace deepinfer {
namespace {

TEST(CalibrationTest, ATemperatureStretchesTheSigmoid) {
  EXPECT_FLOAT_EQ(calibrated(0, 3), 0.5f);
  EXPECT_FLOAT_EQ(calibrated(2, 2), 1 / (1 + std::exp(-1.0f)));
  EXPECT_GE(calibrated(-1e30f, 1), 0);
  EXPECT_LE(calibrated(1e30f, 1), 1);
}

// Confidences that are too sure by a factor: the fit finds the factor and the calibration error falls.
TEST(CalibrationTest, TheFitFindsTheTemperatureThatOutcomesWereDrawnWith) {
  std::mt19937_64 rng(4);
  std::normal_distribution<float> raw(1, 4);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const float truth : {0.5f, 1.0f, 2.5f}) {
    std::vector<Tested> tested;
    CalibrationError before, after;
    for (int i = 0; i < 40000; ++i) {
      const float value = raw(rng);
      tested.push_back({value, uniform(rng) < calibrated(value, truth)});
    }
    const float fitted = fit_temperature(tested);
    EXPECT_NEAR(fitted, truth, 0.06 * truth);
    for (const auto& [value, accepted] : tested) {
      before.add(calibrated(value, 1), accepted);
      after.add(calibrated(value, fitted), accepted);
    }
    EXPECT_LT(after.value(), 0.01);
    if (truth != 1) {
      EXPECT_GT(before.value(), 0.04);
    }
  }
  EXPECT_EQ(fit_temperature({}), 1);
}

TEST(CalibrationTest, TheErrorIsTheGapBetweenPromiseAndOutcome) {
  CalibrationError error;
  EXPECT_EQ(error.value(), 0);
  for (int i = 0; i < 10; ++i) error.add(0.95f, i < 5);  // half of them
  EXPECT_NEAR(error.value(), 0.45, 1e-6);
  for (int i = 0; i < 10; ++i) error.add(0.25f, i < 1);
  EXPECT_NEAR(error.value(), (0.45 + 0.15) / 2, 1e-6);
}

TEST(CalibrationTest, TheFileIsReadOrRefusedWithItsPlace) {
  const auto good = parse_calibration(R"({"temperatures": [1.25, 1, 0.5]})");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, (std::vector<float>{1.25f, 1, 0.5f}));
  EXPECT_EQ(temperature_of(*good, 2), 0.5f);
  EXPECT_EQ(temperature_of(*good, 3), 1);
  const auto bad = parse_calibration(R"({"temperatures": [1, 0]})");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.error().message().find("temperatures[1]"), std::string::npos) << bad.error().message();
  EXPECT_FALSE(parse_calibration("{}").ok());
  EXPECT_TRUE(load_calibration("/nonexistent").ok());
}

}  // namespace
}  // namespace deepinfer
