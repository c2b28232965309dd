#include "sampling/penalties.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deepinfer {

void adjust_logits(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits) {
  const auto size = static_cast<int64_t>(logits.size());
  if (params.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(params.repetition_penalty);
    for (const auto& [id, count] : counts) {
      if (id >= 0 && id < size) logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
    }
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && id < size) logits[id] += bias;
  }
  if (params.presence_penalty == 0 && params.frequency_penalty == 0) return;
  for (const auto& [id, count] : counts) {
    if (id < 0 || id >= size || count <= 0) continue;
    logits[id] -= static_cast<float>(params.presence_penalty + params.frequency_penalty * count);
  }
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token_id, int32_t num_top) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  const double log_sum = max + std::log(sum);
  const auto entry = [&](int32_t id) { return Logprob{id, static_cast<float>(logits[id] - log_sum)}; };
  TokenLogprobs out = {entry(token_id), {}};
  if (num_top <= 0) return out;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const auto end = ids.begin() + std::min<int64_t>(num_top, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  for (auto id = ids.begin(); id != end && !std::isinf(logits[*id]); ++id) out.top.push_back(entry(*id));
  return out;
}

}  // namespace deepinfer
