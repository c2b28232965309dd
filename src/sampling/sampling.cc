#include "sampling/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "sampling/distribution.h"

namespace deepinfer {
namespace {

// A number in [0, 1) with 53 bits that belongs to (seed, position) alone.
double uniform(uint64_t seed, int64_t position) {
  return static_cast<double>(random_word(seed, position, Purpose::kToken) >> 11) * 0x1p-53;
}

// Inverse CDF in id order: the first kept token whose running mass exceeds fraction * total mass.
template <typename Keeps>
int32_t draw(std::span<const float> weights, double fraction, const Keeps& keeps) {
  const auto size = static_cast<int32_t>(weights.size());
  double total = 0;
  for (int32_t id = 0; id < size; ++id) total += keeps(id) ? weights[id] : 0.0f;
  const double target = fraction * total;
  double mass = 0;
  int32_t last = 0;
  for (int32_t id = 0; id < size; ++id) {
    if (weights[id] == 0 || !keeps(id)) continue;
    mass += weights[id];
    last = id;
    if (mass > target) break;
  }
  return last;
}

Error bad_parameter(std::string_view name, double found, std::string_view expected) {
  return Error(Code::kInvalidArgument, "{}: found {}, expected {}", name, found, expected);
}

}  // namespace

// Every comparison is written so that NaN fails it.
Status check_sampling_params(const SamplingParams& params) {
  if (!(params.temperature >= 0) || std::isinf(params.temperature)) {
    return bad_parameter("temperature", params.temperature, "a finite number >= 0");
  }
  if (!(params.top_p > 0 && params.top_p <= 1))
    return bad_parameter("top_p", params.top_p, "a number in (0, 1]");
  if (params.top_k < 0) {
    return Error(Code::kInvalidArgument, "top_k: found {}, expected a number >= 0", params.top_k);
  }
  if (!(params.min_p >= 0 && params.min_p <= 1))
    return bad_parameter("min_p", params.min_p, "a number in [0, 1]");
  for (const auto& [name, penalty] : {std::pair("presence_penalty", params.presence_penalty),
                                      std::pair("frequency_penalty", params.frequency_penalty)}) {
    if (!(penalty >= -2 && penalty <= 2)) return bad_parameter(name, penalty, "a number in [-2, 2]");
  }
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= 2)) {
    return bad_parameter("repetition_penalty", params.repetition_penalty, "a number in (0, 2]");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (!(bias >= -100 && bias <= 100)) return bad_parameter("logit_bias", bias, "numbers in [-100, 100]");
  }
  return {};
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (best < 0 || logits[i] > logits[best]) best = static_cast<int32_t>(i);
  }
  return best;
}

uint64_t random_word(uint64_t seed, int64_t position, Purpose purpose, int64_t index) {
  const auto word = static_cast<uint64_t>(position);
  const auto words = philox4x32(seed, {0, static_cast<uint32_t>(purpose) + static_cast<uint32_t>(index),
                                       static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)});
  return uint64_t{words[0]} << 32 | words[1];
}

uint32_t Masses::of(int32_t id) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), id,
                                   [](const Entry& entry, int32_t wanted) { return entry.id < wanted; });
  return at != entries.end() && at->id == id ? at->mass : 0;
}

int32_t Masses::draw(uint64_t word) const {
  const auto target = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * total >> 64);
  uint64_t mass = 0;
  for (const Entry& entry : entries) {
    mass += entry.mass;
    if (mass > target) return entry.id;
  }
  return entries.back().id;
}

Sampler::Sampler(int64_t vocab_size) : weights_(vocab_size), order_(vocab_size) {}

Result<int32_t> Sampler::checked_argmax(std::span<const float> logits, int64_t position) const {
  CHECK(logits.size() == weights_.size());
  const int32_t best = argmax(logits);
  if (best < 0) {
    size_t bad = 0;
    while (bad + 1 < logits.size() && !std::isnan(logits[bad])) ++bad;
    return Error(Code::kInternal, "sampling: logit of id {} at position {} is not a number", bad, position);
  }
  if (std::isinf(logits[best])) {
    return Error(Code::kInternal, "sampling: largest logit at position {} is {}, expected a finite one",
                 position, logits[best]);
  }
  return best;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                int64_t position) {
  ASSIGN_OR_RETURN(const int32_t best, checked_argmax(logits, position));
  if (params.temperature == 0) return best;

  const double sum = softmax_weights(logits, params.temperature, weights_);
  const double fraction = uniform(params.seed, position);
  const bool filtered = params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
  if (!filtered) return draw(weights_, fraction, [](int32_t) { return true; });
  const Cut cut = find_cut(logits, weights_, sum, params, order_);
  return draw(weights_, fraction, [&](int32_t id) { return cut.keeps(logits[id], id); });
}

Status Sampler::masses(std::span<const float> logits, const SamplingParams& params, int64_t max_support,
                       Masses& out) {
  ASSIGN_OR_RETURN(const int32_t best, checked_argmax(logits, 0));
  out.entries.clear();
  out.total = 0;
  constexpr double kWhole = 0x1p31;
  if (params.temperature == 0) {
    out.entries.push_back({best, static_cast<uint32_t>(kWhole)});
    out.total = out.entries[0].mass;
    return {};
  }
  const double sum = softmax_weights(logits, params.temperature, weights_);
  SamplingParams limits;
  limits.top_p = params.top_p;
  limits.min_p = params.min_p;
  limits.top_k =
      max_support > 0 && (params.top_k == 0 || max_support < params.top_k) ? max_support : params.top_k;
  const bool filtered = limits.top_k > 0 || limits.top_p < 1 || limits.min_p > 0;
  const Cut cut = filtered ? find_cut(logits, weights_, sum, limits, order_) : Cut{};
  const auto size = static_cast<int32_t>(logits.size());
  double kept = 0;
  for (int32_t id = 0; id < size; ++id) kept += !filtered || cut.keeps(logits[id], id) ? weights_[id] : 0.0f;
  for (int32_t id = 0; id < size; ++id) {
    if (filtered && !cut.keeps(logits[id], id)) continue;
    const auto mass = static_cast<uint32_t>(weights_[id] / kept * kWhole);
    if (mass == 0) continue;
    out.entries.push_back({id, mass});
    out.total += mass;
  }
  return {};
}

}  // namespace deepinfer
