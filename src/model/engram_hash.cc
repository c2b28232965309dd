#include "model/engram_hash.h"

#include <bit>
#include <limits>

namespace deepinfer {
namespace {

// numpy's SeedSequence: a 32-bit seed word pool of four, hashed and mixed.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t hash = 0x43b0d7e5;
    const auto hashed = [&hash](uint32_t value) {
      value ^= hash;
      hash *= 0x931e8875;
      value *= hash;
      return value ^ value >> 16;
    };
    for (int i = 0; i < 4; ++i) pool_[i] = hashed(entropy[i]);
    for (int source = 0; source < 4; ++source) {
      for (int target = 0; target < 4; ++target) {
        if (source == target) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[target] - 0x4973f715 * hashed(pool_[source]);
        pool_[target] = mixed ^ mixed >> 16;
      }
    }
  }

  std::array<uint64_t, 4> state() const {
    std::array<uint32_t, 8> words{};
    uint32_t hash = 0x8b51f9dd;
    for (int i = 0; i < 8; ++i) {
      uint32_t value = pool_[i % 4] ^ hash;
      hash *= 0x58f38ded;
      value *= hash;
      words[i] = value ^ value >> 16;
    }
    std::array<uint64_t, 4> state{};
    for (int i = 0; i < 4; ++i) state[i] = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
    return state;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR 128/64), numpy's default bit generator.
class Pcg64 {
 public:
  explicit Pcg64(const std::array<uint64_t, 4>& seed) {
    const Wide initial = Wide{seed[0]} << 64 | seed[1];
    increment_ = (Wide{seed[2]} << 64 | seed[3]) << 1 | 1;
    step();
    state_ += initial;
    step();
  }
  uint64_t next() {
    step();
    const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const auto rotation = static_cast<int>(state_ >> 122);
    return std::rotr(folded, rotation);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  void step() { state_ = state_ * (Wide{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645) + increment_; }
  Wide state_ = 0;
  Wide increment_ = 0;
};

bool is_prime(int64_t value) {
  if (value < 2) return false;
  for (int64_t divisor = 2; divisor * divisor <= value; ++divisor) {
    if (value % divisor == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> numpy_integers(uint64_t seed, uint64_t bound, int count) {
  CHECK(bound > std::numeric_limits<uint32_t>::max());
  Pcg64 generator(SeedSequence(seed).state());
  std::vector<int64_t> values;
  // Lemire's method: the high half of a 128-bit product, low halves below the threshold are drawn again.
  const uint64_t threshold = (std::numeric_limits<uint64_t>::max() - bound + 1) % bound;
  while (static_cast<int>(values.size()) < count) {
    __extension__ const unsigned __int128 product = static_cast<unsigned __int128>(generator.next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) values.push_back(static_cast<int64_t>(product >> 64));
  }
  return values;
}

void EngramLayerHash::rows(const std::array<int64_t, kEngramTokens>& ids, std::span<int64_t> out) const {
  const int64_t heads = num_columns() / (kEngramTokens - 1);
  int64_t hash = ids[0] * multipliers[0];
  for (int order = 1; order < kEngramTokens; ++order) {
    hash ^= ids[order] * multipliers[order];
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t column = (order - 1) * heads + head;
      out[column] = hash % primes[column] + offsets[column];
    }
  }
}

Result<std::vector<EngramLayerHash>> make_engram_hashes(const ModelConfig& config) {
  std::vector<EngramLayerHash> hashes;
  int64_t last_prime = config.engram_vocab_size - 1;
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    EngramLayerHash hash;
    const int64_t classes = config.engram_compressed_vocab_size;
    const int64_t bound = std::numeric_limits<int64_t>::max() / classes / 2;
    if (bound <= int64_t{std::numeric_limits<uint32_t>::max()}) {
      return Error(Code::kInvalidArgument, "engram_compressed_vocab_size: found {}, expected less than 2^30", classes);
    }
    const auto seed = static_cast<uint64_t>(10007 * config.engram_layer_ids[i]);
    const auto draws = numpy_integers(seed, static_cast<uint64_t>(bound), kEngramTokens);
    for (int token = 0; token < kEngramTokens; ++token) hash.multipliers[token] = draws[token] * 2 + 1;

    int64_t rows = 0;
    for (int64_t column = 0; column < (config.engram_max_ngram_size - 1) * config.engram_n_heads; ++column) {
      do {
        ++last_prime;
      } while (!is_prime(last_prime));
      hash.primes.push_back(last_prime);
      hash.offsets.push_back(rows);
      rows += last_prime;
    }
    if (rows != config.engram_num_embeddings[i]) {
      return Error(Code::kInvalidArgument,
                   "engram_num_embeddings[{}]: found {}, expected {}, the sum of {} consecutive primes from {}", i,
                   config.engram_num_embeddings[i], rows, hash.primes.size(), config.engram_vocab_size);
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

}  // namespace deepinfer
