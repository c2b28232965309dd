#include "checkpoint/tensor_list.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 32;
int64_t blocks(int64_t width) {
  return (width + kBlock - 1) / kBlock;
}

// Appends tensors under a prefix and of one kind.
class TensorLister {
 public:
  explicit TensorLister(const ModelConfig& config) : config_(config) {}

  std::vector<ExpectedTensor> list() {
    list_global();
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) list_layer(layer);
    for (int64_t stage = 0; stage < config_.num_nextn_predict_layers; ++stage) list_stage(stage);
    if (config_.vision) list_vision(*config_.vision);
    return std::move(tensors_);
  }

 private:
  void add(std::string_view name, DType dtype, Shape shape, WeightKind kind) {
    // Everything of a DSpark stage counts as DSpark.
    const WeightKind counted = prefix_.starts_with("mtp.") ? WeightKind::kDspark : kind;
    tensors_.push_back({prefix_ + std::string(name), dtype, std::move(shape), counted});
  }
  void bf16(std::string_view name, Shape shape, WeightKind kind) {
    add(name, DType::kBF16, std::move(shape), kind);
  }
  void f32(std::string_view name, Shape shape, WeightKind kind) {
    add(name, DType::kF32, std::move(shape), kind);
  }
  // A linear of E4M3 codes with one scale per 32 x 32 block.
  void fp8(std::string name, int64_t rows, int64_t cols, WeightKind kind) {
    add(name + ".weight", DType::kF8E4M3, {rows, cols}, kind);
    add(name + ".scale", DType::kF8E8M0, {blocks(rows), blocks(cols)}, kind);
  }
  // A linear of E2M1 codes, two a byte, with one scale per row and 32 columns.
  void fp4(std::string name, int64_t rows, int64_t cols, WeightKind kind) {
    add(name + ".weight", DType::kI8, {rows, cols / 2}, kind);
    add(name + ".scale", DType::kF8E8M0, {rows, blocks(cols)}, kind);
  }

  void list_global() {
    const auto kind = WeightKind::kEmbeddingAndHead;
    bf16("embed.weight", {config_.vocab_size, config_.hidden_size}, kind);
    bf16("head.weight", {config_.vocab_size, config_.hidden_size}, kind);
    bf16("norm.weight", {config_.hidden_size}, kind);
  }

  void list_layer(int64_t layer) {
    prefix_ = fmt::format("layers.{}.", layer);
    list_block(config_.n_routed_experts);
    if (contains(config_.kv_source_layer_ids, layer)) list_compressor(config_.compress_ratios[layer]);
    if (contains(config_.index_k_source_layer_ids, layer)) list_index_keys();
    if (contains(config_.index_source_layer_ids, layer)) list_indexer();
    const auto& engram = config_.engram_layer_ids;
    const auto found = std::find(engram.begin(), engram.end(), layer);
    if (found != engram.end()) list_engram(config_.engram_num_embeddings[found - engram.begin()]);
    prefix_.clear();
  }

  void list_stage(int64_t stage) {
    const auto kind = WeightKind::kDspark;
    prefix_ = fmt::format("mtp.{}.", stage);
    list_block(config_.dspark_n_routed_experts);
    const int64_t hidden = config_.hidden_size;
    if (stage == 0) {
      fp8("main_proj", hidden, hidden * static_cast<int64_t>(config_.dspark_target_layer_ids.size()), kind);
      bf16("main_norm.weight", {hidden}, kind);
    }
    if (stage == config_.num_nextn_predict_layers - 1) {
      bf16("norm.weight", {hidden}, kind);
      bf16("markov_head.embed.weight", {config_.vocab_size, config_.dspark_markov_rank}, kind);
      bf16("markov_head.head.weight", {config_.vocab_size, config_.dspark_markov_rank}, kind);
      bf16("confidence_head.proj.weight", {1, hidden + config_.dspark_markov_rank}, kind);
    }
    prefix_.clear();
  }

  // What a backbone layer and a DSpark stage have in common.
  void list_block(int64_t num_experts) {
    list_attention();
    bf16("attn_norm.weight", {config_.hidden_size}, WeightKind::kNorm);
    bf16("ffn_norm.weight", {config_.hidden_size}, WeightKind::kNorm);
    list_hyper_connections();
    list_experts(num_experts);
  }

  void list_attention() {
    const auto kind = WeightKind::kAttention;
    const int64_t all_heads = config_.num_attention_heads * config_.head_dim;
    fp8("attn.wq_a", config_.q_lora_rank, config_.hidden_size, kind);
    fp8("attn.wq_b", all_heads, config_.q_lora_rank, kind);
    fp8("attn.wkv", config_.head_dim, config_.hidden_size, kind);
    fp8("attn.wo_a", config_.o_groups * config_.o_lora_rank, all_heads / config_.o_groups, kind);
    fp8("attn.wo_b", config_.hidden_size, config_.o_groups * config_.o_lora_rank, kind);
    bf16("attn.q_norm.weight", {config_.q_lora_rank}, kind);
    bf16("attn.kv_norm.weight", {config_.head_dim}, kind);
    f32("attn.attn_sink", {config_.num_attention_heads}, kind);
  }

  void list_hyper_connections() {
    const int64_t streams = config_.hc_mult;
    const int64_t outputs = streams * (2 + streams);  // A, P and the streams x streams matrix C
    for (const std::string set : {"hc_attn", "hc_ffn"}) {
      f32(set + "_fn", {outputs, streams * config_.hidden_size}, WeightKind::kHyperConnection);
      f32(set + "_base", {outputs}, WeightKind::kHyperConnection);
      f32(set + "_scale", {3}, WeightKind::kHyperConnection);
    }
  }

  void list_experts(int64_t num_experts) {
    const int64_t hidden = config_.hidden_size, inner = config_.moe_intermediate_size;
    bf16("ffn.gate.weight", {num_experts, hidden}, WeightKind::kRouter);
    f32("ffn.gate.bias", {num_experts}, WeightKind::kRouter);
    f32("ffn.gate.bias_vl", {num_experts}, WeightKind::kRouter);
    fp8("ffn.shared_experts.w1", inner, hidden, WeightKind::kSharedExpert);
    fp8("ffn.shared_experts.w3", inner, hidden, WeightKind::kSharedExpert);
    fp8("ffn.shared_experts.w2", hidden, inner, WeightKind::kSharedExpert);
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      const std::string name = fmt::format("ffn.experts.{}.", expert);
      fp4(name + "w1", inner, hidden, WeightKind::kRoutedExpert);
      fp4(name + "w3", inner, hidden, WeightKind::kRoutedExpert);
      fp4(name + "w2", hidden, inner, WeightKind::kRoutedExpert);
    }
  }

  void list_compressor(int64_t ratio) {
    const auto kind = WeightKind::kCompressor;
    bf16("attn.compressor.wkv.weight", {config_.head_dim, config_.hidden_size}, kind);
    bf16("attn.compressor.norm.weight", {config_.head_dim}, kind);
    if (ratio == 2) bf16("attn.compressor.wgate.weight", {config_.head_dim, config_.hidden_size}, kind);
  }

  void list_index_keys() {
    bf16("attn.indexer.wk.weight", {config_.index_head_dim, config_.head_dim}, WeightKind::kIndexer);
    bf16("attn.indexer.k_norm.weight", {config_.index_head_dim}, WeightKind::kIndexer);
  }

  void list_indexer() {
    fp8("attn.indexer.wq_b", config_.index_n_heads * config_.index_head_dim, config_.q_lora_rank,
        WeightKind::kIndexer);
    bf16("attn.indexer.weights_proj.weight", {config_.index_n_heads, config_.hidden_size},
         WeightKind::kIndexer);
  }

  void list_engram(int64_t rows) {
    const int64_t hidden = config_.hidden_size, width = config_.engram_head_dim;
    const int64_t columns = (config_.engram_max_ngram_size - 1) * config_.engram_n_heads;
    add("engram.embed.weight", DType::kF8E4M3, {rows, width}, WeightKind::kEngramTable);
    add("engram.embed.scale", DType::kF8E8M0, {rows, blocks(width)}, WeightKind::kEngramTable);
    fp8("engram.wkv", (config_.hc_mult + 1) * hidden, columns * width, WeightKind::kEngramProjection);
    bf16("engram.q_weight", {config_.hc_mult, hidden}, WeightKind::kEngramProjection);
    bf16("engram.k_weight", {config_.hc_mult, hidden}, WeightKind::kEngramProjection);
  }

  void list_vision(const VisionConfig& vision) {
    const auto kind = WeightKind::kVision;
    const int64_t width = vision.hidden_size;
    bf16("vision.patch_embed.proj.weight", {width, 3 * vision.patch_size * vision.patch_size}, kind);
    bf16("vision.patch_embed.proj.bias", {width}, kind);
    for (int64_t block = 0; block < vision.num_hidden_layers; ++block) {
      prefix_ = fmt::format("vision.blocks.{}.", block);
      bf16("norm1.weight", {width}, kind);
      bf16("norm2.weight", {width}, kind);
      bf16("attn.wqkv.weight", {3 * width, width}, kind);
      bf16("attn.wqkv.bias", {3 * width}, kind);
      bf16("attn.wo.weight", {width, width}, kind);
      bf16("attn.wo.bias", {width}, kind);
      bf16("mlp.w1.weight", {2 * vision.intermediate_size, width}, kind);
      bf16("mlp.w2.weight", {width, vision.intermediate_size}, kind);
    }
    prefix_.clear();
    bf16("vision.norm.weight", {width}, kind);
    list_aligner(width * vision.downsample_ratio * vision.downsample_ratio);
  }

  void list_aligner(int64_t cell_width) {
    const auto kind = WeightKind::kAligner;
    const int64_t hidden = config_.hidden_size;
    bf16("aligner.w1.weight", {hidden, cell_width}, kind);
    bf16("aligner.w1.bias", {hidden}, kind);
    bf16("aligner.w2.weight", {hidden, hidden}, kind);
    bf16("aligner.w2.bias", {hidden}, kind);
    for (const std::string_view name : {"image_start", "image_end", "image_newline"})
      bf16(name, {hidden}, kind);
  }

  static bool contains(const std::vector<int64_t>& layers, int64_t layer) {
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }

  const ModelConfig& config_;
  std::string prefix_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::string_view weight_kind_name(WeightKind kind) {
  switch (kind) {
    case WeightKind::kAttention:
      return "attention";
    case WeightKind::kNorm:
      return "layer norms";
    case WeightKind::kHyperConnection:
      return "hyper-connections";
    case WeightKind::kRouter:
      return "router";
    case WeightKind::kSharedExpert:
      return "shared experts";
    case WeightKind::kRoutedExpert:
      return "routed experts";
    case WeightKind::kCompressor:
      return "compressors";
    case WeightKind::kIndexer:
      return "indexers";
    case WeightKind::kEngramTable:
      return "Engram tables";
    case WeightKind::kEngramProjection:
      return "Engram projections";
    case WeightKind::kEmbeddingAndHead:
      return "embedding, head, final norm";
    case WeightKind::kDspark:
      return "DSpark";
    case WeightKind::kVision:
      return "vision tower";
    case WeightKind::kAligner:
      return "aligner, image vectors";
  }
  return "";
}

uint64_t ExpectedTensor::size_bytes() const {
  return num_elements(shape).value_or(0) * dtype_size(dtype);
}

uint64_t ExpectedTensor::num_parameters() const {
  if (dtype == DType::kF8E8M0) return 0;
  return num_elements(shape).value_or(0) * (dtype == DType::kI8 ? 2 : 1);
}

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  return TensorLister(config).list();
}

WeightTotals count_weights(const std::vector<ExpectedTensor>& tensors) {
  WeightTotals totals;
  for (const ExpectedTensor& tensor : tensors) {
    for (WeightCount* count : {&totals.by_kind[static_cast<size_t>(tensor.kind)], &totals.all}) {
      ++count->tensors;
      count->parameters += tensor.num_parameters();
      count->bytes += tensor.size_bytes();
    }
  }
  return totals;
}

}  // namespace deepinfer
