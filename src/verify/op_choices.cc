// Choices among scores: experts (docs/spec/model.md 7) and tokens (8).
#include <algorithm>
#include <cmath>

#include "model/select.h"
#include "sampling/distribution.h"
#include "sampling/sampling.h"
#include "verify/compare.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kRouterTokens = 6;

struct RouterCase {
  std::string prefix;
  int64_t num_experts;
  int64_t num_chosen;
  int64_t first_image_row;  // rows from here on use bias_vl
};

// The weights that a token gives to its experts, by expert.
std::vector<float> weights_by_expert(std::span<const int32_t> ids, std::span<const float> weights,
                                     int64_t num_experts) {
  std::vector<float> by_expert(num_experts);
  for (size_t i = 0; i < ids.size(); ++i) by_expert[ids[i]] = weights[i];
  return by_expert;
}

Status check_router_case(OpCheck& op, const RouterCase& router) {
  const auto& [prefix, experts, chosen, first_image_row] = router;
  ASSIGN_OR_RETURN(const auto w_values, op.inputs.bf16(prefix + ": W", experts * kHidden));
  ASSIGN_OR_RETURN(const Matrix gate, Matrix::pack_bf16(experts, kHidden, w_values));
  ASSIGN_OR_RETURN(const auto x, op.inputs.bf16(prefix + ": x", kRouterTokens * kHidden));
  ASSIGN_OR_RETURN(const auto bias, op.inputs.f32(prefix + ": bias", experts));
  ASSIGN_OR_RETURN(const auto bias_vl, op.inputs.f32(prefix + ": bias_vl", experts));
  ASSIGN_OR_RETURN(const auto z, op.file.read<float>(prefix + ".z", {kRouterTokens, experts}));
  ASSIGN_OR_RETURN(const auto s, op.file.read<float>(prefix + ".s", {kRouterTokens, experts}));
  ASSIGN_OR_RETURN(const auto idx, op.file.read<int32_t>(prefix + ".idx", {kRouterTokens, chosen}));
  ASSIGN_OR_RETURN(const auto w, op.file.read<float>(prefix + ".w", {kRouterTokens, chosen}));
  ASSIGN_OR_RETURN(const auto margin, op.file.read<float>(prefix + ".margin", {kRouterTokens}));
  if (std::any_of(idx.begin(), idx.end(), [&](int32_t id) { return id < 0 || id >= experts; })) {
    return Error(Code::kInvalidArgument, "{}: {}.idx: an expert is outside 0 to {}", op.file.path(), prefix,
                 experts - 1);
  }

  const std::vector<float> logits = op.bench.plain_product(gate.view(), x).acc;
  std::vector<float> scores(logits.size()), expected_weights, found_weights;
  int64_t mismatches = 0, ties = 0;
  for (int64_t row = 0; row < kRouterTokens; ++row) {
    std::vector<int32_t> ids(chosen);
    std::vector<float> weights(chosen);
    route_experts(std::span(logits).subspan(row * experts, experts), row >= first_image_row ? bias_vl : bias,
                  1.5f, std::span(scores).subspan(row * experts, experts), ids, weights);
    const auto golden_ids = std::span(idx).subspan(row * chosen, chosen);
    if (!std::is_permutation(ids.begin(), ids.end(), golden_ids.begin())) {
      ++(margin[row] > 1e-5f ? mismatches : ties);
      continue;
    }
    for (const float weight :
         weights_by_expert(golden_ids, std::span(w).subspan(row * chosen, chosen), experts)) {
      expected_weights.push_back(weight);
    }
    for (const float weight : weights_by_expert(ids, weights, experts)) found_weights.push_back(weight);
  }
  op.compare(prefix + ".z", kOfRms, worst_of_rms(z, logits, experts), kSumLimit);
  op.compare(prefix + ".s", kOfRms, worst_of_rms(s, scores, experts), kSumLimit);
  op.compare(prefix + ".idx", kMismatches, static_cast<double>(mismatches), 0,
             ties > 0 ? fmt::format("and {} rows within the margin", ties) : "");
  op.compare(prefix + ".w", kOfRms, worst_of_rms(expected_weights, found_weights, experts), kSumLimit);
  return Status();
}

constexpr int64_t kSampledRows = 4;
constexpr int64_t kSampledVocab = 1000;

// Probabilities at a temperature, the pick argmax p / noise, and how many tokens top-p 0.95 keeps.
Status check_temperature(OpCheck& op, const std::string& temperature, std::span<const float> logits,
                         std::span<const float> noise) {
  const std::string probs = "probs." + temperature, pick = "pick." + temperature;
  const std::string top_p = "top_p_count." + temperature;
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(probs, {kSampledRows, kSampledVocab}));
  ASSIGN_OR_RETURN(const auto picks, op.file.read<int32_t>(pick, {kSampledRows}));
  ASSIGN_OR_RETURN(const auto counts, op.file.read<int32_t>(top_p, {kSampledRows}));
  const SamplingParams params{.temperature = std::stod(temperature.substr(1)), .top_p = 0.95};
  std::vector<float> found, weights(kSampledVocab), race(kSampledVocab);
  std::vector<int32_t> order(kSampledVocab);
  int64_t wrong_picks = 0, wrong_counts = 0;
  for (int64_t row = 0; row < kSampledRows; ++row) {
    const auto row_logits = logits.subspan(row * kSampledVocab, kSampledVocab);
    const double sum = softmax_weights(row_logits, params.temperature, weights);
    for (int64_t id = 0; id < kSampledVocab; ++id) {
      found.push_back(static_cast<float>(weights[id] / sum));
      race[id] = found.back() / noise[row * kSampledVocab + id];
    }
    wrong_picks += argmax(race) == picks[row] ? 0 : 1;
    wrong_counts += find_cut(row_logits, weights, sum, params, order).num_kept == counts[row] ? 0 : 1;
  }
  op.compare(probs, kOfRms, worst_of_rms(expected, found, kSampledVocab), kSumLimit);
  op.compare(pick, kMismatches, static_cast<double>(wrong_picks), 0);
  op.compare(top_p, kMismatches, static_cast<double>(wrong_counts), 0);
  return Status();
}

}  // namespace

Status check_router(OpCheck& op) {
  RETURN_IF_ERROR(check_router_case(op, {"backbone", 384, 6, 4}));
  return check_router_case(op, {"dspark", 128, 3, kRouterTokens});
}

Status check_sampling(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto logits, op.inputs.f32("logits", kSampledRows * kSampledVocab));
  ASSIGN_OR_RETURN(const auto greedy, op.file.read<int32_t>("greedy", {kSampledRows}));
  ASSIGN_OR_RETURN(const auto noise, op.file.read<float>("noise", {kSampledRows, kSampledVocab}));
  int64_t mismatches = 0;
  for (int64_t row = 0; row < kSampledRows; ++row) {
    mismatches += argmax(std::span(logits).subspan(row * kSampledVocab, kSampledVocab)) == greedy[row] ? 0 : 1;
  }
  op.compare("greedy", kMismatches, static_cast<double>(mismatches), 0);
  for (const char* temperature : {"T1.0", "T0.6", "T0.05"}) {
    RETURN_IF_ERROR(check_temperature(op, temperature, logits, noise));
  }
  return Status();
}

}  // namespace deepinfer::golden
