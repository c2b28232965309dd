// Attention of one layer (docs/spec/model.md 2.1, 4):
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

}  // namespace

void list_compressed_rows(ForwardPass& pass, int64_t group, int64_t begin, int64_t end) {
  Workspace& ws = pass.ws;
  for (int64_t i = begin; i < end; ++i) {
    const std::byte** pointers = ws.compressed_pointers.data() + i * pass.config.index_topk;
    const int32_t* rows = ws.topk.data() + i * pass.config.index_topk;
    for (int32_t k = 0; k < ws.topk_count[i]; ++k) {
      pointers[k] = pass.arena.row(pass.layout, *pass.rows[i].sequence, group, rows[k]).compressed;
    }
    ws.lists[i].compressed = pointers;
    ws.lists[i].num_compressed = ws.topk_count[i];
  }
}

Phase make_window_rows(ForwardPass& pass, const BlockWeights& weights, Phase values) {
  const int64_t elements = 8 * pass.config.head_dim;
  return pass.add_rows(pass.num_rows(), elements, {values}, [&](int64_t begin, int64_t end, int) {
    Workspace& ws = pass.ws;
    const int64_t head_dim = pass.config.head_dim, bytes = pass.layout.window_row_bytes;
    Bf16* kv = ws.kv.data() + begin * head_dim;
    pass.rms_norm(kv, weights.kv_norm, end - begin, kv);
    pass.ops.rotate(kv, end - begin, 1, head_dim, pass.config.qk_rope_head_dim, ws.cos_sin.data() + begin,
                    Ops::Rotation::kForward);
    for (int64_t i = begin; i < end; ++i) {
      pack_window_row(ws.kv.data() + i * head_dim, head_dim, ws.window_rows.data() + i * bytes);
    }
  });
}

void observe_window_rows(ForwardPass& pass, int64_t window_layer) {
  pass.observe("window_row", window_layer, pass.ws.kv.data(), pass.num_rows() * pass.config.head_dim);
}

LinearTask window_row_task(const ForwardPass& pass, const BlockWeights& weights) {
  return {weights.wkv.view(), pass.x_quantized(pass.num_rows()),
          {.bf16 = pass.ws.kv.data(), .stride = pass.config.head_dim}};
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

InputPhases project_input(ForwardPass& pass, const BlockWeights& weights, Phase x, const LinearTask* beside) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), rank = pass.config.q_lora_rank;
  const Phase compressed = pass.add_linear(
      {x}, {LinearTask{weights.wq_a.view(), pass.x_quantized(rows), {.bf16 = ws.qr.data(), .stride = rank}}});
  const LinearTask window = window_row_task(pass, weights);
  InputPhases made;
  made.values = beside != nullptr ? pass.add_linear({x}, {window, *beside}) : pass.add_linear({x}, {window});
  made.query = pass.add_rows(rows, 8 * rank, {compressed}, [&](int64_t begin, int64_t end, int) {
    const int64_t rank = pass.config.q_lora_rank;
    Bf16* qr = pass.ws.qr.data() + begin * rank;
    pass.rms_norm(qr, weights.q_norm, end - begin, qr);
    pass.ops.quantize_rows(qr, end - begin, rank, pass.ws.qr_quantized.data() + begin * rank);
  });
  made.window_rows = make_window_rows(pass, weights, made.values);
  return made;
}

ActivationRows query_operand(const ForwardPass& pass) {
  return {.values = pass.ws.qr_quantized.data(), .count = pass.num_rows(), .stride = pass.config.q_lora_rank};
}

namespace {

// Heads [first, end) of rows [begin, last): rotation, attention, rotation back, operand.
void attend(const ForwardPass& pass, const BlockWeights& weights, int64_t begin, int64_t last, int64_t first,
            int64_t end, int thread) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t heads = config.num_attention_heads, head_dim = config.head_dim;
  const AttentionArgs args = {.num_tokens = pass.num_rows(),
                              .num_heads = heads,
                              .head_dim = head_dim,
                              .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                              .sinks = weights.attn_sink.data(),
                              .query = ws.q.data(),
                              .lists = ws.lists.data(),
                              .out = ws.o.data(),
                              .window_columns = config.sliding_window};
  for (int64_t row = begin; row < last; ++row) {
    const int64_t place = (row * heads + first) * head_dim;
    const auto rotate = [&](Bf16* x, Ops::Rotation rotation) {
      pass.ops.rotate(x + place, 1, end - first, head_dim, config.qk_rope_head_dim, ws.cos_sin.data() + row, rotation);
    };
    rotate(ws.q.data(), Ops::Rotation::kForward);
    for (int64_t head = first; head < end; head += kMostAttentionHeads) {
      pass.ops.attend(args, row, head, std::min(kMostAttentionHeads, end - head), pass.kernel.thread_scratch(thread));
    }
    rotate(ws.o.data(), Ops::Rotation::kInverse);
    pass.ops.pair_rows(ws.o.data() + place, 1, (end - first) * head_dim, ws.o_paired.data() + place);
  }
}

