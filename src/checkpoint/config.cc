// The keys of config.json in the order of docs/spec/model.md 1.1. What they must satisfy together is in
// config_rules.cc.
#include "checkpoint/config.h"

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/config_rules.h"

namespace deepinfer {
namespace {

// Bounds that no real model comes near, so that products of two sizes and loops over names stay harmless.
constexpr int64_t kMaxSize = int64_t{1} << 31;
constexpr int64_t kMaxRows = int64_t{1} << 40;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxPosition = int64_t{1} << 40;

// The optional keys that the published file leaves at their default.
void read_optional(ConfigReader& text, ModelConfig& config) {
  config.index_k_source_layer_ids = config.kv_source_layer_ids;
  if (text.given("index_k_source_layer_ids")) {
    text.integers("index_k_source_layer_ids", config.index_k_source_layer_ids, 0, kMaxLayers);
  }
  for (const std::string_view key : {"use_fp4_sparse_kv", "hc_shifted", "dspark_target_attn_input"}) {
    if (text.given(key)) text.fixed(key, true);
  }
  for (const std::string_view key : {"initializer_range", "use_cache"}) text.ignore(key);
  if (text.given("attention_dropout")) text.fixed("attention_dropout", 0.0);
  if (text.given("dtype")) text.fixed("dtype", "bfloat16");
}

void read_rope(ConfigReader& text, ModelConfig& config) {
  text.integer("max_position_embeddings", config.max_position_embeddings, 1, kMaxPosition);
  text.positive("rope_theta", config.rope_theta);
  text.positive("compress_rope_theta", config.compress_rope_theta);
  auto scaling = text.object("rope_scaling");
  if (!scaling) return;
  RopeScaling& rope = config.rope_scaling;
  const bool named_rope_type = scaling->given("rope_type");  // the newer spelling of "type"
  if (named_rope_type) scaling->fixed("rope_type", "yarn");
  if (scaling->given("type") || !named_rope_type) scaling->fixed("type", "yarn");
  scaling->positive("factor", rope.factor);
  scaling->positive("beta_fast", rope.beta_fast);
  scaling->positive("beta_slow", rope.beta_slow);
  scaling->integer("original_max_position_embeddings", rope.original_max_position_embeddings, 1,
                   kMaxPosition);
  scaling->note_unknown_keys();
}

void read_attention(ConfigReader& text, ModelConfig& config) {
  text.integer("num_attention_heads", config.num_attention_heads, 1, 65536);
  text.fixed("num_key_value_heads", 1);
  text.integer("head_dim", config.head_dim, 1, 65536);
  text.integer("qk_rope_head_dim", config.qk_rope_head_dim, 2, 65536);
  text.integer("q_lora_rank", config.q_lora_rank, 1, kMaxSize);
  text.integer("o_lora_rank", config.o_lora_rank, 1, 65536);
  text.integer("o_groups", config.o_groups, 1, 65536);
  text.fixed("attention_bias", false);
  text.integer("sliding_window", config.sliding_window, 1, kMaxSize);
  text.integers("compress_ratios", config.compress_ratios, 0, 2);
  text.integers("kv_source_layer_ids", config.kv_source_layer_ids, 0, kMaxLayers);
  text.integers("index_source_layer_ids", config.index_source_layer_ids, 0, kMaxLayers);
  text.integer("index_n_heads", config.index_n_heads, 1, 65536);
  text.integer("index_head_dim", config.index_head_dim, 1, 65536);
  text.integer("index_topk", config.index_topk, 1, kMaxSize);
  if (text.given("candidate_source_layer_id")) {
    text.integer("candidate_source_layer_id", config.candidate_source_layer_id.emplace(0), 0, kMaxLayers);
    text.integer("candidate_topk_blocks", config.candidate_topk_blocks, 1, kMaxSize);
    text.integer("candidate_block_size", config.candidate_block_size, 1, kMaxSize);
  } else {
    text.ignore("candidate_topk_blocks");
    text.ignore("candidate_block_size");
  }
}

void read_experts(ConfigReader& text, ModelConfig& config) {
  text.integer("moe_intermediate_size", config.moe_intermediate_size, 1, kMaxSize);
  text.fixed("hidden_act", "silu");
  text.positive("swiglu_limit", config.swiglu_limit);
  text.integer("n_routed_experts", config.n_routed_experts, 1, kMaxExperts);
  // More than one shared expert would be stored as one wider one, in a layout that the specification does not
  // give.
  text.integer("n_shared_experts", config.n_shared_experts, 1, 1);
  text.integer("num_experts_per_tok", config.num_experts_per_tok, 1, kMaxExperts);
  text.fixed("scoring_func", "sqrtsoftplus");
  text.fixed("topk_method", "noaux_tc");
  text.fixed("norm_topk_prob", true);
  text.positive("routed_scaling_factor", config.routed_scaling_factor);
}

void read_engram(ConfigReader& text, ModelConfig& config) {
  if (text.given("engram_layer_ids"))
    text.integers("engram_layer_ids", config.engram_layer_ids, 0, kMaxLayers);
  if (config.engram_layer_ids.empty()) {
    for (const std::string_view key :
         {"engram_num_embeddings", "engram_max_ngram_size", "engram_vocab_size", "engram_n_heads",
          "engram_head_dim", "engram_pad_token_id", "engram_compressed_vocab_size"}) {
      text.ignore(key);
    }
    return;
  }
  text.integers("engram_num_embeddings", config.engram_num_embeddings, 1, kMaxRows);
  text.integer("engram_max_ngram_size", config.engram_max_ngram_size, 2, 16);
  text.integer("engram_vocab_size", config.engram_vocab_size, 1, kMaxRows);
  text.integer("engram_n_heads", config.engram_n_heads, 1, 1024);
  text.integer("engram_head_dim", config.engram_head_dim, 1, 65536);
  text.token_id("engram_pad_token_id", config.engram_pad_token_id);
  text.integer("engram_compressed_vocab_size", config.engram_compressed_vocab_size, 1, kMaxSize);
}

void read_dspark(ConfigReader& text, ModelConfig& config) {
  text.integer("num_nextn_predict_layers", config.num_nextn_predict_layers, 0, 64);
  if (config.num_nextn_predict_layers == 0) {
    for (const std::string_view key :
         {"dspark_block_size", "dspark_noise_token_id", "dspark_target_layer_ids", "dspark_markov_rank",
          "dspark_n_routed_experts", "dspark_num_experts_per_tok"}) {
      text.ignore(key);
    }
    return;
  }
  text.integer("dspark_block_size", config.dspark_block_size, 1, 64);
  text.token_id("dspark_noise_token_id", config.dspark_noise_token_id);
  text.integers("dspark_target_layer_ids", config.dspark_target_layer_ids, 0, kMaxLayers);
  text.integer("dspark_markov_rank", config.dspark_markov_rank, 1, 65536);
  text.integer("dspark_n_routed_experts", config.dspark_n_routed_experts, 1, kMaxExperts);
  text.integer("dspark_num_experts_per_tok", config.dspark_num_experts_per_tok, 1, kMaxExperts);
}

void read_text(ConfigReader& text, ModelConfig& config) {
  text.fixed("model_type", "deepseek_v41_text");
  text.integer("vocab_size", config.vocab_size, 1, kMaxSize);
  text.integer("hidden_size", config.hidden_size, 1, 1 << 20);
  text.integer("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers);
  text.positive("rms_norm_eps", config.rms_norm_eps);
  text.fixed("tie_word_embeddings", false);
  text.integer("hc_mult", config.hc_mult, 1, 64);
  text.integer("hc_sinkhorn_iters", config.hc_sinkhorn_iters, 1, 10'000);
  text.not_negative("hc_eps", config.hc_eps);
  read_attention(text, config);
  read_rope(text, config);
  read_experts(text, config);
  read_engram(text, config);
  read_dspark(text, config);
  read_optional(text, config);
  text.note_unknown_keys();
}

void read_vision(ConfigReader& tower, VisionConfig& vision) {
  tower.fixed("model_type", "deepseek_v41_vision");
  tower.integer("num_hidden_layers", vision.num_hidden_layers, 1, kMaxLayers);
  tower.integer("hidden_size", vision.hidden_size, 1, 1 << 20);
  tower.integer("num_attention_heads", vision.num_attention_heads, 1, 65536);
  tower.integer("intermediate_size", vision.intermediate_size, 1, kMaxSize);
  tower.integer("patch_size", vision.patch_size, 1, 1024);
  tower.positive("rope_theta", vision.rope_theta);
  tower.integer("downsample_ratio", vision.downsample_ratio, 1, 64);
  tower.integer("max_image_tokens", vision.max_image_tokens, 1, kMaxSize);
  tower.integer("min_pixels", vision.min_pixels, 0, kMaxRows);
  if (tower.given("max_wh_ratio")) tower.positive("max_wh_ratio", vision.max_wh_ratio.emplace(0));
  tower.note_unknown_keys();
}

void read_quantization(ConfigReader& quantization) {
  quantization.fixed("quant_method", "fp8");
  quantization.fixed("activation_scheme", "dynamic");
  quantization.fixed("weight_block_size", JsonValue::Array{32, 32});
  quantization.fixed("scale_fmt", "ue8m0");
  quantization.fixed("expert_dtype", "fp4");
  quantization.note_unknown_keys();
}

void read_top(ConfigReader& top, ModelConfig& config) {
  top.fixed("architectures", JsonValue::Array{"DeepseekV41ForCausalLM"});
  top.fixed("model_type", "deepseek_v41");
  top.fixed("dtype", "bfloat16");
  top.token_id("bos_token_id", config.bos_token_id);
  top.token_id("eos_token_id", config.eos_token_id);
  top.token_id("pad_token_id", config.pad_token_id);
  if (top.given("image_token_id")) top.token_id("image_token_id", config.image_token_id.emplace(0));
  top.ignore("transformers_version");
  top.ignore("_name_or_path");  // for whoever shows a name
  if (auto quantization = top.object("quantization_config")) read_quantization(*quantization);
}

}  // namespace

ConfigReport read_model_config(std::string_view json_text) {
  ConfigReport report;
  JsonParseOptions strict;
  strict.duplicate_keys = DuplicateKeys::kError;
  const auto document = parse_json(json_text, strict);
  if (!document.ok()) {
    report.faults.push_back(document.error().message());
    return report;
  }
  report.shapes_known = true;
  ModelConfig& config = report.config;
  ConfigReader top(JsonRef(*document), report);
  read_top(top, config);
  if (auto text = top.object("text_config")) read_text(*text, config);
  if (top.given("vision_config")) {
    if (auto tower = top.object("vision_config")) read_vision(*tower, config.vision.emplace());
  }
  top.note_unknown_keys();
  if (report.shapes_known) check_config_rules(report);
  return report;
}

Result<ModelConfig> parse_model_config(std::string_view json_text) {
  ConfigReport report = read_model_config(json_text);
  if (report.faults.empty()) return std::move(report.config);
  return Error(Code::kInvalidArgument, "{}", fmt::join(report.faults, "\n"));
}

int64_t ModelConfig::first_decoder_layer() const {
  for (int64_t layer = 0; layer < num_hidden_layers; ++layer) {
    if (compress_ratios[layer] == 1) return layer;
  }
  return num_hidden_layers;
}

std::optional<int64_t> ModelConfig::source_of(const std::vector<int64_t>& sources, int64_t layer) {
  std::optional<int64_t> nearest;
  for (const int64_t source : sources) {
    if (source <= layer) nearest = source;
  }
  return nearest;
}

}  // namespace deepinfer
