// From logits to a token. A draw is a function of (logits, parameters, seed, absolute position) and of
// nothing else: not of the batch, the slot or the number of drafts verified in the same step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct SamplingParams {
  double temperature = 1.0;  // 0 = greedy: the largest logit, lowest id among equals
  double top_p = 1.0;        // (0, 1]; mass of the unfiltered softmax at the temperature
  int64_t top_k = 0;         // 0 = off; together with top_p the stricter limit wins
  double min_p = 0.0;        // [0, 1]; keeps tokens with p >= min_p * p_max
  uint64_t seed = 0;
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
