// Attention on processors. Lists are arrays of row addresses, made once a layer; few rows share their heads.
#include <cmath>
#include <cstring>

#include "kernels/quantize.h"
#include "model/cpu_backend.h"

namespace deepinfer {

void CpuBackend::do_now(const SetAngles& op) const {
  for (int64_t i = 0; i < num_rows(); ++i) ws().cos_sin[i] = rope(op.kind).row(rows_[i].position);
}

// Window pointers of every row: positions before this call from the ring, later ones from this call.
void CpuBackend::do_now(const ListWindow& op) const {
  const KvLayout& layout = parts_.layout;
  const std::byte** next = ws().window_pointers.data();
  for (int64_t i = 0; i < num_rows(); ++i) {
    const Row& row = rows_[i];
    ws().lists[i] = {.window = next};
    for (int64_t p = first_window_row(row, layout.window, op.half); p <= row.position; ++p) {
      const int64_t in_call = row.first_row + p - row.first_position;
      *next++ = p < row.first_position ? row.sequence->window_row(op.window_layer, p)
                                       : ws().window_rows.data() + in_call * layout.window_row_bytes;
    }
    ws().lists[i].num_window = static_cast<int32_t>(next - ws().lists[i].window);
  }
}

// The rows of a sequence share one list: its window rows, then its rows of the pass.
void CpuBackend::do_now(const ListDraftWindow& op) const {
  const std::byte** pointers = ws().window_pointers.data();
  for (int64_t i = 0; i < num_rows(); ++i) {
    const Row& row = rows_[i];
    if (i > row.first_row) {
      ws().lists[i] = ws().lists[row.first_row];
      continue;
    }
    const std::byte** const list = pointers;
    const int64_t oldest = std::max(row.position - parts_.layout.window, row.sequence->cut.decoder_first);
    for (int64_t p = std::max<int64_t>(0, oldest); p < row.position; ++p) {
      *pointers++ = row.sequence->window_row(op.window_layer, p);
    }
    for (int64_t k = 0; k < config().dspark_block_size; ++k) {
      *pointers++ = ws().window_rows.data() + (i + k) * parts_.layout.window_row_bytes;
    }
    ws().lists[i] = {.window = list, .num_window = static_cast<int32_t>(pointers - list)};
  }
}

void CpuBackend::list_compressed_rows(int64_t group, int64_t begin, int64_t end) const {
  for (int64_t i = begin; i < end; ++i) {
    const std::byte** pointers = ws().compressed_pointers.data() + i * config().index_topk;
    const int32_t* selected = ws().topk.data() + i * config().index_topk;
    for (int32_t k = 0; k < ws().topk_count[i]; ++k) {
      pointers[k] = parts_.arena.row(parts_.layout, *rows_[i].sequence, group, selected[k]).compressed;
    }
    ws().lists[i].compressed = pointers;
    ws().lists[i].num_compressed = ws().topk_count[i];
  }
}

void CpuBackend::do_now(const ListCompressed& op) const {
  list_compressed_rows(op.group, 0, num_rows());
}

Region::Phase CpuBackend::cut(const WindowRows& op, const Needs& needs) {
  return add_rows(op.rows, 8 * config().head_dim, needs, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t head_dim = config().head_dim, bytes = parts_.layout.window_row_bytes;
    Bf16* kv = at(op.kv) + begin * head_dim;
    rms_norm(kv, block(op.block).kv_norm, end - begin, kv);
    ops().rotate(kv, end - begin, 1, head_dim, config().qk_rope_head_dim, ws().cos_sin.data() + begin,
                 Ops::Rotation::kForward);
    for (int64_t i = begin; i < end; ++i)
      pack_window_row(at(op.kv) + i * head_dim, head_dim, at(op.packed) + i * bytes);
  });
}

void CpuBackend::do_last(const StoreWindow& op) const {
  const int64_t bytes = parts_.layout.window_row_bytes;
  for (int64_t i = 0; i < num_rows(); ++i) {
    // A later row of the same call may claim the same slot; ascending order leaves the newest.
    const Row& row = rows_[i];
    std::memcpy(row.sequence->window_row(op.window_layer, row.position), at(op.packed) + i * bytes,
                static_cast<size_t>(bytes));
  }
}

