#include "verify/generator_calls.h"

#include <gtest/gtest.h>

#include "verify/generator.h"

namespace deepinfer::golden {
namespace {

GeneratorCalls parse(std::string_view text) {
  auto calls = GeneratorCalls::parse(text);
  if (!calls.ok()) {
    ADD_FAILURE() << calls.error().message();
    return *GeneratorCalls::parse("");
  }
  return *calls;
}

const GeneratorCall& call(const GeneratorCalls& calls, std::string_view name, int n = 0) {
  static const GeneratorCall none;
  const auto found = calls.find(name, n);
  if (!found.ok()) ADD_FAILURE() << found.error().message();
  return found.ok() ? **found : none;
}

TEST(GeneratorCallsTest, ACallHasNameKindSeedParameterAndSizes) {
  const auto calls =
      parse("w packed bytes(seed 7) [4,16]; scale e8m0(seed 8, base 120) [4,1]; x bf16(seed 9, e0 3) [2,32]");
  EXPECT_EQ(call(calls, "w").kind, "packed bytes");
  EXPECT_EQ(call(calls, "w").shape, (Shape{4, 16}));
  EXPECT_EQ(call(calls, "scale").seed.base, 8u);
  EXPECT_EQ(call(calls, "scale").parameters, (std::vector<int>{120}));
  EXPECT_EQ(*calls.packed_bytes("w", 64), generate_bytes(7, 64));
  EXPECT_EQ(*calls.e8m0("scale", 4), generate_e8m0(8, 120, 4));
  ASSERT_TRUE(calls.bf16("x", 64).ok());
  EXPECT_EQ((*calls.bf16("x", 64))[1].bits, generate_bf16(9, 3, 64)[1].bits);
}

TEST(GeneratorCallsTest, SeedsAndParametersMayBeFormulasAndLists) {
  const auto calls = parse(
      "size number i = 0..3 of (64,32): w = |bf16(seed 200+10i, e0 123)|; rows j = 0..1 x = bf16(seed 200+10i+1+j, "
      "e0 = 55,75); row 7 zeros");
  EXPECT_TRUE(call(calls, "w").absolute);
  EXPECT_EQ(call(calls, "w").seed.at(2, 0), 220u);
  EXPECT_EQ(call(calls, "x").seed.at(2, 5), 226u);
  EXPECT_EQ(call(calls, "x").parameters, (std::vector<int>{55, 75}));
}

TEST(GeneratorCallsTest, SeveralSeedsMakeSeveralCallsAndAKindIsKept) {
  const auto calls = parse(
      "routed w1,w3,w2 packed bytes(seeds 1,3,5), scales e8m0(seeds 2,4 base 121; 6 base 119); shared w1,w3,w2 "
      "e4m3(seeds 7,9,11), scales(seeds 8,10 base 117; 12 base 115)");
  EXPECT_EQ(call(calls, "routed w1,w3,w2", 1).seed.base, 3u);
  EXPECT_EQ(call(calls, "shared w1,w3,w2", 2).seed.base, 11u);
  for (const auto& [n, seed, base] :
       {std::tuple{0, 2u, 121}, {1, 4u, 121}, {2, 6u, 119}, {3, 8u, 117}, {5, 12u, 115}}) {
    EXPECT_EQ(call(calls, "scales", n).seed.base, seed);
    EXPECT_EQ(call(calls, "scales", n).parameters, (std::vector<int>{base}));
    EXPECT_EQ(call(calls, "scales", n).kind, "e8m0");
  }
}

TEST(GeneratorCallsTest, APartMayRepeatThePartBeforeWithOtherSeeds) {
  const auto calls = parse(
      "backbone: W bf16(seed 1, e0 115) [384,64], bias f32(seed 2, sh 25); dspark: the same with seeds 510..511 and "
      "128 "
      "experts");
  EXPECT_EQ(call(calls, "backbone: W").seed.base, 1u);
  EXPECT_EQ(call(calls, "dspark: W").seed.base, 510u);
  EXPECT_EQ(call(calls, "dspark: bias").seed.base, 511u);
  EXPECT_TRUE(calls.bf16("dspark: W", 128 * 64).ok());
}

TEST(GeneratorCallsTest, TextBetweenCallsIsNoPartOfAName) {
  const auto calls = parse(
      "q bf16(seed 7, e0 1) [3,4] then Q4i; k bf16(seed 8, e0 1) [7,4] then Q4i; w bf16(seed 9, e0 2) [3] (before the "
      "factor 128^-0.5); candidate scores f32(seed 10, sh 20) [2,len(pos)]");
  EXPECT_EQ(call(calls, "k").seed.base, 8u);
  EXPECT_EQ(call(calls, "w").seed.base, 9u);
  EXPECT_EQ(call(calls, "candidate scores").shape, (Shape{2, -1}));
  EXPECT_TRUE(calls.f32("candidate scores", 12).ok());
}

TEST(GeneratorCallsTest, WhatCanNotBeReadIsRefused) {
  for (const char* text :
       {"w bf16(seed seven, e0 1)", "w bf16(seed 7, e0 999)", "w bf16(seed 7", "w (seed 7)", "w bf16(seed )",
        "x bf16(seeds 5..3)", "a: w bf16(seed 1, e0 2); b: the same with seeds 1..9"}) {
    EXPECT_FALSE(GeneratorCalls::parse(text).ok()) << text;
  }
  const auto calls = parse("w e4m3(seed 7) [4,8]; x bf16(seed 7)");
  EXPECT_EQ(calls.find("y").error().code(), Code::kNotFound);
  EXPECT_EQ(calls.bf16("w", 32).error().code(), Code::kInvalidArgument);  // another kind
  EXPECT_EQ(calls.e4m3("w", 31).error().code(), Code::kInvalidArgument);  // another size
  EXPECT_EQ(calls.bf16("x", 31).error().code(), Code::kInvalidArgument);  // no e0
  EXPECT_EQ(calls.find("w", 1).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace deepinfer::golden
