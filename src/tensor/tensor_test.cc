#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace deepinfer {
namespace {

TEST(FormatsTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie, stays even
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie, up to even
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(round_bf16(std::bit_cast<float>(0x7f800001u))));
}

TEST(FormatsTest, EveryFiniteE4m3CodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) continue;
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
  }
  EXPECT_EQ(float_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_e4m3(-1e9f), 0xfe);
}

TEST(FormatsTest, E4m3TiesGoToTheEvenCode) {
  for (int code = 0; code < 0x7e; ++code) {
    const float middle = (e4m3_to_float(code) + e4m3_to_float(code + 1)) / 2;
    EXPECT_EQ(float_to_e4m3(middle), code % 2 == 0 ? code : code + 1) << code;
  }
}

// docs/spec/model.md 4.1: .25->0, .75->1, 1.25->1, 1.75->2, 2.5->2, 3.5->4, 5->4.
TEST(FormatsTest, E2m1TiesGoToTheEvenCode) {
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float results[] = {0.0f, 1.0f, 1.0f, 2.0f, 2.0f, 4.0f, 4.0f};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(ties[i])), results[i]);
    EXPECT_EQ(e2m1_to_float(float_to_e2m1(-ties[i])), -results[i]);
  }
  EXPECT_EQ(float_to_e2m1(100.0f), 7);
  EXPECT_EQ(float_to_e2m1(-0.0f), 8);
}

TEST(FormatsTest, PowerOfTwoCeilingIsExactAtPowers) {
  EXPECT_EQ(e8m0_to_float(power_of_two_ceiling(1.0f)), 1.0f);
  EXPECT_EQ(e8m0_to_float(power_of_two_ceiling(1.0001f)), 2.0f);
  EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
  EXPECT_EQ(e8m0_to_float(254), 0x1p127f);
}

TEST(TensorTest, NamesAndShapes) {
  EXPECT_EQ(dtype_from_name("F8_E8M0"), DType::kF8E8M0);
  EXPECT_EQ(dtype_from_name("F64"), std::nullopt);
  EXPECT_EQ(dtype_name(DType::kBF16), "BF16");
  EXPECT_EQ(shape_string({24, 20480}), "[24, 20480]");
  EXPECT_EQ(num_elements({3, 0, 7}), 0u);
  EXPECT_EQ(num_elements({INT64_MAX, 3}), std::nullopt);
  EXPECT_EQ(num_elements({-1, 3}), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
