// What the parts of the forward pass share (private to the model room). Each part is one file that begins with its
// formula: hyper_connections.cc, attention.cc, index.cc, compressor.cc, engram.cc, experts.cc, dspark.cc.
//
// A layer is one region of the thread pool (base/thread_pool.h): its parts add phases and say what each waits for, and
// run_region() runs them all. Work over weights is cut by output rows, so that what follows them column by column
// (SwiGLU, quantization, unfold, the sums of the next mix) stays with the share that made the columns; the rest is cut by
// rows, heads or keys. Phases that fill waits stand between those that wait for each other: the window row between the two
// query projections, the shared expert behind the router, the query behind the choice of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/thread_pool.h"
#include "kernels/linear_list.h"
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

using Phase = Region::Phase;

// The columns of a share of rows of `width` numbers, in steps of a chunk of output rows.
inline Columns columns_of(const Share& share, int64_t width) {
  const auto chunks = static_cast<int64_t>(ceil_div(width, kChunkRows));
  return {share.begin(chunks) * kChunkRows, std::min(width, share.end(chunks) * kChunkRows)};
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
  Region& region;              // the phases put together so far
  std::span<const Row> rows;

  int64_t num_rows() const { return std::ssize(rows); }
  const RopeTable& rope(RopeKind kind) const { return kind == RopeKind::kPlain ? plain_rope : compress_rope; }

  // ---- phases of the region

  int num_threads() const { return kernel.pool->num_threads(); }
  // Shares of weights: twice the threads, so that they end together, unless that is too little work for each.
  int linear_shares(std::span<const LinearTask> tasks) const { return linear_shares(linear_cost(tasks)); }
  int linear_shares(int64_t cost) const {
    return num_threads() == 1 ? 1 : deepinfer::linear_shares(cost, 2 * num_threads());
  }
  // Shares of columns of the streams.
  int column_shares(int64_t cost) const {
    return std::min(linear_shares(cost), static_cast<int>(ceil_div(config.hidden_size, kChunkRows)));
  }
  // A phase of body(first row, end, thread) over `count` rows of about `elements` numbers each.
  template <typename Body>
  Phase add_rows(int64_t count, int64_t elements, std::initializer_list<Region::Need> needs, const Body& body) {
    const int64_t worth = std::max<int64_t>(1, count * elements / 16384);
    const auto shares = static_cast<int>(std::clamp<int64_t>(std::min(count, worth), 1, num_threads()));
    return region.add(shares, needs, [body, count](const Share& share) {
      if (share.begin(count) < share.end(count)) body(share.begin(count), share.end(count), share.thread);
    });
  }
  // A phase of all the products; the tasks stay as they are until the region has run.
  Phase add_linear(std::initializer_list<Region::Need> needs, std::span<const LinearTask> tasks) {
    return region.add(linear_shares(tasks), needs,
                      [this, tasks](const Share& share) { run_linear_share(ops, tasks, share); });
  }
  Phase add_linear(std::initializer_list<Region::Need> needs, std::initializer_list<LinearTask> tasks) {
    const std::span<LinearTask> copies = new_tasks(std::ssize(tasks));
    std::copy(tasks.begin(), tasks.end(), copies.begin());
    return add_linear(needs, copies);
  }
  // Memory for tasks of this region.
  std::span<LinearTask> new_tasks(int64_t count) {
    CHECK(num_tasks + count <= ws.tasks.size());
    return {ws.tasks.data() + std::exchange(num_tasks, num_tasks + count), static_cast<size_t>(count)};
  }
  void run_region() {
    kernel.pool->run(region);
    region.clear();
    num_tasks = 0;
  }

  // ---- on rows, at once

  void rms_norm(const Bf16* x, const std::vector<Bf16>& weight, int64_t count, Bf16* out) const {
    ops.rms_norm(x, weight.data(), count, std::ssize(weight), static_cast<float>(config.rms_norm_eps), out);
  }
  void set_cos_sin(RopeKind kind);  // ws.cos_sin for the positions of this call

  // ---- operands of the products; those of ws.x are made by hc_enter()

  ActivationRows x_quantized(int64_t count) const;
  ActivationRows x_paired(int64_t count) const {
    return {.values = ws.x_paired.data(), .count = count, .stride = config.hidden_size};
  }
  // ws.x of rows [begin, end) as both.
  void make_operands(int64_t begin, int64_t end) const;
  // y = bf(W x) or W x for rows x [num_rows()][cols] through Q8, or as they are, in a region of its own each.
  void linear_quantized(const Matrix& weights, const Bf16* x, Bf16* y);
  void linear_paired(const Matrix& weights, const Bf16* x, int64_t count, const OutputRows& y);

  bool is_wanted(std::string_view name) const { return observer != nullptr && observer->wants(name); }
  bool is_replaced() const { return observer != nullptr && observer->replaces(); }
  // An observer sees numbers where they are made: the region runs up to there first.
  void observe(std::string_view name, int64_t layer, const Bf16* values, int64_t count) {
    if (!is_wanted(name)) return;
    run_region();
    observer->values(name, layer, std::span(values, static_cast<size_t>(count)));
  }
  void observe(std::string_view name, int64_t layer, const float* values, int64_t count) {
    if (!is_wanted(name)) return;
    run_region();
    observer->values(name, layer, std::span(values, static_cast<size_t>(count)));
  }

  int64_t num_tasks = 0;         // of ws.tasks in this region
  Phase left = Region::kNone;    // after it h is that of the sublayer before
  bool has_sums = false;         // and the fold and the sums of the next mix are made (hyper_connections.cc)
};

