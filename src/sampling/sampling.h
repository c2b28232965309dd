// From logits to a token. A draw is a function of (logits, parameters, seed, absolute position) and of
// nothing else: not of the batch, the slot or the number of drafts verified in the same step.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct SamplingParams {
  double temperature = 1.0;  // 0 = greedy: the largest logit, lowest id among equals
  double top_p = 1.0;        // (0, 1]; mass of the unfiltered softmax at the temperature
  int64_t top_k = 0;         // 0 = off; together with top_p the stricter limit wins
  double min_p = 0.0;        // [0, 1]; keeps tokens with p >= min_p * p_max
  uint64_t seed = 0;
  // Added to the logits before temperature and filters; see penalties.h. All zero and empty: nothing is
  // changed.
  double presence_penalty = 0;   // [-2, 2]; taken off once from each token that the answer already holds
  double frequency_penalty = 0;  // [-2, 2]; taken off for each time that the answer holds the token
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // (id, [-100, 100])

  bool adjusts_logits() const {
    return presence_penalty != 0 || frequency_penalty != 0 || !logit_bias.empty();
  }
};

// kInvalidArgument names the parameter, the value found and the range expected.
Status check_sampling_params(const SamplingParams& params);

// Owned by the executor thread; allocates nothing after construction.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // The token for absolute position `position`, from logits [vocab_size] and checked parameters. A logit of
  // -inf is a token that can't be drawn. kInternal when a logit is NaN (names the first) or the largest one
  // is not finite.
  Result<int32_t> sample(std::span<const float> logits, const SamplingParams& params, int64_t position);

 private:
  std::vector<float> weights_;
  std::vector<int32_t> order_;
};

// The largest logit, lowest id among equals; -1 when any logit is NaN.
int32_t argmax(std::span<const float> logits);

}  // namespace deepinfer
