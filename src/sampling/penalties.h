// What a request adds to the logits before a token is drawn, and the log probabilities that it may ask for.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/sampling.h"

namespace deepinfer {

// How often each token occurs in one answer so far. Tokens of the prompt, which a repetition penalty looks at too, do
// not count: they stand here with 0. Owned by one sequence.
using TokenCounts = std::unordered_map<int32_t, int32_t>;

// First logit[id] is divided by the repetition penalty, or multiplied where it is below 0, for each id in `counts`;
// then logit[id] += bias[id] - presence_penalty * (count > 0) - frequency_penalty * count, in fp32. Ids outside of
// `logits` are ignored.
void adjust_logits(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits);

struct Logprob {
  int32_t token_id = 0;
  float logprob = 0;
};
struct TokenLogprobs {
  Logprob chosen;
  std::vector<Logprob> top;  // likeliest first, lowest id among equals
};

// Log softmax of raw logits, sum in fp64 in id order, for one id and the min(num_top, size) likeliest; ids whose logit is
// -inf are not among them.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token_id, int32_t num_top);

}  // namespace deepinfer
