// Attention of one layer (model-v41 2.1, 4):
//
//   qr = RMS(wq_a x)   q = rotate(wq_b qr)   u = Q8(rotate(RMS(wkv x)))              u: the window row of a position
//   list(p) = window rows max(0, p - W + 1) .. p, then the selected compressed rows, ascending
//   o = softmax with sink over the list, rotated back at p;   y = wo_b(per group: wo_a o)
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quantize.h"
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

// Window pointers of every row: positions before this call from the ring, later ones from this call.
void list_window_rows(ForwardPass& pass, int64_t layer) {
  Workspace& ws = pass.ws;
  const Half half = layer < pass.config.first_decoder_layer() ? Half::kEncoder : Half::kDecoder;
  const KvLayout& layout = pass.layout;
  const std::byte** next = ws.window_pointers.data();
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    ws.lists[i] = {.window = next};
    for (int64_t p = first_window_row(row, layout.window, half); p <= row.position; ++p) {
      const int64_t in_call = row.first_row + p - row.first_position;
      *next++ = p < row.first_position ? row.sequence->window_row(layer, p)
                                       : ws.window_rows.data() + in_call * layout.window_row_bytes;
    }
    ws.lists[i].num_window = static_cast<int32_t>(next - ws.lists[i].window);
  }
}

void list_compressed_rows(ForwardPass& pass, int64_t group) {
  Workspace& ws = pass.ws;
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const std::byte** pointers = ws.compressed_pointers.data() + i * pass.config.index_topk;
    const int32_t* rows = ws.topk.data() + i * pass.config.index_topk;
    for (int32_t k = 0; k < ws.topk_count[i]; ++k) {
      pointers[k] = pass.arena.row(pass.layout, *pass.rows[i].sequence, group, rows[k]).compressed;
    }
    ws.lists[i].compressed = pointers;
    ws.lists[i].num_compressed = ws.topk_count[i];
  }
}

}  // namespace

void project_query(ForwardPass& pass, const BlockWeights& weights, const ActivationRows& x) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows();
  pass.linear(weights.wq_a, x, ws.qr.data());
  pass.rms_norm(ws.qr.data(), weights.q_norm, rows, ws.qr.data());
  pass.linear(weights.wq_b, pass.quantize(ws.qr.data(), rows, pass.config.q_lora_rank), ws.q.data());
  pass.ops.rotate(pass.kernel, ws.q.data(), rows, pass.config.num_attention_heads, pass.config.head_dim,
                  pass.config.qk_rope_head_dim, ws.cos_sin.data(), Ops::Rotation::kForward);
}

void make_window_rows(ForwardPass& pass, const BlockWeights& weights, const ActivationRows& x) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), head_dim = pass.config.head_dim;
  pass.linear(weights.wkv, x, ws.kv.data());
  pass.rms_norm(ws.kv.data(), weights.kv_norm, rows, ws.kv.data());
  pass.ops.rotate(pass.kernel, ws.kv.data(), rows, 1, head_dim, pass.config.qk_rope_head_dim, ws.cos_sin.data(),
                  Ops::Rotation::kForward);
  for (int64_t i = 0; i < rows; ++i) {
    pack_window_row(ws.kv.data() + i * head_dim, head_dim, ws.window_rows.data() + i * pass.layout.window_row_bytes);
  }
}

void store_window_rows(ForwardPass& pass, int64_t window_layer) {
  const int64_t bytes = pass.layout.window_row_bytes;
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    // A later row of the same call may claim the same slot; ascending order leaves the newest.
    const Row& row = pass.rows[i];
    std::memcpy(row.sequence->window_row(window_layer, row.position), pass.ws.window_rows.data() + i * bytes,
                static_cast<size_t>(bytes));
  }
}

void attend_and_project(ForwardPass& pass, const BlockWeights& weights) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), heads = config.num_attention_heads, head_dim = config.head_dim;
  pass.ops.sparse_attention(
      pass.kernel, {.num_tokens = rows,
                    .num_heads = heads,
                    .head_dim = head_dim,
                    .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                    .sinks = weights.attn_sink.data(),
                    .query = ws.q.data(),
                    .lists = ws.lists.data(),
                    .out = ws.o.data(),
                    .window_columns = config.sliding_window});
  pass.ops.rotate(pass.kernel, ws.o.data(), rows, heads, head_dim, config.qk_rope_head_dim, ws.cos_sin.data(),
                  Ops::Rotation::kInverse);

  // Grouped output: wo_a row block g reads the heads of group g, without activation quantization.
  const int64_t group_cols = heads * head_dim / config.o_groups, rank = config.o_lora_rank;
  const ActivationRows o = pass.pair(ws.o.data(), rows, heads * head_dim);
  for (int64_t group = 0; group < config.o_groups; ++group) {
    ActivationRows part = o;
    part.values += group * group_cols;
    ws.tasks[group] = {weights.wo_a.view().row_range(group * rank, rank), part,
                       {.bf16 = ws.z.data() + group * rank, .stride = config.o_groups * rank}};
  }
  pass.ops.linear_list(pass.kernel, {ws.tasks.data(), static_cast<size_t>(config.o_groups)});
  pass.linear(weights.wo_b, pass.quantize(ws.z.data(), rows, config.o_groups * rank), ws.y.data());
}

void attention(ForwardPass& pass, const BlockWeights& weights, const LayerPlan& plan, int64_t layer) {
  Workspace& ws = pass.ws;
  pass.set_cos_sin(plan.rope);
  const ActivationRows x = pass.quantize(ws.x.data(), pass.num_rows(), pass.config.hidden_size);
  make_window_rows(pass, weights, x);
  project_query(pass, weights, x);
  if (plan.owns_index) select_rows(pass, *weights.indexer, plan, layer);
  list_window_rows(pass, layer);
  if (plan.ratio > 0) list_compressed_rows(pass, *plan.kv_source);
  attend_and_project(pass, weights);
  store_window_rows(pass, layer);
}

}  // namespace deepinfer
