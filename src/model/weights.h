// All weights of the model, packed for the kernels. Names and shapes (docs/spec/model.md 11.1) are verified.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "kernels/matrix.h"
#include "kernels/ops.h"
#include "model/layer_plan.h"
#include "model/weights_cache.h"

namespace deepinfer {

struct HcWeights {
  Matrix fn;
  std::vector<float> base, scale;
  HcParams params(const ModelConfig& config) const;
};

struct ExpertWeights {
  Matrix w1, w3, w2;  // gate, up, down
};

struct MoeWeights {
  int64_t experts_per_token = 0;
  Matrix gate;
  std::vector<float> bias;
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
};

struct CompressorWeights {
  Matrix wkv;
  std::optional<Matrix> wgate;  // ratio 2 only
  std::vector<Bf16> norm;
  Matrix wk;                    // index key
  std::vector<Bf16> k_norm;
};

struct IndexerWeights {
  Matrix wq_b, weights_proj;
};

// A tensor as the checkpoint has it, in the memory of ModelWeights.
struct RawTensor {
  std::byte* data = nullptr;
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

struct EngramWeights {
  RawTensor codes, scales;  // row-major E4M3 [rows][head_dim], E8M0 [rows][head_dim / 32]
  Matrix wkv;
  std::vector<Bf16> q_weight, k_weight;
};

// A backbone layer or a DSpark stage.
struct BlockWeights {
  std::vector<Bf16> attn_norm, ffn_norm, q_norm, kv_norm;
  Matrix wq_a, wq_b, wkv, wo_a, wo_b;
  std::vector<float> attn_sink;
  HcWeights hc_attn, hc_ffn;
  MoeWeights moe;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  std::optional<EngramWeights> engram;
};

struct DsparkWeights {
  Matrix main_proj;
  std::vector<Bf16> main_norm, norm;
  RawTensor markov_embed;  // BF16 [vocab][rank]
  Matrix markov_head;
  Matrix confidence;           // [1][hidden + rank]
  std::vector<BlockWeights> stages;
};

struct ModelWeights {
  AlignedBuffer memory;  // what the matrices and tensors below point into
  RawTensor embed;  // BF16 [vocab][hidden]
  Matrix head;
  std::vector<Bf16> norm;
  std::vector<BlockWeights> layers;
  std::optional<DsparkWeights> dspark;
  uint64_t size_bytes = 0;
  bool from_cache = false;
};

// Reads everything the text path needs into one block of memory: 2 x num_threads threads read pieces of a few MiB and pack
// them where they belong, so that no tensor exists twice. Progress counts bytes of the checkpoint, on the calling thread.
// With a cache (null: none) the packed block comes from its file where that is sound, and is written to it where not; the
// log says which, and what was wrong with the file.
Result<ModelWeights> load_weights(const Checkpoint& checkpoint, const std::vector<LayerPlan>& plan, int num_threads,
                                  const ProgressFunction& progress, const WeightsCache* cache = nullptr);
// The memory that it takes.
uint64_t packed_weight_bytes(const Checkpoint& checkpoint, const std::vector<LayerPlan>& plan);

}  // namespace deepinfer
