#include "engine/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked_math.h"
#include "cache/block_cache.h"

namespace deepinfer {

int64_t planned_max_running(const ModelOptions& model, const EngineOptions& engine) {
  const int64_t states = model.max_sequences;
  const int64_t wanted = engine.max_running > 0 ? engine.max_running : states - states / 4;
  return std::min({wanted, states, model.max_batch_tokens});
}

int64_t planned_swap_blocks(const MemoryPlan& model, const EngineOptions& engine) {
  return engine.swap_blocks >= 0 ? engine.swap_blocks : static_cast<int64_t>(model.kv_blocks) / 4;
}

EngineMemoryPlan plan_engine_memory(const MemoryPlan& plan, const ModelOptions& model, const EngineOptions& engine) {
  const auto running = static_cast<uint64_t>(planned_max_running(model, engine));
  const auto blocks = static_cast<uint64_t>(std::max<int64_t>(planned_swap_blocks(plan, engine), 0));
  const bool swaps = running > 0 && blocks > 0;
  return {.model = plan,
          .max_running = static_cast<int64_t>(running),
          .index_bytes = plan.kv_blocks * BlockCache::kBytesPerBlock,
          .swap_bytes = swaps ? blocks * round_up(plan.kv_block_bytes, 64) + running * plan.sequence_state_bytes : 0};
}

std::string EngineMemoryPlan::text() const {
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "memory plan (MiB): weights {:.1f}, KV blocks {:.1f} ({} of {} tokens), states {:.1f} ({}), workspace {:.1f}, "
      "RoPE {:.1f}, prefix index {:.1f}, swap {:.1f}, total {:.1f}; {} answers at once",
      mib(model.weight_bytes), mib(model.kv_blocks * model.kv_block_bytes), model.kv_blocks, kBlockTokens,
      mib(model.sequence_states * model.sequence_state_bytes), model.sequence_states, mib(model.workspace_bytes),
      mib(model.rope_bytes), mib(index_bytes), mib(swap_bytes), mib(total_bytes()), max_running);
}

}  // namespace deepinfer
