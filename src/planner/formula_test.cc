#include "planner/formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/model.h"

namespace deepinfer::planner {
namespace {

template <typename A, typename B>
concept Addable = requires(Term<A> a, Term<B> b) {
  a + b;
};
static_assert(Addable<Tokens, Tokens>);
static_assert(!Addable<Tokens, Bytes>);
static_assert(!Addable<TokenPrice, CardPrice>);
static_assert(!Addable<Seconds, Pure>);
static_assert(std::is_same_v<Product<CardRate, TokenSize>, CardBytesPerSecond>);
static_assert(std::is_same_v<Quotient<TokensPerSecond, CardRate>, Cards>);

Term<Pure> variable(int place) {
  Node node{Operation::kVariable};
  node.variable = place;
  return {std::make_shared<const Node>(node)};
}

std::string symbols(const Term<Pure>& term) {
  return write(*term.node, Notation::kText, [](const Node& node) {
    return node.operation == Operation::kNumber ? fmt::format("{}", node.number)
                                                : std::string(1, static_cast<char>('a' + node.variable));
  });
}

TEST(Formula, ParenthesesFollowTheTree) {
  const auto a = variable(0), b = variable(1), c = variable(2);
  EXPECT_EQ(symbols(a + b * c), "a + b × c");
  EXPECT_EQ(symbols((a + b) * c), "(a + b) × c");
  EXPECT_EQ(symbols(a - (b - c)), "a − (b − c)");
  EXPECT_EQ(symbols(a - b - c), "a − b − c");
  EXPECT_EQ(symbols(a / (b * c)), "a / (b × c)");
  EXPECT_EQ(symbols(a * (b / c)), "a × (b / c)");
  EXPECT_EQ(symbols(larger(a + b, c) / ceiling(a)), "max(a + b, c) / round up(a)");
}

TEST(Formula, ComputesWhatItShows) {
  const auto a = variable(0), b = variable(1), c = variable(2);
  const double values[] = {7, 2, 4};
  const auto value = [&](const Term<Pure>& term) { return compute(*term.node, values); };
  EXPECT_EQ(value(a - (b - c)), 9);
  EXPECT_EQ(value(a / b * c), 14);
  EXPECT_EQ(value(larger(a, b) + smaller(a, b)), 9);
  EXPECT_EQ(value(ceiling(a / b)), 4);
  EXPECT_EQ(value(power(b, c)), 16);
  EXPECT_EQ(value(whole(a, c)), 8);
}

TEST(Formula, WholePowerIsRepeatedMultiplication) {
  EXPECT_EQ(whole_power(3, 0), 1);
  EXPECT_EQ(whole_power(3, 1), 3);
  EXPECT_EQ(whole_power(2, 10.4), 1024);
  EXPECT_EQ(whole_power(2, -3), 1);
  EXPECT_EQ(whole_power(0.5, 1e12), 0);
  for (int n = 0; n < 200; ++n) EXPECT_NEAR(whole_power(0.984375, n), std::pow(0.984375, n), 1e-13);
}

TEST(Values, AreWrittenWithFourDigitsAndThousands) {
  EXPECT_EQ(write_value(47.952 / kHour, "$ per card-hour", 1 / kHour), "$47.95 per card-hour");
  EXPECT_EQ(write_value(1.5e6, "tokens/s per card", 1), "1,500,000 tokens/s per card");
  EXPECT_EQ(write_value(0.96, "%", 0.01), "96 %");
  EXPECT_EQ(write_value(34768.44, "$", 1), "$34,768");
  EXPECT_EQ(write_value(-34768.44, "$", 1), "-$34,768");
  EXPECT_EQ(write_value(0.00435, "", 1), "0.00435");
  EXPECT_EQ(write_value(0, "", 1), "0");
  EXPECT_EQ(write_value(999.96, "", 1), "1,000");
  EXPECT_EQ(write_value(39.1, "$ per hour", 1), "$39.10 per hour");
  EXPECT_EQ(write_value(0.003, "$ per hour", 1), "$0.003 per hour");
  EXPECT_EQ(write_value(1234567890, "", 1), "1,234,570,000");
  EXPECT_EQ(write_value(12345, "", 1), "12,345");
  EXPECT_EQ(write_value(1.5e-5, "", 1), "1.500e-05");
  EXPECT_EQ(write_value(INFINITY, "d", 1), "infinite d");
  EXPECT_EQ(write_value(NAN, "", 1), "not a number");
}

const Input kDays_ = {"days", "Retention",      "", 3 * kDay,         kDay, 7 * kDay, "d",
                      kDay,   Bound::kPositive, "", Confidence::kHigh};
const Input kPrice_ = {"price", "Price",          "", 1e-6, 0, 1, "$ per 1M tokens", 1e-6, Bound::kPositive,
                       "",      Confidence::kHigh};
const Input kShare_ = {"share", "Share", "", 0.5, 0, 1, "%", 0.01, Bound::kFraction, "", Confidence::kHigh};
const Input kSize_ = {"size", "Size", "", 1e12, 0, 1, "TB", 1e12, Bound::kPositive, "", Confidence::kHigh};

double parsed(std::string_view text, const Input& input) {
  const auto value = parse_value(text, input);
  EXPECT_TRUE(value.ok()) << value.error().message();
  return value.ok() ? *value : NAN;
}

TEST(Values, AreReadInAnyUnitOfTheirKind) {
  EXPECT_EQ(parsed("3 d", kDays_), 3 * kDay);
  EXPECT_EQ(parsed(" 72h ", kDays_), 3 * kDay);
  EXPECT_EQ(parsed("$0.15 per 1M tokens", kPrice_), 0.15e-6);
  EXPECT_EQ(parsed("0.15 $ per 1M tokens", kPrice_), 0.15e-6);
  EXPECT_EQ(parsed("96 %", kShare_), 96 * 0.01);
  EXPECT_EQ(parsed("0.96", kShare_), 0.96);
  EXPECT_EQ(parsed("1,536 GB", kSize_), 1536e9);
  EXPECT_EQ(parsed("3EB", kSize_), 3e18);
  EXPECT_EQ(parsed("1e3 GB", kSize_), 1e12);
}

TEST(Values, BadOnesAreRefusedByName) {
  const auto refused = [](std::string_view text, const Input& input) {
    const auto value = parse_value(text, input);
    EXPECT_FALSE(value.ok()) << text;
    return value.ok() ? "" : value.error().message();
  };
  EXPECT_EQ(refused("3", kDays_),
            "days (Retention): found '3', which has no unit, expected a number with a unit of: ms, s, min, h, d, "
            "years; as in '3 d'");
  EXPECT_EQ(
      refused("3 GB", kDays_),
      "days (Retention): found '3 GB' in 'GB', expected a number with a unit of: ms, s, min, h, d, years; as in '3 d'");
  for (const std::string_view text :
       {"", "d", "nan d", "inf d", "1.2.3 d", "--3 d", "1e999 d", "0x10 d", "3 d d", "$3 d", "d 3"})
    refused(text, kDays_);
}

// What is written is read again as the same number, to the digits written.
TEST(Values, ReadBackAsWritten) {
  constexpr uint64_t kSeed = 20261201;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 20000; ++i) {
    const double exponent = std::uniform_real_distribution<double>(-6, 20)(random);
    const double value = std::pow(10, exponent) * kDay;
    const std::string text = write_value(value, "d", kDay);
    EXPECT_NEAR(parsed(text, kDays_) / value, 1, 6e-4) << text << ", seed " << kSeed;
  }
}

}  // namespace
}  // namespace deepinfer::planner
