// The members of a Model (private to the model room).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/forward_pass.h"

namespace deepinfer {

struct Model::Impl {
  ModelConfig config;
  ModelOptions options;
  MemoryPlan plan;
  const Ops* ops = nullptr;
  std::vector<LayerPlan> layers;
  std::vector<EngramLayerHash> engram_hashes;
  std::vector<int32_t> engram_token_map;
  int32_t engram_pad_class = 0;

  std::unique_ptr<KvLayout> layout;  // sequences and the arena point to it
  KvArena arena;
  ModelWeights weights;
  Workspace workspace;
  RopeTable plain_rope, compress_rope;
  std::unique_ptr<ThreadPool> pool;
  KernelContext kernel;
  std::optional<CpuBackend> backend;  // made last: it refers to the others
  LocalExperts local_experts;
  std::vector<std::unique_ptr<Sequence>> states;
  std::vector<Sequence*> free_states;  // for make_sequence
  // Of the running call.
  Program program;
  std::vector<Row> rows, decoder_rows;
  std::vector<SpanFault> faults;
  std::vector<int32_t> draft_ids;

  explicit Impl(KvArena arena_in) : arena(std::move(arena_in)) {}

  ForwardPass begin(ForwardObserver* observer);
  Status check(std::span<const SequenceSpan> spans) const;
  Status admit(std::span<const SequenceSpan> spans);  // blocks, ids and rows of the call
  void replace_input(ForwardPass& pass, int64_t layer, Left& left);
  Left run_attention(ForwardPass& pass, int64_t layer, Phase x, Phase compressed);
  void run_layers(ForwardPass& pass);
  std::span<const float> compute_logits(ForwardPass& pass);
  void note_fault(const Row& row, int64_t layer);  // the lowest position of a span counts
};

}  // namespace deepinfer
