#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

const Model& model() {
  return deployment_model();
}

Values plan(const std::string& hardware, const std::map<std::string, double>& given) {
  const auto found = find_hardware(hardware, given.contains("user_speed") ? given.at("user_speed") : 20);
  EXPECT_TRUE(found.ok()) << found.error().message();
  const auto values = plan_deployment(*found, given);
  EXPECT_TRUE(values.ok()) << values.error().message();
  return *values;
}

// The formulas once more, by hand, for one case.
TEST(Deployment, CountsCardsStoreAndMoney) {
  const Values values = plan("published", {{"requests", 1000},
                                           {"input", 10000},
                                           {"output", 400},
                                           {"hit", 0.9},
                                           {"utilisation", 0.8},
                                           {"agent_share", 0.5},
                                           {"copies", 2},
                                           {"fill", 0.8}});
  const auto of = [&](std::string_view id) { return model().value(values, id); };
  EXPECT_NEAR(of("prefill_needed"), 1e6 / 6e4 / 0.8, 1e-9);  // misses are dearer than moving hits: 10e6/1.5e6
  EXPECT_EQ(of("prefill_cards"), 24);                        // 20.8, in units of 8
  EXPECT_NEAR(of("decode_needed"), 4e5 / 14000 / 0.8, 1e-9);
  EXPECT_EQ(of("decode_cards"), 64);
  EXPECT_NEAR(of("new_kv"), 1.4e6 * 890, 1e-3);
  EXPECT_NEAR(of("store_size"), 1.4e6 * 890 * 5 * kDay * 2 / 0.8, 1);
  EXPECT_NEAR(of("store_reads"), 9e6 * 896, 1);
  EXPECT_NEAR(of("index_entries"), 1.4e6 * 5 * kDay / 128, 1);
  EXPECT_NEAR(of("window_memory"), 1000 * 180 * 2.9e6, 1);
  EXPECT_NEAR(of("decode_link"), 1e7 * 890, 1e-3);  // one unit takes all of it
  EXPECT_NEAR(of("cost_miss") * 1e6, 4 / 216.0 / 0.8, 1e-12);
  EXPECT_NEAR(of("cost_output") * 1e6, 4 / 50.4 / 0.8, 1e-12);
  const double at_list = 9e6 * 0.003e-6 + 1e6 * 0.15e-6 + 4e5 * 0.6e-6;
  EXPECT_NEAR(of("revenue"), at_list * (1 + 35.0 / 168), 1e-9);
}

TEST(Deployment, MovingHitsDecidesWhenAlmostAllIsFound) {
  const Values values = plan("published", {{"hit", 0.99}});
  EXPECT_NEAR(model().value(values, "prefill_needed"), 50 * 12000 / 1.5e6 / 0.82, 1e-9);
}

TEST(Deployment, LongerRetentionPaysOnlyAboveTheThreshold) {
  const Values cheap = plan("published", {{"card_hour", 38 / kHour}, {"utilisation", 1}, {"peak_share", 0}});
  EXPECT_NEAR(model().value(cheap, "worth_threshold") * kHour, 31.752, 1e-9);
  EXPECT_GT(model().value(cheap, "gain_sold"), 0);
  const Values dear = plan("published", {{"card_hour", 31 / kHour}, {"utilisation", 1}, {"peak_share", 0}});
  EXPECT_LT(model().value(dear, "gain_sold"), 0);
  EXPECT_GT(model().value(dear, "gain_own"), 0);
}

// More of anything that costs never makes the plan smaller.
TEST(Deployment, PlansGrowWithTheirTraffic) {
  constexpr uint64_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  const auto draw = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  for (int i = 0; i < 500; ++i) {
    std::map<std::string, double> given = {{"requests", draw(0.01, 1e5)},
                                           {"input", draw(1, 1e6)},
                                           {"output", draw(1, 1e5)},
                                           {"hit", std::uniform_real_distribution<double>(0, 0.99)(random)}};
    const Values small = plan("published", given);
    for (const char* id : {"requests", "input", "output"}) {
      auto more = given;
      more[id] *= 1.5;
      const Values large = plan("published", more);
      for (const char* figure : {"cards", "drives", "cost", "store_size", "window_memory", "answers"})
        EXPECT_GE(model().value(large, figure), model().value(small, figure))
            << id << " " << figure << " seed " << kSeed << " case " << i;
    }
    auto found = given;
    found["hit"] = given["hit"] + (1 - given["hit"]) / 2;
    EXPECT_LE(model().value(plan("published", found), "prefill_cards"), model().value(small, "prefill_cards"));
  }
}

