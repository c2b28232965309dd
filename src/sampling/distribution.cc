#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deepinfer {

// As the reference rounds it: logits / T in fp32, then the largest subtracted in fp32. The exponential is the C library's
// in double, rounded to float: its last double bit, which may differ between libraries, then practically never shows.
double softmax_weights(std::span<const float> logits, double temperature, std::span<float> weights) {
  CHECK(logits.size() == weights.size());
  const float divisor = std::max(static_cast<float>(temperature), kLowestTemperature);
  const float max = *std::max_element(logits.begin(), logits.end()) / divisor;
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = static_cast<float>(std::exp(static_cast<double>(logits[i] / divisor - max)));
    sum += weights[i];
  }
  return sum;
}

// A heap gives the descending order one token at a time, so a sharp distribution costs little more than one
// pass.
Cut find_cut(std::span<const float> logits, std::span<const float> weights, double sum,
             const SamplingParams& params, std::span<int32_t> order) {
  const auto comes_later = [&](int32_t a, int32_t b) {
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
  };
  const auto vocab_size = static_cast<int64_t>(logits.size());
  const int64_t count_limit = params.top_k > 0 ? std::min(params.top_k, vocab_size) : vocab_size;
  const double mass_limit = params.top_p < 1 ? params.top_p * sum : sum;
  const double weight_limit = params.min_p;  // the largest weight is 1

  std::iota(order.begin(), order.end(), 0);
  std::make_heap(order.begin(), order.end(), comes_later);
  Cut cut;
  double mass = 0;
  for (auto end = order.end(); cut.num_kept < count_limit && mass < mass_limit; --end) {
    const int32_t id = order.front();
    if (weights[id] < weight_limit) break;
    mass += weights[id];
    cut = {logits[id], id, cut.num_kept + 1};
    std::pop_heap(order.begin(), end, comes_later);
  }
  return cut;
}

}  // namespace deepinfer
