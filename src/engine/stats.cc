#include "engine/stats.h"

#include <bit>

namespace deepinfer {
namespace {

using Values = std::array<int64_t, kNumStats>;
static_assert(sizeof(Values) == sizeof(EngineStats), "every field is an int64_t");

// In the order of the struct.
constexpr std::array<const char*, kNumStats> kNames = {
    "running", "waiting", "preempted", "blocks_total", "blocks_free", "blocks_cached", "blocks_used", "states_total",
    "states_free", "states_kept", "swap_blocks_total", "swap_blocks_used", "batch_rows", "batch_sequences",
    "submitted", "finished", "cancelled", "errors", "steps", "decode_rows", "prefill_rows", "encoder_only_rows",
    "replayed_rows", "prompt_tokens", "completion_tokens", "hit_tokens", "hits", "misses_absent", "misses_evicted",
    "misses_window_lost", "misses_too_short", "misses_lineage", "misses_not_kept", "misses_corrupt", "misses_expired",
    "misses_deadline", "misses_not_worth_it", "misses_unreadable", "store_loads", "store_loaded", "store_load_ns",
    "store_written", "store_dropped", "store_hit_tokens", "store_held", "store_states_written",
    "store_states_dropped", "store_states_loaded", "preempted_swap", "preempted_recompute", "plan_ns",
    "execute_ns", "sample_ns", "commit_ns", "drafted", "draft_passes", "draft_ns", "verified_1", "verified_2", "verified_3",
    "verified_4", "verified_5", "verified_6", "verified_7", "verified_8", "accepted_1", "accepted_2", "accepted_3",
    "accepted_4", "accepted_5", "accepted_6", "accepted_7", "accepted_8", "calibration_error_ppm", "predicted_ns",
    "predicted_real_ns"};
static_assert(kNames.back() != nullptr, "every field has a name");

}  // namespace

void StatsBoard::store(const EngineStats& stats) {
  const auto values = std::bit_cast<Values>(stats);
  for (size_t i = 0; i < kNumStats; ++i) values_[i].store(values[i], std::memory_order_relaxed);
}

EngineStats StatsBoard::load() const {
  Values values;
  for (size_t i = 0; i < kNumStats; ++i) values[i] = values_[i].load(std::memory_order_relaxed);
  return std::bit_cast<EngineStats>(values);
}

std::vector<std::pair<std::string, int64_t>> name_stats(const EngineStats& stats) {
  const auto values = std::bit_cast<Values>(stats);
  std::vector<std::pair<std::string, int64_t>> named;
  for (size_t i = 0; i < kNumStats; ++i) named.emplace_back(kNames[i], values[i]);
  return named;
}

std::string describe(const EngineStats& stats) {
  std::string text;
  for (const auto& [name, value] : name_stats(stats)) text += fmt::format("{:<22}{:>16}\n", name, value);
  return text;
}

}  // namespace deepinfer