// Fewer rows than threads share their heads, in numbers that keep the groups of the output projection whole.
int head_shares(const ForwardPass& pass) {
  const int64_t heads = pass.config.num_attention_heads, groups = pass.config.o_groups;
  int64_t shares = std::min<int64_t>(pass.num_threads(), groups);
  while (shares > 1 && (groups % shares != 0 || heads % (shares * kAttentionHeads) != 0)) --shares;
  return static_cast<int>(shares);
}

// Phase of the attention of all rows, once the query is projected.
Region::Need add_attend(ForwardPass& pass, const BlockWeights& weights, Phase query, Phase window_rows, Phase lists,
                        Phase compressed) {
  const int64_t rows = pass.num_rows();
  if (rows < pass.num_threads()) {
    return Region::same_share(pass.region.add(
        head_shares(pass), {Region::same_share(query), window_rows, lists, compressed}, [&](const Share& share) {
          const int64_t heads = pass.config.num_attention_heads;
          attend(pass, weights, 0, pass.num_rows(), share.begin(heads), share.end(heads), share.thread);
        }));
  }
  const int64_t elements = 16384;  // enough to be shared row by row
  return pass.add_rows(rows, elements, {query, window_rows, lists, compressed},
                       [&](int64_t begin, int64_t end, int thread) {
                         attend(pass, weights, begin, end, 0, pass.config.num_attention_heads, thread);
                       });
}

}  // namespace

void attend_and_project(ForwardPass& pass, const BlockWeights& weights, const InputPhases& input, Phase lists,
                        Phase compressed) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), width = config.num_attention_heads * config.head_dim;
  const Phase query = pass.add_linear(
      {input.query}, {LinearTask{weights.wq_b.view(), query_operand(pass), {.bf16 = ws.q.data(), .stride = width}}});
  const Region::Need attended = add_attend(pass, weights, query, input.window_rows, lists, compressed);

  // Grouped output: wo_a row block g reads the heads of group g, without activation quantization.
  const int64_t groups = config.o_groups, rank = config.o_lora_rank;
  const std::span<LinearTask> tasks = pass.new_tasks(groups);
  for (int64_t group = 0; group < groups; ++group) {
    tasks[group] = {weights.wo_a.view().row_range(group * rank, rank),
                    {.values = ws.o_paired.data() + group * (width / groups), .count = rows, .stride = width},
                    {.bf16 = ws.z.data() + group * rank, .stride = groups * rank}};
  }
  const Phase grouped = pass.region.add(pass.linear_shares(tasks), {attended}, [&pass, tasks](const Share& share) {
    for_each_linear_part(tasks, share, [&](int64_t group, int64_t first, int64_t end) {
      pass.ops.linear_groups(tasks[group], first, end);
      const int64_t rank = pass.config.o_lora_rank, stride = pass.config.o_groups * rank;
      const int64_t column = first * kRowGroup, columns = std::min(end * kRowGroup, rank) - column;
      for (int64_t row = 0; row < pass.num_rows(); ++row) {
        const int64_t place = row * stride + group * rank + column;
        pass.ops.quantize_rows(pass.ws.z.data() + place, 1, columns, pass.ws.z_quantized.data() + place);
      }
    });
  });

  const ActivationRows z = {.values = ws.z_quantized.data(), .count = rows, .stride = groups * rank};
  const std::span<LinearTask> last = pass.new_tasks(1);
  last[0] = {weights.wo_b.view(), z, {.bf16 = ws.y.data(), .stride = config.hidden_size}};
  const Phase done =
      pass.region.add(pass.column_shares(linear_cost(last)), {grouped}, [&pass, &weights, last](const Share& share) {
        const Columns columns = columns_of(share, pass.config.hidden_size);
        if (columns.first == columns.end) return;
        run_linear_columns(pass.ops, last[0], columns);
        hc_leave(pass, columns, &weights.hc_ffn);
      });
  hc_left(pass, done, &weights.hc_ffn);
}

void attention(ForwardPass& pass, const BlockWeights& weights, const LayerPlan& plan, int64_t layer, Phase x,
               Phase compressed) {
  pass.set_cos_sin(plan.rope);
  list_window_rows(pass, layer);
  if (plan.owns_index) {
    const LinearTask head_weights = head_weights_task(pass, *weights.indexer);
    const InputPhases input = project_input(pass, weights, x, &head_weights);
    observe_window_rows(pass, layer);
    const Phase lists = select_rows(pass, *weights.indexer, plan, layer, input, compressed);
    return attend_and_project(pass, weights, input, lists, compressed);
  }
  if (plan.ratio > 0) list_compressed_rows(pass, *plan.kv_source, 0, pass.num_rows());
  const InputPhases input = project_input(pass, weights, x, nullptr);
  observe_window_rows(pass, layer);
  attend_and_project(pass, weights, input, Region::kNone, compressed);
}

}  // namespace deepinfer
