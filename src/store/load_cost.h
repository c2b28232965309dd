// When reading blocks pays, and how long it may take. Arithmetic on measured numbers. Source: docs/spec/kv.md 7.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace deepinfer::store {

struct LoadCost {
  double first_byte_s = 0.0002;      // until the first block is there
  double bytes_per_s = 1e9;
  double prefill_tokens_per_s = 30;  // what computing the same tokens takes instead

  // Takes in how long a load took. Loads of up to 4 blocks say when the first byte comes, longer ones how fast the rest.
  void observe(uint64_t blocks, uint64_t block_bytes, double seconds) {
    constexpr double kWeight = 0.2;  // of the newest load
    if (blocks == 0 || seconds <= 0) return;
    const auto bytes = static_cast<double>(blocks * block_bytes);
    if (blocks <= 4) {
      first_byte_s += kWeight * (std::max(0.0, seconds - bytes / bytes_per_s) - first_byte_s);
    } else {
      bytes_per_s += kWeight * (bytes / std::max(seconds - first_byte_s, seconds / 10) - bytes_per_s);
    }
  }
};

inline double load_seconds(const LoadCost& cost, uint64_t blocks, uint64_t block_bytes) {
  return blocks == 0 ? 0 : cost.first_byte_s + static_cast<double>(blocks * block_bytes) / cost.bytes_per_s;
}

// True when a load takes less than 0.8 of computing the `tokens` that it saves.
inline bool load_pays(double load_s, const LoadCost& cost, uint64_t tokens) {
  return load_s < 0.8 * static_cast<double>(tokens) / cost.prefill_tokens_per_s;
}
inline bool load_pays(const LoadCost& cost, uint64_t blocks, uint64_t block_bytes, uint64_t tokens) {
  return blocks > 0 && load_pays(load_seconds(cost, blocks, block_bytes), cost, tokens);
}

// min(configured, 0.7 of computing those tokens).
inline std::chrono::nanoseconds load_limit(const LoadCost& cost, uint64_t tokens, std::chrono::nanoseconds configured) {
  const double recompute = 0.7 * static_cast<double>(tokens) / cost.prefill_tokens_per_s;
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(recompute * 1e9, static_cast<double>(configured.count()))));
}

}  // namespace deepinfer::store
