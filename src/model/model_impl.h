// The members of a Model (private to the model room).
#pragma once

#include <memory>
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
  std::vector<std::unique_ptr<Sequence>> states;
  std::vector<Sequence*> free_states;  // for make_sequence
  // Of the running call.
  Region region;
  std::vector<Row> rows, decoder_rows;
  std::vector<int32_t> ids;
  std::vector<Row> logit_rows;
  std::vector<SpanFault> faults;
  std::vector<int32_t> draft_ids;
  std::vector<float> draft_confidence;

  explicit Impl(KvArena arena_in) : arena(std::move(arena_in)) {}

  ForwardPass begin(ForwardObserver* observer);
  // Embedding rows into all four streams, fold weights one-hot.
  void embed(ForwardPass& pass, std::span<const int32_t> ids);
  Status check(std::span<const SequenceSpan> spans) const;
  Status admit(std::span<const SequenceSpan> spans);  // blocks, ids and rows of the call
  void replace_input(ForwardPass& pass, int64_t layer);
  void run_layers(ForwardPass& pass);
  std::span<const float> compute_logits(ForwardPass& pass);
  void note_fault(const Row& row, int64_t layer);  // the lowest position of a span counts
  void check_finite(const ForwardPass& pass, int64_t layer);
};

}  // namespace deepinfer