TEST(Machine, ModelNumbersAreTheReleasedOnes) {
  const Model& machine = machine_model();
  const Values values = machine.compute(machine.defaults());
  const auto of = [&](std::string_view id) { return machine.value(values, id); };
  EXPECT_EQ(of("expert_bytes"), 18800640);
  EXPECT_EQ(of("all_experts"), 15360);
  EXPECT_NEAR(of("experts_bytes"), 288.78e9, 0.01e9);
  EXPECT_EQ(of("kv_bytes"), 890);
  EXPECT_EQ(of("kv_block"), 113920);
  EXPECT_NEAR(of("kv_context"), 933e6, 0.5e6);
  EXPECT_EQ(of("window_bytes"), 128 * 43 * 528);
  EXPECT_EQ(of("engram_reads"), 12672);
}

TEST(Machine, StepIsTheLongerOfReadingAndComputing) {
  const Model& machine = machine_model();
  for (const double answers : {1.0, 16.0, 256.0, 4096.0}) {
    Values inputs = machine.defaults();
    inputs[*machine.place("answers")] = answers;
    const Values values = machine.compute(inputs);
    const double bytes = 8.523e9 + 288.777830e9 * (1 - std::pow(1 - 6.0 / 384, answers));
    EXPECT_NEAR(machine.value(values, "step_bytes") / bytes, 1, 1e-6);
    const double memory = bytes / (2 * 460e9 * 0.8), compute = answers * 32e9 / (2 * 64 * 235e9 * 0.6);
    EXPECT_NEAR(machine.value(values, "step_time") / std::max(memory, compute), 1, 1e-6);
  }
}

TEST(Machine, MostAnswersIsTheLastThatKeepsTheSpeed) {
  const Model& machine = machine_model();
  const auto speed = [&](int64_t answers) {
    Values inputs = machine.defaults();
    inputs[*machine.place("answers")] = static_cast<double>(answers);
    return machine.value(machine.compute(inputs), "user_speed");
  };
  for (const double wanted : {0.1, 1.0, 5.0, 10.0, 20.0, 40.0}) {
    const int64_t most = most_answers(machine.defaults(), wanted);
    ASSERT_GT(most, 0);
    EXPECT_GE(speed(most), wanted);
    EXPECT_TRUE(most == 4096 || speed(most + 1) < wanted) << wanted;
  }
  EXPECT_EQ(most_answers(machine.defaults(), 1000), 0);
}

TEST(Hardware, SpecsAreRead) {
  const auto machine = parse_machine("cpu:2x64c-ddr5-768g,nvme:4x3.84t");
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(*machine, (std::map<std::string, double>{{"sockets", 2},
                                                     {"cores", 64},
                                                     {"bandwidth", 12 * 38.4e9},
                                                     {"memory", 768e9},
                                                     {"drives", 4},
                                                     {"drive_size", 3.84e12}}));
  EXPECT_EQ(parse_machine("cpu:1x32c-ddr5-8ch")->at("bandwidth"), 8 * 38.4e9);
  EXPECT_EQ(parse_machine("nvme:1,cpu:1x8c-ddr4")->at("drives"), 1);
}

TEST(Hardware, BadSpecsAreRefusedWithTheirPart) {
  for (const char* spec :
       {"cpu:", "cpu:2x64c", "cpu:2x64c-", "cpu:2x64c-ddr9", "cpu:0x64c-ddr5", "cpu:-2x64c-ddr5", "cpu:2.5x64c-ddr5",
        "cpu:2x64c-ddr5-", "cpu:2x64c-ddr5-g", "cpu:2x64c-ddr5-0g", "cpu:2x64c-ddr5-768", "cpu:nanx64c-ddr5", "gpu:1",
        "nvme:2", "cpu:2x64c-ddr5,nvme:", "cpu:2x64c-ddr5,nvme:2x", "cpu:2x64c-ddr5,nvme:0", "cpu:2x64c-ddr5,,nvme:2",
        "cpu:1e9x1c-ddr5"})
    EXPECT_FALSE(parse_machine(spec).ok()) << spec;
  EXPECT_EQ(parse_machine("cpu:2x64c-ddr5,nvme:x")
                .error()
                .message()
                .rfind("hardware 'cpu:2x64c-ddr5,nvme:x': found 'nvme:x', expected cpu:SOCKETS", 0),
            0u);
  EXPECT_EQ(find_hardware("b400", 20).error().message(),
            "hardware: found 'b400', expected one of published, gb300, b300, dgx-spark, rtx-3090, m3-ultra, or a "
            "server as 'cpu:2x64c-ddr5,nvme:2'");
  EXPECT_NE(find_hardware("cpu:2x64c-ddr5", 500).error().message().find("one answer alone reaches"), std::string::npos);
  EXPECT_NE(find_hardware("cpu:2x64c-ddr5-128g", 5).error().message().find("the weights take 29"), std::string::npos);
}

TEST(Hardware, EveryProfileMakesAPlan) {
  for (const Hardware& one : hardware_profiles()) {
    const auto values = plan_deployment(one, {});
    ASSERT_TRUE(values.ok()) << one.name;
    EXPECT_GE(model().value(*values, "cards"), 1) << one.name;
  }
}

}  // namespace
}  // namespace deepinfer::planner
