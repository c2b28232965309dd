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
  // Change the logits before temperature and filters; see penalties.h. By default nothing is changed.
  double presence_penalty = 0;   // [-2, 2]; taken off once from each token that the answer already holds
  double frequency_penalty = 0;  // [-2, 2]; taken off for each time that the answer holds the token
  // (0, 2]; divides the logits above 0, and multiplies those below, of tokens that the prompt or the answer holds
  double repetition_penalty = 1;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // (id, [-100, 100])

  bool adjusts_logits() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1 || !logit_bias.empty();
  }
};

// kInvalidArgument names the parameter, the value found and the range expected.
Status check_sampling_params(const SamplingParams& params);

// How drafts are verified (docs/spec/decisions.md 5).
enum class SpeculationSampling {
  kDeterministic,  // a draft is accepted when it is the token that would be drawn anyway
  kRejection,      // rejection sampling with the residual: the same distribution, other draws
};

// What a random word is used for. Words of different purposes, positions or seeds are independent.
enum class Purpose : uint32_t {
  kToken = 0,     // the token of a position
  kAccept = 1,    // whether its draft is accepted (rejection mode)
  kResidual = 2,  // the token in place of a rejected draft
  kDraft = 3,     // the draft itself, rejection mode; the k-th draft behind a token uses kDraft + k
};
uint64_t random_word(uint64_t seed, int64_t position, Purpose purpose, int64_t index = 0);

// A distribution over few tokens in integer masses floor(p * 2^31), ascending by id, none of them 0. Their
// sum, not 2^31, is the whole; a token with p < 2^-31 has no mass.
struct Masses {
  struct Entry {
    int32_t id = 0;
    uint32_t mass = 0;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;

  uint32_t of(int32_t id) const;      // 0 when absent
  int32_t draw(uint64_t word) const;  // inverse CDF in id order at word / 2^64; requires an entry
};

// Owned by the executor thread; allocates nothing after construction.
class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // The token for absolute position `position`, from logits [vocab_size] and checked parameters. A logit of
  // -inf is a token that can't be drawn. kInternal when a logit is NaN (names the first) or the largest one
  // is not finite.
  Result<int32_t> sample(std::span<const float> logits, const SamplingParams& params, int64_t position);

  // The distribution that sample() draws from, cut to its `max_support` likeliest tokens (0: all) and
  // renormalized. Fails as sample() does.
  Status masses(std::span<const float> logits, const SamplingParams& params, int64_t max_support,
                Masses& out);

 private:
  Result<int32_t> checked_argmax(std::span<const float> logits, int64_t position) const;

  std::vector<float> weights_;
  std::vector<int32_t> order_;
};

// The largest logit, lowest id among equals; -1 when any logit is NaN.
int32_t argmax(std::span<const float> logits);

}  // namespace deepinfer
