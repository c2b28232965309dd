// What each layer owns and reads, worked out once from the config (docs/spec/model.md 2).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "checkpoint/config.h"

namespace deepinfer {

enum class RopeKind { kPlain, kCompress };

struct LayerPlan {
  int64_t ratio = 0;                    // 0 = window only; tokens per compressed row else
  RopeKind rope = RopeKind::kPlain;
  bool owns_kv = false;                 // compressor, index keys
  bool owns_index = false;              // own index query and top-k
  bool picks_candidates = false;        // the candidate source
  bool uses_candidates = false;         // selects inside the candidate blocks
  std::optional<int64_t> kv_source;     // index into the KV sources (groups of a block)
  std::optional<int64_t> engram;        // index into engram_layer_ids
  std::optional<int64_t> dspark_target;  // index into dspark_target_layer_ids
};

// One entry per backbone layer. kUnimplemented names what this engine does not run.
Result<std::vector<LayerPlan>> make_layer_plan(const ModelConfig& config);

}  // namespace deepinfer
