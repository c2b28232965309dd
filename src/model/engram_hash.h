// Engram row numbers (docs/spec/model.md 6.2): n-gram hashes of compressed token ids. Their constants follow from the
// config: multipliers from numpy's default generator, primes upwards from engram_vocab_size.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"

namespace deepinfer {

inline constexpr int kEngramTokens = 4;  // current token and three before it

// Constants of one Engram layer.
struct EngramLayerHash {
  std::array<int64_t, kEngramTokens> multipliers{};
  std::vector<int64_t> primes;   // one per column: n-gram order by order, head by head
  std::vector<int64_t> offsets;  // running sums of the primes

  int64_t num_columns() const { return static_cast<int64_t>(primes.size()); }
  // Row numbers of a token: ids[0] is its compressed id, ids[i] the one i tokens back (the pad class before the start).
  void rows(const std::array<int64_t, kEngramTokens>& ids, std::span<int64_t> out) const;
};

// One entry per engram_layer_ids. kInvalidArgument when the sums of the primes differ from engram_num_embeddings.
Result<std::vector<EngramLayerHash>> make_engram_hashes(const ModelConfig& config);

// The first `count` values of numpy.random.default_rng(seed).integers(0, bound). Requires 2^32 < bound < 2^63.
std::vector<int64_t> numpy_integers(uint64_t seed, uint64_t bound, int count);

}  // namespace deepinfer
