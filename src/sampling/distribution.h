// The distribution that a token is drawn from: softmax at a temperature, cut by top-k, top-p and min-p.
// Private to the room and its tests; docs/spec/model.md 8.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/sampling.h"

namespace deepinfer {

// Smaller temperatures act as this one, which DeepInfer uses as well; it keeps logits / T finite.
inline constexpr float kLowestTemperature = 1e-5f;

// weights[i] = exp(logits[i] / T - max / T), quotients and difference in fp32; returns the sum in id order.
// p[i] = weights[i] / sum. Requires temperature > 0, a finite maximum and equal sizes.
double softmax_weights(std::span<const float> logits, double temperature, std::span<float> weights);

// The last token of the descending order (logit, then lowest id first) that is kept.
struct Cut {
  float logit = 0;
  int32_t id = 0;
  int64_t num_kept = 0;

  bool keeps(float other_logit, int32_t other_id) const {
    return other_logit > logit || (other_logit == logit && other_id <= id);
  }
};

// Each limit keeps a prefix of the descending order: top_k its first k tokens, top_p the shortest prefix
// whose mass reaches top_p, min_p the tokens with p >= min_p * p_max. All refer to the unfiltered softmax, so
// the shortest prefix wins. `order` is scratch of the same size. Requires at least one limit and checked
// parameters.
Cut find_cut(std::span<const float> logits, std::span<const float> weights, double sum,
             const SamplingParams& params, std::span<int32_t> order);

}  // namespace deepinfer
