#include "model/weights.h"

#include <fmt/core.h>

#include <cstring>
#include <string>

namespace deepinfer {
namespace {

// Not read by the text path.
bool is_vision(std::string_view name) {
  return name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_") ||
         name.ends_with("gate.bias_vl");
}

// Reads tensors by name, packs them and counts bytes.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const ProgressFunction& progress)
      : checkpoint_(checkpoint), progress_(progress) {
    for (const auto& [name, location] : checkpoint.tensors()) {
      if (!is_vision(name)) total_bytes_ += location.size_bytes;
    }
  }

  uint64_t packed_bytes() const { return packed_bytes_; }

  Status raw(const std::string& name, AlignedBuffer& out) {
    const TensorLocation& location = checkpoint_.tensors().find(name)->second;
    ASSIGN_OR_RETURN(out, AlignedBuffer::allocate(location.size_bytes));
    packed_bytes_ += location.size_bytes;
    return checkpoint_.read(name, out.bytes(), [this](uint64_t piece_bytes) {
      done_bytes_ += piece_bytes;
      if (progress_) progress_(done_bytes_, total_bytes_);
    });
  }

  template <typename T>
  Status vector(const std::string& name, std::vector<T>& out) {
    AlignedBuffer bytes;
    RETURN_IF_ERROR(raw(name, bytes));
    out.assign(bytes.as<T>(), bytes.as<T>() + bytes.size() / sizeof(T));
    return {};
  }

  // `name` without its ".weight" / ".scale" endings for the quantized kinds, the full name for the plain ones.
  Status fp8(const std::string& name, Matrix& out) {
    AlignedBuffer codes, scales;
    RETURN_IF_ERROR(raw(name + ".weight", codes));
    RETURN_IF_ERROR(raw(name + ".scale", scales));
    const Shape& shape = shape_of(name + ".weight");
    return keep(Matrix::pack_fp8(shape[0], shape[1], codes_of(codes), codes_of(scales)), out);
  }
  Status fp4(const std::string& name, Matrix& out) {
    AlignedBuffer codes, scales;
    RETURN_IF_ERROR(raw(name + ".weight", codes));
    RETURN_IF_ERROR(raw(name + ".scale", scales));
    const Shape& shape = shape_of(name + ".weight");
    return keep(Matrix::pack_fp4(shape[0], 2 * shape[1], codes_of(codes), codes_of(scales)), out);
  }
  Status bf16(const std::string& name, Matrix& out) {
    AlignedBuffer bytes;
    RETURN_IF_ERROR(raw(name, bytes));
    const Shape& shape = shape_of(name);
    return keep(Matrix::pack_bf16(shape[0], shape[1], {bytes.as<Bf16>(), bytes.size() / sizeof(Bf16)}), out);
  }
  Status f32(const std::string& name, Matrix& out) {
    AlignedBuffer bytes;
    RETURN_IF_ERROR(raw(name, bytes));
    const Shape& shape = shape_of(name);
    return keep(Matrix::pack_f32(shape[0], shape[1], {bytes.as<float>(), bytes.size() / sizeof(float)}), out);
  }

 private:
  static std::span<const uint8_t> codes_of(const AlignedBuffer& buffer) {
    return {buffer.as<uint8_t>(), buffer.size()};
  }
  static Status keep(Result<Matrix> packed, Matrix& out) {
    if (!packed.ok()) return packed.error();
    out = std::move(packed).value();
    return {};
  }
  const Shape& shape_of(const std::string& name) const { return checkpoint_.tensors().find(name)->second.shape; }

