#include "model/layer_plan.h"

#include <algorithm>

#include "model/engram_hash.h"

namespace deepinfer {
namespace {

std::optional<int64_t> index_of(const std::vector<int64_t>& values, int64_t value) {
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

}  // namespace

Result<std::vector<LayerPlan>> make_layer_plan(const ModelConfig& config) {
  if (config.index_k_source_layer_ids != config.kv_source_layer_ids) {
    return Error(Code::kUnimplemented, "index_k_source_layer_ids: found a list that differs from "
                 "kv_source_layer_ids; index keys of other layers are not supported");
  }
  if (!config.engram_layer_ids.empty() && config.engram_max_ngram_size != kEngramTokens) {
    return Error(Code::kUnimplemented, "engram_max_ngram_size: found {}, expected {}", config.engram_max_ngram_size,
                 kEngramTokens);
  }
  if (config.hc_mult != 4) return Error(Code::kUnimplemented, "hc_mult: found {}, expected 4", config.hc_mult);

  std::vector<LayerPlan> plan;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    LayerPlan row;
    row.ratio = config.compress_ratios[layer];
    row.rope = row.ratio == 0 ? RopeKind::kPlain : RopeKind::kCompress;
    row.owns_kv = index_of(config.kv_source_layer_ids, layer).has_value();
    row.owns_index = index_of(config.index_source_layer_ids, layer).has_value();
    row.picks_candidates = config.candidate_source_layer_id == layer;
    row.uses_candidates = row.owns_index && config.candidate_source_layer_id && layer > *config.candidate_source_layer_id;
    if (row.ratio > 0) {
      const auto source = ModelConfig::source_of(config.kv_source_layer_ids, layer);
      if (!source || !ModelConfig::source_of(config.index_source_layer_ids, layer)) {
        return Error(Code::kInvalidArgument, "compress_ratios[{}]: found {}, but no KV source and index source "
                     "at or before this layer", layer, row.ratio);
      }
      row.kv_source = index_of(config.kv_source_layer_ids, *source);
    }
    row.engram = index_of(config.engram_layer_ids, layer);
    row.dspark_target = index_of(config.dspark_target_layer_ids, layer);
    plan.push_back(row);
  }
  return plan;
}

}  // namespace deepinfer
