#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

struct Expected {
  int number;
  const char* id;
  double value;   // worked out by hand, in the figure's unit
  double within;  // half of its last digit
};

// One row for each part of the 28 figures.
constexpr Expected kExpected[] = {
    {1, "hit_rate", 96.00, 0.005},
    {2, "mean_rate", 757000, 0.5},
    {3, "cards", 2370, 0.5},
    {4, "output_share", 0.925, 0.0005},
    {5, "input_per_day", 153.6, 0.05},
    {5, "misses_per_day", 6.14, 0.005},
    {5, "output_per_day", 1.43, 0.005},
    {6, "computed_per_day", 7.58, 0.005},
    {7, "growth", 17.5, 0.05},
    {8, "prefill_revenue", 47.95, 0.005},
    {9, "decode_revenue", 30.24, 0.005},
    {10, "mean_revenue", 39.10, 0.005},
    {11, "new_tokens_per_card", 37000, 0.5},
    {12, "new_kv", 2.845, 0.0005},
    {13, "ssd_per_card_short", 12.8, 0.05},
    {13, "ssd_per_card_long", 29.9, 0.05},
    {14, "ssd_configured", 42.7, 0.05},
    {14, "ssd_configured_tb", 46.9, 0.05},
    {15, "nand_tokens", 3456, 0.5},
    {16, "nand_demand", 77.8, 0.05},
    {17, "nand_share", 5.55, 0.005},
    {18, "supply_low", 1380, 0.5},
    {18, "supply_high", 1440, 0.5},
    {19, "store_cost", 56.3, 0.05},
    {20, "cards_without", 30000, 0.5},
    {20, "cost_without", 1440, 0.5},
    {21, "store_return", 25.6, 0.05},
    {22, "extra_ssd", 34.1, 0.05},
    {22, "extra_cost", 17071, 0.5},
    {23, "freed_low", 0.125, 1e-9},
    {23, "freed_high", 0.25, 1e-9},
    {24, "freed_value_low", 41610, 0.5},
    {24, "freed_value_high", 83220, 0.5},
    {25, "lost_low", 34768, 0.5},
    {25, "lost_high", 69537, 0.5},
    {26, "net_low", 6842, 0.5},
    {26, "net_high", 13683, 0.5},
    {27, "payback_low", 2.50, 0.005},
    {27, "payback_high", 1.25, 0.005},
    {27, "payback_dear_low", 4.99, 0.005},
    {27, "payback_dear_high", 2.50, 0.005},
    {28, "over_rent_low", 6.3, 0.05},
    {28, "over_rent_high", 12.7, 0.05},
    // What the findings give.
    {0, "hit_for_source", 96.28, 0.005},
    {0, "share_for_source", 43.8, 0.05},
    {0, "revenue_weighted", 47.2, 0.05},
    {0, "cards_for_peak", 2890, 5},
    {0, "store_tokens", 126, 0.5},
    {0, "store_days", 16.4, 0.05},
    {0, "store_days_redundant", 10.9, 0.05},
    {0, "cards_filling_long", 3744, 0.5},
    {0, "cards_filling_short", 8735, 0.5},
    {0, "ssd_two_copies", 49.8, 0.05},
    {0, "filled_short", 27, 0.5},
    {0, "filled_long", 64, 0.5},
    {0, "mean_reads", 1.40, 0.005},
    {0, "mean_writes", 74, 0.5},
    {0, "read_headroom", 7.1, 0.05},
    {0, "write_headroom", 11.5, 0.06},
    {0, "peak_ratio", 12, 0.5},
    {0, "mean_ratio", 19.5, 0.05},
    {0, "hit_for_ratio", 93, 0.5},
    {0, "block_reads_peak", 95.9, 0.05},
    {0, "block_reads_mean", 13.4, 0.05},
    {0, "new_blocks", 59.9, 0.06},
    {0, "nand_llama_405b", 4044, 0.5},
    {0, "nand_llama_70b", 2488, 0.5},
    {0, "nand_qwen_235b", 1555, 0.5},
    {0, "nand_mla_bf16", 1089, 0.5},
    {0, "nand_mla_fp8", 544, 0.5},
    {0, "nand_v4", 54.4, 0.05},
    {0, "nand_v41", 13.8, 0.05},
    {0, "nand_break_even", 90.0, 0.05},
    {0, "store_return_copies", 12.8, 0.05},
    {0, "payback_own_low", 0.96, 0.005},
    {0, "payback_own_high", 0.48, 0.005},
    {0, "worth_threshold", 31.75, 0.005},
    {0, "users_per_card", 61, 0.5},
    {0, "users_per_unit", 3900, 5},
    {0, "token_interval", 4.35, 0.005},
    {0, "prefill_compute", 0.96, 0.005},
};