  const Checkpoint& checkpoint_;
  const ProgressFunction& progress_;
  uint64_t total_bytes_ = 0, done_bytes_ = 0, packed_bytes_ = 0;
};

Status load_hc(WeightReader& reader, const std::string& prefix, HcWeights& out) {
  RETURN_IF_ERROR(reader.f32(prefix + "_fn", out.fn));
  RETURN_IF_ERROR(reader.vector(prefix + "_base", out.base));
  return reader.vector(prefix + "_scale", out.scale);
}

Status load_moe(WeightReader& reader, const std::string& prefix, int64_t num_experts, MoeWeights& out) {
  RETURN_IF_ERROR(reader.bf16(prefix + "gate.weight", out.gate));
  RETURN_IF_ERROR(reader.vector(prefix + "gate.bias", out.bias));
  RETURN_IF_ERROR(reader.fp8(prefix + "shared_experts.w1", out.shared.w1));
  RETURN_IF_ERROR(reader.fp8(prefix + "shared_experts.w3", out.shared.w3));
  RETURN_IF_ERROR(reader.fp8(prefix + "shared_experts.w2", out.shared.w2));
  out.experts.resize(num_experts);
  for (int64_t e = 0; e < num_experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", prefix, e);
    RETURN_IF_ERROR(reader.fp4(expert + "w1", out.experts[e].w1));
    RETURN_IF_ERROR(reader.fp4(expert + "w3", out.experts[e].w3));
    RETURN_IF_ERROR(reader.fp4(expert + "w2", out.experts[e].w2));
  }
  return {};
}

Status load_block(WeightReader& reader, const std::string& prefix, int64_t num_experts, BlockWeights& out) {
  RETURN_IF_ERROR(reader.vector(prefix + "attn_norm.weight", out.attn_norm));
  RETURN_IF_ERROR(reader.vector(prefix + "ffn_norm.weight", out.ffn_norm));
  RETURN_IF_ERROR(reader.vector(prefix + "attn.q_norm.weight", out.q_norm));
  RETURN_IF_ERROR(reader.vector(prefix + "attn.kv_norm.weight", out.kv_norm));
  RETURN_IF_ERROR(reader.vector(prefix + "attn.attn_sink", out.attn_sink));
  RETURN_IF_ERROR(reader.fp8(prefix + "attn.wq_a", out.wq_a));
  RETURN_IF_ERROR(reader.fp8(prefix + "attn.wq_b", out.wq_b));
  RETURN_IF_ERROR(reader.fp8(prefix + "attn.wkv", out.wkv));
  RETURN_IF_ERROR(reader.fp8(prefix + "attn.wo_a", out.wo_a));
  RETURN_IF_ERROR(reader.fp8(prefix + "attn.wo_b", out.wo_b));
  RETURN_IF_ERROR(load_hc(reader, prefix + "hc_attn", out.hc_attn));
  RETURN_IF_ERROR(load_hc(reader, prefix + "hc_ffn", out.hc_ffn));
  return load_moe(reader, prefix + "ffn.", num_experts, out.moe);
}

Status load_compressor(WeightReader& reader, const std::string& prefix, int64_t ratio, CompressorWeights& out) {
  RETURN_IF_ERROR(reader.bf16(prefix + "compressor.wkv.weight", out.wkv));
  if (ratio == 2) RETURN_IF_ERROR(reader.bf16(prefix + "compressor.wgate.weight", out.wgate.emplace()));
  RETURN_IF_ERROR(reader.vector(prefix + "compressor.norm.weight", out.norm));
  RETURN_IF_ERROR(reader.bf16(prefix + "indexer.wk.weight", out.wk));
  return reader.vector(prefix + "indexer.k_norm.weight", out.k_norm);
}

Status load_indexer(WeightReader& reader, const std::string& prefix, IndexerWeights& out) {
  RETURN_IF_ERROR(reader.fp8(prefix + "indexer.wq_b", out.wq_b));
  return reader.bf16(prefix + "indexer.weights_proj.weight", out.weights_proj);
}

Status load_engram(WeightReader& reader, const std::string& prefix, EngramWeights& out) {
  RETURN_IF_ERROR(reader.raw(prefix + "embed.weight", out.codes));
  RETURN_IF_ERROR(reader.raw(prefix + "embed.scale", out.scales));
  RETURN_IF_ERROR(reader.fp8(prefix + "wkv", out.wkv));
  RETURN_IF_ERROR(reader.vector(prefix + "q_weight", out.q_weight));
  return reader.vector(prefix + "k_weight", out.k_weight);
}

Status load_dspark(WeightReader& reader, const ModelConfig& config, DsparkWeights& out) {
  const int64_t num_stages = config.num_nextn_predict_layers;
  const std::string last = fmt::format("mtp.{}.", num_stages - 1);
  RETURN_IF_ERROR(reader.fp8("mtp.0.main_proj", out.main_proj));
  RETURN_IF_ERROR(reader.vector("mtp.0.main_norm.weight", out.main_norm));
  RETURN_IF_ERROR(reader.vector(last + "norm.weight", out.norm));
  RETURN_IF_ERROR(reader.raw(last + "markov_head.embed.weight", out.markov_embed));
  RETURN_IF_ERROR(reader.bf16(last + "markov_head.head.weight", out.markov_head));
  RETURN_IF_ERROR(reader.bf16(last + "confidence_head.proj.weight", out.confidence));
  out.stages.resize(num_stages);
  for (int64_t stage = 0; stage < num_stages; ++stage) {
    BlockWeights& block = out.stages[stage];
    RETURN_IF_ERROR(load_block(reader, fmt::format("mtp.{}.", stage), config.dspark_n_routed_experts, block));
    block.moe.experts_per_token = config.dspark_num_experts_per_tok;
  }
  return {};
}

Status load_layer(WeightReader& reader, const ModelConfig& config, const LayerPlan& plan, int64_t layer,
                  BlockWeights& out) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  RETURN_IF_ERROR(load_block(reader, prefix, config.n_routed_experts, out));
  out.moe.experts_per_token = config.num_experts_per_tok;
  if (plan.owns_kv) RETURN_IF_ERROR(load_compressor(reader, prefix + "attn.", plan.ratio, out.compressor.emplace()));
  if (plan.owns_index) RETURN_IF_ERROR(load_indexer(reader, prefix + "attn.", out.indexer.emplace()));
  if (plan.engram) RETURN_IF_ERROR(load_engram(reader, prefix + "engram.", out.engram.emplace()));
  return {};
}

}  // namespace

HcParams HcWeights::params(const ModelConfig& config) const {
  return {fn.view(),
          base.data(),
          scale.data(),
          config.hc_sinkhorn_iters,
          static_cast<float>(config.hc_eps),
          static_cast<float>(config.rms_norm_eps)};
}

Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const std::vector<LayerPlan>& plan,
                                  const ProgressFunction& progress) {
  const ModelConfig& config = checkpoint.config();
  WeightReader reader(checkpoint, progress);
  ModelWeights weights;
  RETURN_IF_ERROR(reader.raw("embed.weight", weights.embed));
  RETURN_IF_ERROR(reader.bf16("head.weight", weights.head));
  RETURN_IF_ERROR(reader.vector("norm.weight", weights.norm));
  weights.layers.resize(plan.size());
  for (size_t layer = 0; layer < plan.size(); ++layer) {
    RETURN_IF_ERROR(load_layer(reader, config, plan[layer], static_cast<int64_t>(layer), weights.layers[layer]));
  }
  if (config.num_nextn_predict_layers > 0) RETURN_IF_ERROR(load_dspark(reader, config, weights.dspark.emplace()));
  weights.size_bytes = reader.packed_bytes();
  return weights;
}

}  // namespace deepinfer