// The parts of a block (backbone layer or DSpark stage), over all rows: h and pre in the workspace are updated in place.
// Each adds phases, takes those that its input waits for (Region::kNone: for none) and returns that of its output.

// ws.x and its operands: mix, fold, norm.
Phase hc_enter(ForwardPass& pass, const HcWeights& weights, const std::vector<Bf16>& norm);
// For the share that made these columns of ws.y: unfolds them into h, and makes its part of the next mix.
void hc_leave(const ForwardPass& pass, Columns columns, const HcWeights* next);
// The phase whose shares have called hc_leave for all columns.
void hc_left(ForwardPass& pass, Phase phase, const HcWeights* next);

// ws.x -> compressed rows and index keys. Of every row, in the first decoder layer too.
Phase compress(ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t layer, Phase x);

// ws.x -> ws.y -> h. `compressed`: of the compressor, where the layer owns KV.
void attention(ForwardPass& pass, const BlockWeights& weights, const LayerPlan& plan, int64_t layer, Phase x,
               Phase compressed);
// Its steps, for DSpark and the index: what a row of ws.x becomes first, with another product beside it perhaps (null),
struct InputPhases {
  Phase query = Region::kNone;        // query_operand()
  Phase values = Region::kNone;       // the window row's values, and the product beside
  Phase window_rows = Region::kNone;  // ws.window_rows
};
InputPhases project_input(ForwardPass& pass, const BlockWeights& weights, Phase x, const LinearTask* beside);
LinearTask window_row_task(const ForwardPass& pass, const BlockWeights& weights);  // x_quantized() -> ws.kv
Phase make_window_rows(ForwardPass& pass, const BlockWeights& weights, Phase values);  // ws.kv -> ws.window_rows
void observe_window_rows(ForwardPass& pass, int64_t window_layer);
ActivationRows query_operand(const ForwardPass& pass);
// then from the lists on: ws.y and h.
void attend_and_project(ForwardPass& pass, const BlockWeights& weights, const InputPhases& input, Phase lists,
                        Phase compressed);
void list_compressed_rows(ForwardPass& pass, int64_t group, int64_t begin, int64_t end);  // ws.topk -> ws.lists

// The list of every row, ws.topk and ws.lists. The product of head_weights_task() is among input.values.
Phase select_rows(ForwardPass& pass, const IndexerWeights& weights, const LayerPlan& plan, int64_t layer,
                  const InputPhases& input, Phase compressed);
LinearTask head_weights_task(const ForwardPass& pass, const IndexerWeights& weights);

// ws.x -> ws.y -> h.
void experts(ForwardPass& pass, const MoeWeights& weights, int64_t layer, Phase x, const HcWeights* next);

// With regions of their own:
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
