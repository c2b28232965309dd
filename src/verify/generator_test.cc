#include "verify/generator.h"

#include <gtest/gtest.h>

namespace deepinfer::golden {
namespace {

TEST(GeneratorTest, WordsOfSeedZeroAreThePublishedOnes) {
  EXPECT_EQ(splitmix64(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(splitmix64(0, 1), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(splitmix64(0, 2), 0x06c45d188009454fu);
}

TEST(GeneratorTest, WordsAreCutLittleEndianAndTheLastMayBeUsedInPart) {
  const std::vector<uint8_t> expected = {0xaf, 0xcd, 0x1d, 0x7b, 0x39, 0xa8, 0x20, 0xe2, 0xf4, 0x65};
  EXPECT_EQ(generate_bytes(0, 10), expected);
}

TEST(GeneratorTest, E4m3CodesKeepSignAndMantissaInTheUpperExponents) {
  const auto codes = generate_e4m3(0, 2);  // bytes af, cd
  EXPECT_EQ(codes, (std::vector<uint8_t>{0xcf, 0xad}));
}

TEST(GeneratorTest, ScalesAreTheBaseAndTwoBits) {
  EXPECT_EQ(generate_e8m0(0, 112, 3), (std::vector<uint8_t>{115, 113, 113}));  // bytes af, cd, 1d
}

TEST(GeneratorTest, Bf16TakesSignMantissaAndThreeExponentBits) {
  const Bf16 first = generate_bf16(0, 120, 1)[0];  // u16 cdaf: sign 1, exponent bits 3, mantissa 2f
  EXPECT_EQ(first.bits, 0x8000 | (120 + 3) << 7 | 0x2f);
  EXPECT_EQ(absolute({first})[0].bits, first.bits & 0x7fff);
}

TEST(GeneratorTest, F32IsACenteredIntegerTimesAPowerOfTwo) {
  const float expected = (static_cast<float>(0x7b1dcd) - 8388608.0f) / 1048576.0f;  // u32 7b1dcdaf
  EXPECT_EQ(generate_f32(0, 20, 1)[0], expected);
}

}  // namespace
}  // namespace deepinfer::golden
