// The model's shape and constants, read from `config.json` (docs/spec/model.md 1.1) and checked.
//
// Every key of the specification is read. A key that changes the numbers and has a value this engine does not
// compute is refused by name (docs/spec/decisions.md 7: what can't be computed right is refused, not what is merely
// unusual). Field names are the keys of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct RopeScaling {  // YaRN; docs/spec/model.md 4.2
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

struct VisionConfig {  // docs/spec/model.md 10
  int64_t num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 10000;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;
};

struct ModelConfig {
  int32_t bos_token_id = 0;
  int32_t eos_token_id = 1;
  int32_t pad_token_id = 2;
  std::optional<int32_t> image_token_id;

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_attention_heads = 0;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  double compress_rope_theta = 0;
  RopeScaling rope_scaling;

  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;
  int64_t num_experts_per_tok = 0;
  double routed_scaling_factor = 0;

  int64_t sliding_window = 0;
  std::vector<int64_t> compress_ratios;  // num_hidden_layers + num_nextn_predict_layers entries
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  std::vector<int64_t> index_k_source_layer_ids;  // default: kv_source_layer_ids
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  std::optional<int64_t> candidate_source_layer_id;
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;

  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int32_t engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;

  int64_t num_nextn_predict_layers = 0;  // DSpark stages, run one after another in one draft pass
  int64_t dspark_block_size = 0;
  int32_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  std::optional<VisionConfig> vision;  // absent in text-only checkpoints

  // Keys of the file that nothing here reads, as paths ("text_config.use_sliding_window"): worth a warning,
  // no more.
  std::vector<std::string> unknown_keys;

  // The first decoder layer: the first entry of compress_ratios that equals 1; num_hidden_layers when none
  // does.
  int64_t first_decoder_layer() const;
  // Nearest source at or before `layer` in an ascending list of source layers; nullopt when there is none.
  static std::optional<int64_t> source_of(const std::vector<int64_t>& sources, int64_t layer);
};

// What reading a config.json found. With faults, `config` holds what could be read and must not be run.
struct ConfigReport {
  ModelConfig config;
  std::vector<std::string> faults;  // "text_config.hidden_act: found "gelu", expected "silu""
  bool shapes_known = false;  // every key that decides a tensor's name or shape was read and is in range
};
ConfigReport read_model_config(std::string_view json_text);

// The same for callers that need a sound config: all faults of the text in one kInvalidArgument, one line
// each.
Result<ModelConfig> parse_model_config(std::string_view json_text);

}  // namespace deepinfer