namespace {

// Heads [first, end) of rows [begin, last): rotation, attention, rotation back, operand.
void attend(const CpuBackend& cpu, const Attend& op, int64_t begin, int64_t last, int64_t first, int64_t end,
            int thread) {
  const ModelConfig& config = cpu.config();
  Workspace& ws = cpu.ws();
  const int64_t heads = config.num_attention_heads, head_dim = config.head_dim;
  const AttentionArgs args = {.num_tokens = op.rows,
                              .num_heads = heads,
                              .head_dim = head_dim,
                              .softmax_scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                              .sinks = cpu.block(op.block).attn_sink.data(),
                              .query = cpu.at(op.q),
                              .lists = ws.lists.data(),
                              .out = cpu.at(op.o),
                              .window_columns = config.sliding_window};
  for (int64_t row = begin; row < last; ++row) {
    const int64_t place = (row * heads + first) * head_dim;
    const auto rotate = [&](Bf16* x, Ops::Rotation rotation) {
      cpu.ops().rotate(x + place, 1, end - first, head_dim, config.qk_rope_head_dim, ws.cos_sin.data() + row, rotation);
    };
    rotate(cpu.at(op.q), Ops::Rotation::kForward);
    for (int64_t head = first; head < end; head += kMostAttentionHeads) {
      cpu.ops().attend(args, row, head, std::min(kMostAttentionHeads, end - head), cpu.scratch(thread));
    }
    rotate(cpu.at(op.o), Ops::Rotation::kInverse);
    cpu.ops().pair_rows(cpu.at(op.o) + place, 1, (end - first) * head_dim, cpu.at(op.o_paired) + place);
  }
}

// The same needs, of whole ops.
CpuBackend::Needs whole(CpuBackend::Needs needs) {
  for (Region::Need& need : needs) need.same_share = false;
  return needs;
}

}  // namespace

// Fewer rows than threads share their heads, in numbers that keep the groups of the output projection whole.
int CpuBackend::head_shares() const {
  const int64_t heads = config().num_attention_heads, groups = config().o_groups;
  int64_t shares = std::min<int64_t>(num_threads(), groups);
  while (shares > 1 && (groups % shares != 0 || heads % (shares * kAttentionHeads) != 0)) --shares;
  return static_cast<int>(shares);
}

Region::Phase CpuBackend::cut(const Attend& op, const Needs& needs) {
  if (op.rows < num_threads()) {
    return add(head_shares(), needs, [this, &op](const Share& share) {
      const int64_t heads = config().num_attention_heads;
      attend(*this, op, 0, op.rows, share.begin(heads), share.end(heads), share.thread);
    });
  }
  const int64_t elements = 16384;  // enough to be shared row by row
  return add_rows(op.rows, elements, whole(needs), [this, &op](int64_t begin, int64_t end, int thread) {
    attend(*this, op, begin, end, 0, config().num_attention_heads, thread);
  });
}

// wo_a row block g reads the heads of group g, without activation quantization.
Region::Phase CpuBackend::cut(const GroupedOutput& op, const Needs& needs) {
  const int64_t groups = config().o_groups, rank = config().o_lora_rank;
  const int64_t width = config().num_attention_heads * config().head_dim;
  const std::span<LinearTask> tasks = new_tasks(groups);
  for (int64_t group = 0; group < groups; ++group) {
    tasks[group] = {block(op.block).wo_a.view().row_range(group * rank, rank),
                    {.values = at(op.o_paired) + group * (width / groups), .count = op.rows, .stride = width},
                    {.bf16 = at(op.z) + group * rank, .stride = groups * rank}};
  }
  const Needs waits = op.rows < num_threads() ? needs : whole(needs);
  return add(product_shares(tasks), waits, [this, &op, tasks](const Share& share) {
    for_each_linear_part(tasks, share, [&](int64_t group, int64_t first, int64_t end) {
      ops().linear_groups(tasks[group], first, end);
      const int64_t rank = config().o_lora_rank, stride = config().o_groups * rank;
      const int64_t column = first * kRowGroup, columns = std::min(end * kRowGroup, rank) - column;
      for (int64_t row = 0; row < op.rows; ++row) {
        const int64_t place = row * stride + group * rank + column;
        ops().quantize_rows(at(op.z) + place, 1, columns, at(op.z_quantized) + place);
      }
    });
  });
}

Region::Phase CpuBackend::cut(const AttentionOutput& op, const Needs& needs) {
  const std::span<LinearTask> last = new_tasks(1);
  last[0] = {block(op.block).wo_b.view(), input(op.z), {.bf16 = at(streams_.y), .stride = config().hidden_size}};
  return add(column_shares(linear_cost(last)), needs, [this, &op, last](const Share& share) {
    const Columns columns = columns_of(share, config().hidden_size);
    if (columns.first == columns.end) return;
    run_linear_columns(ops(), last[0], columns);
    leave_sublayer(op.leave, op.z.count, columns);
  });
}

}  // namespace deepinfer
