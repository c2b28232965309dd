// The planner's inputs that speak of the model are those of the released checkpoint.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "checkpoint/config.h"
#include "checkpoint/presets.h"
#include "checkpoint/tensor_list.h"
#include "planner/planner.h"
#include "source_path.h"

namespace deepinfer {
namespace {

TEST(PlannerFacts, AreThoseOfTheReleasedConfig) {
  const auto config = parse_model_config(flash_config_text());
  ASSERT_TRUE(config.ok());
  const planner::Model& model = planner::machine_model();
  const auto input = [&](std::string_view id) { return model.find_input(id)->value; };
  EXPECT_EQ(input("layers"), static_cast<double>(config->num_hidden_layers));
  EXPECT_EQ(input("experts"), static_cast<double>(config->n_routed_experts));
  EXPECT_EQ(input("experts_per_token"), static_cast<double>(config->num_experts_per_tok));
  EXPECT_EQ(input("hidden"), static_cast<double>(config->hidden_size));
  EXPECT_EQ(input("expert_inner"), static_cast<double>(config->moe_intermediate_size));
  EXPECT_EQ(input("window_rows"), static_cast<double>(config->sliding_window));
  EXPECT_EQ(input("context"), static_cast<double>(config->max_position_embeddings));
}

TEST(PlannerFacts, BytesAreThoseOfTheTensorList) {
  const auto config = parse_model_config(flash_config_text());
  ASSERT_TRUE(config.ok());
  double dense = 0, experts = 0, engram = 0;
  for (const ExpectedTensor& tensor : expected_tensors(*config)) {
    const auto bytes = static_cast<double>(tensor.size_bytes());
    const std::string& name = tensor.name;
    if (tensor.kind == WeightKind::kRoutedExpert) {
      experts += bytes;
    } else if (tensor.kind == WeightKind::kEngramTable) {
      engram += bytes;
    } else if (tensor.kind != WeightKind::kVision && tensor.kind != WeightKind::kAligner &&
               tensor.kind != WeightKind::kDspark && name != "embed.weight") {
      dense += bytes;
    }
  }
  const planner::Model& model = planner::machine_model();
  const planner::Values values = model.compute(model.defaults());
  EXPECT_EQ(model.value(values, "experts_bytes"), experts);
  EXPECT_NEAR(model.value(values, "engram_bytes") / engram, 1, 0.001) << engram;
  EXPECT_NEAR(model.value(values, "dense_bytes") / dense, 1, 0.005) << dense;
}

std::string read(const std::string& path) {
  std::ifstream file(source_path(path));
  return {std::istreambuf_iterator<char>(file), {}};
}

// **18.8 MB**<!--server.expert_bytes--> is what the model gives, and no number stands there that the planner does not.
TEST(HowItWorks, EveryNumberIsThatOfThePlanner) {
  std::string text = read("docs/how-it-works.md");
  const std::regex marked(R"(\*\*([^*]+)\*\*<!--(\w+)\.(\w+)-->)");
  int checked = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), marked), end; match != end; ++match, ++checked) {
    const planner::Model* model = nullptr;
    for (const planner::Model* one : planner::all_models())
      if (one->name() == (*match)[2]) model = one;
    ASSERT_NE(model, nullptr) << (*match)[0];
    ASSERT_TRUE(model->place((*match)[3].str())) << (*match)[0];
    const planner::Values values = model->compute(model->defaults());
    EXPECT_EQ((*match)[1], model->text(values, (*match)[3].str())) << (*match)[0];
  }
  EXPECT_GE(checked, 50);
  text = std::regex_replace(text, marked, "");
  text = std::regex_replace(text, std::regex("`[^`]*`"), "");     // code and paths
  text = std::regex_replace(text, std::regex("FP4|n-gram"), "");  // names
  std::smatch left;
  EXPECT_FALSE(std::regex_search(text, left, std::regex(".*[0-9].*"))) << left[0];
  EXPECT_EQ(text.find("<!--"), std::string::npos) << "a mark without a bold number in front";
}

}  // namespace
}  // namespace deepinfer
