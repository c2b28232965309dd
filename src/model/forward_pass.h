// What the parts of the forward pass share (private to the model room). Each part is one file that begins with its
// formula: hyper_connections.cc, attention.cc, index.cc, compressor.cc, engram.cc, experts.cc, dspark.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "model/engram_hash.h"
#include "model/kv_arena.h"
#include "model/layer_plan.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace deepinfer {

// One row of a call: one position of one sequence.
struct Row {
  Sequence* sequence = nullptr;
  int64_t position = 0;
  int64_t first_row = 0;       // the span's first row in this pass
  int64_t first_position = 0;  // and its position
  int32_t span = 0;            // the span's number in the call
  bool wants_logits = false;
  std::array<int32_t, kEngramTokens> engram_ids = {};  // compressed id of this position, then of those before it
};

// The half of the model that a layer belongs to; each has its own first visible window row.
enum class Half { kEncoder, kDecoder };
inline int64_t first_window_row(const Row& row, int64_t window, Half half) {
  const int64_t first = half == Half::kEncoder ? row.sequence->cut.encoder_first : row.sequence->cut.decoder_first;
  return std::max(row.position - window + 1, first);
}

// Borrowed parts of a Model for the length of one call.
struct ForwardPass {
  const ModelConfig& config;
  const KvLayout& layout;
  KvArena& arena;
  const Ops& ops;
  KernelContext& kernel;
  Workspace& ws;
  const RopeTable& plain_rope;
  const RopeTable& compress_rope;
  Numerics numerics;
  ForwardObserver* observer;   // null on the decode path
  std::span<const Row> rows;

  int64_t num_rows() const { return std::ssize(rows); }
  const RopeTable& rope(RopeKind kind) const { return kind == RopeKind::kPlain ? plain_rope : compress_rope; }

  // bf16 rows as operands: as they are, or through Q8. Each kind lives in the workspace until the next call for its kind.
  ActivationRows pair(const Bf16* x, int64_t count, int64_t cols);
  ActivationRows quantize(const Bf16* x, int64_t count, int64_t cols);
  // In the fast mode: adds the INT8 form to a result of quantize(); it lives until the next call.
  void encode_int8(ActivationRows& x);
  // y = bf(W x) for rows that follow each other.
  void linear(const Matrix& weights, const ActivationRows& x, Bf16* y);
  void rms_norm(const Bf16* x, const std::vector<Bf16>& weight, int64_t count, Bf16* out);
  void set_cos_sin(RopeKind kind);  // ws.cos_sin for the positions of this call

  void observe(std::string_view name, int64_t layer, const Bf16* values, int64_t count) const {
    if (observer != nullptr) observer->values(name, layer, std::span(values, static_cast<size_t>(count)));
  }
  void observe(std::string_view name, int64_t layer, const float* values, int64_t count) const {
    if (observer != nullptr) observer->values(name, layer, std::span(values, static_cast<size_t>(count)));
  }
};

// One block (backbone layer or DSpark stage) over all rows: h and pre in the workspace are updated in place.
// `attend` computes ws.y from ws.x.
void hc_enter(ForwardPass& pass, const HcWeights& weights, const std::vector<Bf16>& norm);  // mix, fold, norm -> ws.x
void hc_leave(ForwardPass& pass);                                                           // unfold ws.y into h

// Attention parts, shared with DSpark.
void make_window_rows(ForwardPass& pass, const BlockWeights& weights, const ActivationRows& x);  // -> ws.window_rows
// -> ws.qr, ws.q rotated. Ends the life of `x`.
void project_query(ForwardPass& pass, const BlockWeights& weights, const ActivationRows& x);
void attend_and_project(ForwardPass& pass, const BlockWeights& weights);   // ws.q, ws.lists -> ws.y

// ws.x -> ws.y. The compressor has run when the layer owns KV.
void attention(ForwardPass& pass, const BlockWeights& weights, const LayerPlan& plan, int64_t layer);
// Takes ws.x of every row; in the first decoder layer it is all that rows of the encoder half do.
void compress(ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t layer);
void select_rows(ForwardPass& pass, const IndexerWeights& weights, const LayerPlan& plan, int64_t layer);
void experts(ForwardPass& pass, const MoeWeights& weights, int64_t layer);  // ws.x -> ws.y
void engram(ForwardPass& pass, const EngramWeights& weights, const EngramLayerHash& hash, int32_t pad_id,
            int64_t layer);

// DSpark's side of the backbone: mean of the streams of a target layer, and the stages' window rows of this call.
void capture_target(ForwardPass& pass, int64_t target);
void write_dspark_rows(ForwardPass& pass, const DsparkWeights& weights);

// Keeps the rows that run the decoder half, in the first decoder layer between compressor and attention.
void drop_encoder_rows(ForwardPass& pass, std::vector<Row>& kept);

// Copies the packed rows of this call that still matter into a ring of every sequence.
void store_window_rows(ForwardPass& pass, int64_t window_layer);

}  // namespace deepinfer
