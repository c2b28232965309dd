#include "checkpoint/config_rules.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int64_t kScaleBlock = 32;  // weights and activations share one scale per 32 numbers

class RuleChecker {
 public:
  explicit RuleChecker(ConfigReport& report) : report_(report), config_(report.config) {}

  void check() {
    check_lengths();
    if (!report_.shapes_known) return;
    check_widths();
    check_token_ids();
    check_sources();
    check_candidates();
    check_engram();
    check_dspark();
    check_vision();
    require(config_.num_experts_per_tok <= config_.n_routed_experts,
            "num_experts_per_tok: found {}, expected at most {}", config_.num_experts_per_tok,
            config_.n_routed_experts);
  }

 private:
  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) report_.faults.push_back("text_config." + fmt::format(format, std::forward<Args>(args)...));
  }

  // Without these the list of tensors has no meaning, or no end.
  void check_lengths() {
    const size_t before = report_.faults.size();
    const auto layers = static_cast<size_t>(config_.num_hidden_layers + config_.num_nextn_predict_layers);
    require(config_.compress_ratios.size() == layers,
            "compress_ratios: found {} entries, expected {} (num_hidden_layers + num_nextn_predict_layers)",
            config_.compress_ratios.size(), layers);
    require(config_.engram_num_embeddings.size() == config_.engram_layer_ids.size(),
            "engram_num_embeddings: found {} entries, expected {} (one per entry of engram_layer_ids)",
            config_.engram_num_embeddings.size(), config_.engram_layer_ids.size());
    require(config_.num_hidden_layers * config_.n_routed_experts <= 200'000,
            "n_routed_experts: found {} in {} layers, expected at most 200000 experts in all",
            config_.n_routed_experts, config_.num_hidden_layers);
    report_.shapes_known = report_.faults.size() == before;
  }

  void require_blocks(std::string_view what, int64_t width) {
    require(width % kScaleBlock == 0, "{}: found {}, expected a multiple of {}", what, width, kScaleBlock);
  }

  void check_widths() {
    require_blocks("hidden_size", config_.hidden_size);
    require_blocks("moe_intermediate_size", config_.moe_intermediate_size);
    require_blocks("head_dim", config_.head_dim);
    require_blocks("q_lora_rank", config_.q_lora_rank);
    require_blocks("o_lora_rank", config_.o_lora_rank);
    require_blocks("index_head_dim", config_.index_head_dim);
    require(config_.num_attention_heads % config_.o_groups == 0,
            "o_groups: found {}, expected a divisor of the {} heads", config_.o_groups,
            config_.num_attention_heads);
    const int64_t rope = config_.qk_rope_head_dim;
    require(rope % 2 == 0 && rope <= std::min(config_.head_dim, config_.index_head_dim),
            "qk_rope_head_dim: found {}, expected an even number up to head_dim {} and index_head_dim {}",
            rope, config_.head_dim, config_.index_head_dim);
  }

  void check_token_ids() {
    const auto inside = [&](std::string_view key, int64_t id) {
      require(id < config_.vocab_size, "vocab_size: found {}, expected more than {} {}", config_.vocab_size,
              key, id);
    };
    inside("bos_token_id", config_.bos_token_id);
    inside("eos_token_id", config_.eos_token_id);
    inside("pad_token_id", config_.pad_token_id);
    if (config_.image_token_id) inside("image_token_id", *config_.image_token_id);
    if (config_.num_nextn_predict_layers > 0) inside("dspark_noise_token_id", config_.dspark_noise_token_id);
    if (!config_.engram_layer_ids.empty()) inside("engram_pad_token_id", config_.engram_pad_token_id);
  }

  bool check_ascending(std::string_view key, const std::vector<int64_t>& layers) {
    const size_t before = report_.faults.size();
    for (size_t i = 0; i < layers.size(); ++i) {
      require(layers[i] < config_.num_hidden_layers, "{}[{}]: found {}, expected a layer below {}", key, i,
              layers[i], config_.num_hidden_layers);
      require(i == 0 || layers[i] > layers[i - 1], "{}[{}]: found {} after {}, expected ascending layers",
              key, i, layers[i], layers[std::max<size_t>(i, 1) - 1]);
    }
    return report_.faults.size() == before;
  }

  void check_subset(std::string_view key, const std::vector<int64_t>& part, std::string_view whole_key,
                    const std::vector<int64_t>& whole) {
    for (const int64_t layer : part) {
      require(std::find(whole.begin(), whole.end(), layer) != whole.end(),
              "{}: found layer {}, which {} lacks", key, layer, whole_key);
    }
  }

  void check_sources() {
    const bool kv = check_ascending("kv_source_layer_ids", config_.kv_source_layer_ids);
    const bool keys = check_ascending("index_k_source_layer_ids", config_.index_k_source_layer_ids);
    const bool index = check_ascending("index_source_layer_ids", config_.index_source_layer_ids);
    if (!kv || !keys || !index) return;
    // Rows below the decoder's stretch never run the layers behind the first decoder layer, so what such a layer owned of
    // the KV blocks would stay what the blocks held before.
    for (const int64_t layer : config_.kv_source_layer_ids) {
      require(layer <= config_.first_decoder_layer(),
              "kv_source_layer_ids: found layer {}, expected none behind the first decoder layer {} (the first with "
              "compress_ratios 1): rows that run the encoder half only would leave no KV there",
              layer, config_.first_decoder_layer());
    }
    check_subset("kv_source_layer_ids", config_.kv_source_layer_ids, "index_k_source_layer_ids",
                 config_.index_k_source_layer_ids);
    check_subset("index_k_source_layer_ids", config_.index_k_source_layer_ids, "index_source_layer_ids",
                 config_.index_source_layer_ids);
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) check_layer_sources(layer);
    for (size_t i = config_.num_hidden_layers; i < config_.compress_ratios.size(); ++i) {
      require(config_.compress_ratios[i] == 0, "compress_ratios[{}]: found {}, expected 0 for a DSpark stage",
              i, config_.compress_ratios[i]);
    }
  }

  // A layer reads rows and a top-k list that were made at its own ratio, and from the same source.
  void check_layer_sources(int64_t layer) {
    const int64_t ratio = config_.compress_ratios[layer];
    const auto& kv_sources = config_.kv_source_layer_ids;
    const auto& index_sources = config_.index_source_layer_ids;
    if (ratio == 0) {
      require(std::find(index_sources.begin(), index_sources.end(), layer) == index_sources.end(),
              "compress_ratios[{}]: found 0, expected 1 or 2 for a source layer", layer);
      return;
    }
    const auto kv = ModelConfig::source_of(kv_sources, layer);
    const auto index = ModelConfig::source_of(index_sources, layer);
    require(kv && index,
            "compress_ratios[{}]: found {}, but no KV source and index source at or before it", layer,
            ratio);
    if (!kv || !index) return;
    require(config_.compress_ratios[*kv] == ratio,
            "compress_ratios[{}]: found {}, but its KV source {} has ratio {}", layer, ratio, *kv,
            config_.compress_ratios[*kv]);
    require(ModelConfig::source_of(kv_sources, *index) == kv,
            "index_source_layer_ids: layer {} reads the KV of layer {} but would reuse the older top-k of "
            "layer {}",
            layer, *kv, *index);
    require(layer < config_.first_decoder_layer() || *kv >= config_.first_decoder_layer(),
            "kv_source_layer_ids: decoder layer {} would read the KV of encoder layer {}", layer, *kv);
  }

  void check_candidates() {
    if (!config_.candidate_source_layer_id) return;
    const int64_t source = *config_.candidate_source_layer_id;
    const auto& index_sources = config_.index_source_layer_ids;
    require(std::find(index_sources.begin(), index_sources.end(), source) != index_sources.end(),
            "candidate_source_layer_id: found {}, expected one of index_source_layer_ids", source);
    for (const int64_t layer : index_sources) {
      require(layer <= source || ModelConfig::source_of(config_.kv_source_layer_ids, layer) ==
                                     ModelConfig::source_of(config_.kv_source_layer_ids, source),
              "candidate_source_layer_id: found {}, whose candidates layer {} can't use: it reads other KV",
              source, layer);
    }
    // Otherwise fewer than index_topk visible rows could lie in the kept blocks (docs/spec/model.md 1.1).
    const int64_t fewest = (config_.candidate_topk_blocks - 1) * config_.candidate_block_size + 1;
    require(fewest >= config_.index_topk,
            "candidate_topk_blocks: found {} blocks of {}, expected (blocks - 1) * size + 1 >= index_topk {}",
            config_.candidate_topk_blocks, config_.candidate_block_size, config_.index_topk);
  }

  void check_engram() {
    if (config_.engram_layer_ids.empty()) return;
    check_ascending("engram_layer_ids", config_.engram_layer_ids);
    for (const int64_t layer : config_.engram_layer_ids) {
      require(layer < config_.first_decoder_layer(),
              "engram_layer_ids: found {}, expected layers before the first decoder layer {}", layer,
              config_.first_decoder_layer());
    }
    require_blocks("engram_head_dim", config_.engram_head_dim);
    require(config_.engram_compressed_vocab_size <= config_.vocab_size,
            "engram_compressed_vocab_size: found {}, expected at most vocab_size {}",
            config_.engram_compressed_vocab_size, config_.vocab_size);
  }

  void check_dspark() {
    if (config_.num_nextn_predict_layers == 0) return;
    const auto& targets = config_.dspark_target_layer_ids;
    require(!targets.empty(), "dspark_target_layer_ids: found none, expected at least one layer");
    if (targets.empty() || !check_ascending("dspark_target_layer_ids", targets)) return;
    const int64_t decoder = config_.first_decoder_layer();
    require(targets.front() >= decoder || targets.back() < decoder,
            "dspark_target_layer_ids: found {} to {}, expected all on one side of layer {}", targets.front(),
            targets.back(), decoder);
    require(config_.dspark_num_experts_per_tok <= config_.dspark_n_routed_experts,
            "dspark_num_experts_per_tok: found {}, expected at most {}", config_.dspark_num_experts_per_tok,
            config_.dspark_n_routed_experts);
  }

  void check_vision() {
    if (!config_.vision) return;
    const VisionConfig& vision = *config_.vision;
    const auto fault = [&](std::string message) {
      report_.faults.push_back("vision_config." + std::move(message));
    };
    if (vision.hidden_size % (4 * vision.num_attention_heads) != 0) {  // 2-D rotation: two halves of pairs
      fault(fmt::format("hidden_size: found {}, expected a multiple of 4 * num_attention_heads {}",
                        vision.hidden_size, vision.num_attention_heads));
    }
    if (!config_.image_token_id)
      report_.faults.push_back("image_token_id: found nothing, expected the id of image tokens");
  }

  ConfigReport& report_;
  const ModelConfig& config_;
};

}  // namespace

void check_config_rules(ConfigReport& report) {
  RuleChecker(report).check();
}

}  // namespace deepinfer
