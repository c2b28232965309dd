// Vectors of docs/spec/model.md A.2 and A.8, and the elementary functions against fp64.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/elementary.h"

namespace deepinfer {
namespace {

constexpr std::array<uint16_t, 32> kBlock = {
    0x3b72, 0x3f65, 0xbf53, 0xc02b, 0xbfaf, 0xc03e, 0x3e39, 0x4081, 0xbfbd, 0xbfee, 0x3fbc,
    0x3f89, 0x3ea2, 0xc033, 0xbdb4, 0x4005, 0xc081, 0xbfb0, 0xc0b7, 0xc078, 0xc0b1, 0xbf35,
    0xc073, 0x3f50, 0x3ef1, 0xbf10, 0xc0f2, 0xbfcf, 0xbe15, 0x3eae, 0xc093, 0xbfb7};

std::vector<Bf16> block() {
  std::vector<Bf16> values;
  for (const uint16_t bits : kBlock) values.push_back({bits});
  return values;
}

std::vector<Bf16> block_with_amax(float amax) {
  std::vector<Bf16> values(32, to_bf16(0.0f));
  values[7] = to_bf16(-amax);
  return values;
}

TEST(QuantizeTest, Q8MatchesThePublishedBlock) {
  const std::array<uint8_t, 32> expected = {0x1f, 0x5e, 0xdd, 0xeb, 0xe3, 0xec, 0x4c, 0x70, 0xe4, 0xe7, 0x64,
                                            0x61, 0x52, 0xeb, 0xc3, 0x68, 0xf0, 0xe3, 0xf3, 0xf0, 0xf3, 0xdb,
                                            0xef, 0x5d, 0x57, 0xd9, 0xf7, 0xe5, 0xc9, 0x53, 0xf1, 0xe3};
  std::array<uint8_t, 32> codes;
  EXPECT_EQ(quantize_q8(block().data(), codes.data()), 122);
  EXPECT_EQ(codes, expected);
}

TEST(QuantizeTest, Q4iMatchesThePublishedBlock) {
  const std::array<uint8_t, 16> expected = {0x10, 0xb9, 0xb9, 0x40, 0xa9, 0x11, 0xb0, 0x28,
                                            0x9c, 0xcd, 0x9d, 0x1c, 0x90, 0xae, 0x08, 0x9c};
  std::array<uint8_t, 16> packed;
  EXPECT_EQ(quantize_q4i(block().data(), packed.data()), 128);
  EXPECT_EQ(packed, expected);
}

TEST(QuantizeTest, Q4kMatchesThePublishedBlock) {
  const uint8_t expected[2][16] = {{0, 3, 10, 14, 12, 14, 1, 7, 12, 13, 4, 3, 1, 14, 8, 5},
                                   {13, 10, 14, 13, 14, 9, 13, 1, 1, 9, 15, 11, 8, 1, 14, 10}};
  const uint8_t scales[2] = {0x33, 0x3a};
  const auto values = block();
  for (int half = 0; half < 2; ++half) {
    uint8_t packed[8];
    EXPECT_EQ(quantize_q4k(values.data() + 16 * half, packed), scales[half]);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(nibble(packed, i), expected[half][i]) << half << " " << i;
  }
}

TEST(QuantizeTest, ScalesAtTheEdges) {
  uint8_t codes[32];
  const auto q8 = [&](float amax) { return int{quantize_q8(block_with_amax(amax).data(), codes)} - 127; };
  EXPECT_EQ(q8(448), 0);
  EXPECT_EQ(q8(450), 1);  // the next bf16 above 448
  EXPECT_EQ(q8(1), -8);
  EXPECT_EQ(q8(3.5), -7);
  EXPECT_EQ(q8(0), -22);
  EXPECT_EQ(q8(1e-4f), -22);
  const auto q4i = [&](float amax) { return int{quantize_q4i(block_with_amax(amax).data(), codes)} - 127; };
  EXPECT_EQ(q4i(6), 0);
  EXPECT_EQ(q4i(6.03125f), 1);
  EXPECT_EQ(q4i(3), -1);
  EXPECT_EQ(q4i(1), -2);
  EXPECT_EQ(q4i(0.75), -3);
  EXPECT_EQ(quantize_q4k(block_with_amax(1e6f).data(), codes), 0x7e);  // saturates at 448
}

// A.8: with true division x / s = 1.25 exactly, and the tie goes to the even code.
TEST(QuantizeTest, Q4kDividesTruly) {
  std::vector<Bf16> values(16, to_bf16(0.0f));
  values[0] = to_bf16(6 * 0.029296875f);
  values[1] = to_bf16(75 * 0x1p-11f);
  uint8_t packed[8];
  EXPECT_EQ(e4m3_to_float(quantize_q4k(values.data(), packed)), 15 * 0x1p-9f);
  EXPECT_EQ(nibble(packed, 1), 2);
}

TEST(QuantizeTest, PackedRowsUnpackToValuesThatBf16Holds) {
  std::vector<Bf16> row;
  for (int i = 0; i < 2; ++i) {
    for (const uint16_t bits : kBlock) row.push_back({static_cast<uint16_t>(bits ^ (i * 0x0040))});
  }
  std::array<std::byte, 128> bytes;
  std::array<float, 64> values;
  pack_window_row(row.data(), 64, bytes.data());
  unpack_window_row(bytes.data(), 64, values.data());
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(round_bf16(values[i]), values[i]);
    EXPECT_NEAR(values[i], to_float(row[i]), std::fabs(to_float(row[i])) / 15 + 0.01);
  }
  pack_compressed_row(row.data(), 64, bytes.data());
  unpack_compressed_row(bytes.data(), 64, values.data());
  for (const float value : values) EXPECT_EQ(round_bf16(value), value);
  EXPECT_EQ(window_row_bytes(512), 528);
  EXPECT_EQ(compressed_row_bytes(512), 288);
  EXPECT_EQ(index_code_bytes(128) + index_scale_bytes(128), 68);
}

TEST(ElementaryTest, ExpIsWithinTwoUlp) {
  for (float x = -86.9f; x < 87.9f; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    const float ulp = std::nextafter(static_cast<float>(exact), INFINITY) - static_cast<float>(exact);
    ASSERT_LE(std::fabs(exp_f32(x) - exact), 2.0 * ulp) << x;
  }
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp_f32(1000.0f), INFINITY);
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exp_f32(NAN)));
  EXPECT_EQ(sigmoid_f32(-200.0f), 0.0f);
  EXPECT_EQ(softplus_f32(25.0f), 25.0f);
}

}  // namespace
}  // namespace deepinfer