class Production : public ::testing::Test {
 protected:
  const Model& model = production_model();
  const Values values = model.compute(model.defaults());
};

TEST_F(Production, FiguresAreThoseWorkedOutByHand) {
  std::set<int> numbers;
  for (const Expected& one : kExpected) {
    const Figure* figure = model.find_figure(one.id);
    ASSERT_NE(figure, nullptr) << one.id;
    EXPECT_NEAR(model.value(values, one.id) / figure->scale, one.value, one.within) << one.id;
    EXPECT_EQ(figure->number, one.number) << one.id;
    numbers.insert(one.number);
  }
  for (int number = 1; number <= 28; ++number) EXPECT_TRUE(numbers.contains(number)) << number;
}

TEST_F(Production, AllAgreeWithTheirSourceButTheMeanRevenue) {
  int claims = 0;
  for (const Figure& figure : model.figures()) {
    if (!figure.claim) continue;
    ++claims;
    EXPECT_EQ(agrees(figure, model.value(values, figure.id)), figure.id != "mean_revenue")
        << figure.id << ": " << model.text(values, figure.id) << " against " << figure.claim->text;
  }
  EXPECT_GE(claims, 25);
}

TEST_F(Production, EveryFindingIsShownBesideAFigureOrConcernsNone) {
  std::string letters;
  for (const Finding& finding : model.findings()) {
    letters += finding.letter;
    EXPECT_EQ(fill(model, values, finding.text).find('{'), std::string::npos) << finding.letter;
    bool shown = false;
    for (const Figure& figure : model.figures()) shown |= figure.findings.find(finding.letter) != std::string::npos;
    EXPECT_EQ(shown, finding.letter != 'o' && finding.letter != 'p') << finding.letter;
  }
  EXPECT_EQ(letters, "abcdefghijklmnopq");
}

TEST_F(Production, AChangedInputChangesTheAnswer) {
  Values inputs = model.defaults();
  inputs[*model.place("miss_rate")] = 30000;  // half the misses
  const Values changed = model.compute(inputs);
  EXPECT_NEAR(model.value(changed, "hit_rate"), 0.98, 1e-12);
  EXPECT_FALSE(agrees(*model.find_figure("hit_rate"), model.value(changed, "hit_rate")));
  EXPECT_NEAR(model.value(changed, "cards_without"), 60000, 1e-6);
}

TEST_F(Production, FiveInputsThatTheSourceLeavesOpenMoveItsAnswers) {
  const auto strongest = [&](std::string_view figure) {
    std::vector<std::string> names;
    for (const Effect& effect : sensitivity(model, values, *model.place(figure)))
      names.push_back(model.inputs()[effect.input].id);
    return names;
  };
  // The payback stands on the difference of two large numbers, so the value of a card-hour moves it most.
  EXPECT_EQ(strongest("payback_low").front(), "card_hour");
  const auto store = strongest("ssd_per_card_long");
  EXPECT_NE(std::find(store.begin(), store.end(), "redundancy"), store.end());
  EXPECT_EQ(std::find(store.begin(), store.end(), "price_hit"), store.end()) << "an input without effect is left out";
}

}  // namespace
}  // namespace deepinfer::planner
