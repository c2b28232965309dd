// What stands between the sublayers and around the products, on processors: hyper-connections, products, norms,
// compressor, Engram.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/quantize.h"
#include "model/cpu_backend.h"

namespace deepinfer {

void CpuBackend::make_operands(const Bf16* x, int64_t width, const OperandRefs& operands, int64_t begin,
                               int64_t end) const {
  const int64_t stride = (width + 1) / 2 * 2, count = end - begin;
  const Bf16* first = x + begin * width;
  if (operands.paired.exists()) ops().pair_rows(first, count, width, at(operands.paired) + begin * stride);
  if (!operands.quantized.exists()) return;
  Bf16* quantized = at(operands.quantized) + begin * width;
  ops().quantize_rows(first, count, width, quantized);
  if (!operands.int8.exists() || parts_.numerics == Numerics::kExact) return;
  ops().encode_int8(quantized, count, width, at(operands.int8) + begin * width / kSumBlock);
}

// ---- hyper-connections
// ------------------------------------------------------------------------------------------------

namespace {

// Fold, and block sums of the mix, of some columns of every stream.
void make_sums(const CpuBackend& cpu, const HcRef& hc, int64_t rows, Columns columns, const float* fold_weights,
               int64_t weight_stride) {
  const StreamRefs& streams = cpu.streams();
  const int64_t hidden = cpu.config().hidden_size;
  const Bf16* h = cpu.at(streams.h);
  cpu.ops().hc_fold(h, fold_weights, weight_stride, rows, hidden, columns, cpu.at(streams.x));
  const HcParams params = cpu.mixing(hc).params(cpu.config());
  for (int64_t start = 0; start < 4 * hidden; start += hidden) {
    const int64_t first = (start + columns.first) / kSumBlock, end = (start + columns.end) / kSumBlock;
    cpu.ops().hc_sums(params, h, rows, hidden, first, end, cpu.ws().hc_sums.data());
  }
}

}  // namespace

Region::Phase CpuBackend::cut(const EnterSublayer& op, const Needs& needs) {
  const int64_t hidden = config().hidden_size;
  if (!are_few(op.rows)) {
    const int64_t elements = 100 * hidden;  // 24 products of each
    return add_rows(op.rows, elements, needs, [this, &op](int64_t begin, int64_t end, int thread) {
      const int64_t hidden = config().hidden_size;
      const StreamRefs& streams = streams_;
      const Bf16* h = at(streams.h) + begin * 4 * hidden;
      Bf16* x = at(streams.x) + begin * hidden;
      ops().hc_mix(mixing(op.hc).params(config()), h, end - begin, hidden, ws().hc_products.data() + begin * 24,
                   at(streams.mix) + begin, scratch(thread));
      ops().hc_fold(h, at(streams.pre) + begin * 4, 4, end - begin, hidden, {0, hidden}, x);
      rms_norm(x, sublayer_norm(op.hc), end - begin, x);
      make_operands(at(streams.x), hidden, streams.operands, begin, end);
    });
  }
  Needs summed = needs;
  if (!op.begun) {
    summed = after(add(column_shares(op.rows * hidden * 8), needs, [this, &op](const Share& share) {
      make_sums(*this, op.hc, op.rows, columns_of(share, config().hidden_size), at(streams_.pre), 4);
    }));
  }
  return add_rows(op.rows, 16 * hidden, summed, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t hidden = config().hidden_size;
    const HcParams params = mixing(op.hc).params(config());
    Bf16* x = at(streams_.x) + begin * hidden;
    ops().hc_finish(params, ws().hc_sums.data() + begin * params.fn.num_blocks() * kHcSumStride, end - begin, hidden,
                    ws().hc_products.data() + begin * 24, at(streams_.mix) + begin);
    rms_norm(x, sublayer_norm(op.hc), end - begin, x);
    make_operands(at(streams_.x), hidden, streams_.operands, begin, end);
  });
}

void CpuBackend::leave_sublayer(const LeaveSublayer& leave, int64_t rows, Columns columns) const {
  if (columns.first == columns.end) return;
  const StreamRefs& streams = streams_;
  const HcMix* mix = at(streams.mix);
  ops().hc_unfold(at(streams.y), mix, rows, config().hidden_size, columns, at(streams.h));
  if (columns.first == 0) {  // once
    for (int64_t row = 0; row < rows; ++row) std::copy_n(mix[row].a, 4, at(streams.pre) + 4 * row);
  }
  if (leave.has_next && are_few(rows)) {
    make_sums(*this, leave.next, rows, columns, mix[0].a, sizeof(HcMix) / sizeof(float));
  }
}

Region::Phase CpuBackend::cut(const FoldRows& op, const Needs& needs) {
  return add_rows(op.rows, 8 * config().hidden_size, needs, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t hidden = config().hidden_size;
    ops().hc_fold(at(streams_.h) + begin * 4 * hidden, at(streams_.pre) + begin * 4, 4, end - begin, hidden,
                  {0, hidden}, at(streams_.x) + begin * hidden);
  });
}

Region::Phase CpuBackend::cut(const GatherRows& op, const Needs& needs) {
  return add_rows(op.count, op.width, needs, [this, &op](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(at(op.x) + at(op.index)[i] * op.width, op.width, at(op.out) + i * op.width);
    }
  });
}

void CpuBackend::do_now(const Embed& op) const {
  const int64_t hidden = config().hidden_size;
  for (int64_t row = 0; row < op.rows; ++row) {
    const Bf16* embedding = parts_.weights.embed.as<Bf16>() + at(op.ids)[row] * hidden;
    for (int stream = 0; stream < 4; ++stream) {
      std::copy_n(embedding, hidden, at(op.h) + (row * 4 + stream) * hidden);
      at(op.pre)[row * 4 + stream] = stream == 0 ? 1.0f : 0.0f;
    }
  }
}

void CpuBackend::do_now(const MeanOfStreams& op) const {
  const int64_t hidden = config().hidden_size;
  for (int64_t row = 0; row < op.rows; ++row) {
    const Bf16* h = at(op.h) + row * 4 * hidden;
    Bf16* out = at(op.out) + row * op.width + op.target * hidden;
    for (int64_t d = 0; d < hidden; ++d) {
      float sum = to_float(h[d]);
      for (int stream = 1; stream < 4; ++stream) sum += to_float(h[stream * hidden + d]);
      out[d] = to_bf16(sum / 4.0f);
    }
  }
}

// A number that is not finite anywhere in a row's streams reaches its mixing weights: their statistic sums all squares.
void CpuBackend::do_last(const CheckFinite& op) const {
  for (int64_t i = 0; i < op.rows; ++i) {
    const float* pre = at(op.pre) + 4 * i;
    if (!std::isfinite(pre[0] + pre[1] + pre[2] + pre[3])) parts_.note_fault(rows_[i], op.layer);
  }
}

void CpuBackend::do_last(const CheckLogits& op) const {
  const int64_t vocab = config().vocab_size;
  for (int64_t i = 0; i < op.count; ++i) {
    const float* logits = at(op.logits) + i * vocab;
    if (!std::all_of(logits, logits + vocab, [](float x) { return std::isfinite(x); })) {
      parts_.note_fault(rows_[at(op.index)[i]], config().num_hidden_layers);
    }
  }
}

// ---- products and what prepares them
// ----------------------------------------------------------------------------------

Region::Phase CpuBackend::cut(const Products& op, const Needs& needs) {
  const std::span<LinearTask> tasks = new_tasks(op.count);
  for (int i = 0; i < op.count; ++i) tasks[i] = task(op.list[i]);
  return add(product_shares(tasks), needs,
             [this, tasks](const Share& share) { run_linear_share(ops(), tasks, share); });
}

Region::Phase CpuBackend::cut(const NormRows& op, const Needs& needs) {
  return add_rows(op.rows, 8 * op.width, needs, [this, &op](int64_t begin, int64_t end, int) {
    rms_norm(at(op.x) + begin * op.width, norm(op.norm), end - begin, at(op.out) + begin * op.width);
    make_operands(at(op.out), op.width, op.operands, begin, end);
  });
}

Region::Phase CpuBackend::cut(const MakeOperands& op, const Needs& needs) {
  return add_rows(op.rows, op.width, needs, [this, &op](int64_t begin, int64_t end, int) {
    make_operands(at(op.x), op.width, op.operands, begin, end);
  });
}

// ---- compressor
// -------------------------------------------------------------------------------------------------------

void CpuBackend::do_now(const ListLatents& op) const {
  int64_t count = 0;
  for (int64_t i = 0; i < num_rows(); ++i) {
    if (!finishes_latent(rows_[i], op.ratio)) continue;
    ws().latent_cos_sin[count] = parts_.compress_rope.row(rows_[i].position / op.ratio * op.ratio);
    ws().latent_rows[count++] = static_cast<int32_t>(i);
  }
}

Region::Phase CpuBackend::cut(const PoolPairs& op, const Needs& needs) {
  return add(1, needs, [this, &op](const Share&) {
    const int64_t dim = config().head_dim;
    int64_t latent = 0;
    for (int64_t i = 0; i < op.rows; ++i) {
      const Row& row = rows_[i];
      float* entry = row.sequence->compressor_entry(op.pair_group, row.position);
      std::memcpy(entry, at(op.values) + i * dim, dim * sizeof(float));
      std::memcpy(entry + dim, at(op.gates) + i * dim, dim * sizeof(float));
      if (latent == op.latents || ws().latent_rows[latent] != i) continue;
      const float* first = row.sequence->compressor_entry(op.pair_group, row.position - 1);
      ops().pool_pair(first, first + dim, entry, entry + dim, dim, at(op.out) + latent++ * dim);
    }
  });
}

Region::Phase CpuBackend::cut(const PackLatents& op, const Needs& needs) {
  const int64_t elements = 8 * (config().head_dim + config().index_head_dim);
  return add_rows(op.latents, elements, needs, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t dim = config().head_dim, index_dim = config().index_head_dim, rotary = config().qk_rope_head_dim;
    Bf16* keys = at(op.keys) + begin * index_dim;
    const float* const* cos_sin = ws().latent_cos_sin.data() + begin;
    rms_norm(keys, block(op.block).compressor->k_norm, end - begin, keys);
    ops().rotate(keys, end - begin, 1, index_dim, rotary, cos_sin, Ops::Rotation::kForward);
    ops().rotate(at(op.rows) + begin * dim, end - begin, 1, dim, rotary, cos_sin, Ops::Rotation::kForward);
    for (int64_t i = begin; i < end; ++i) {
      const Row& row = rows_[ws().latent_rows[i]];
      if (row.position < row.sequence->cut.write_first) continue;
      const auto address = parts_.arena.row(parts_.layout, *row.sequence, op.group, row.position / op.ratio);
      pack_index_row(at(op.keys) + i * index_dim, index_dim, address.index_codes, address.index_scales);
      pack_compressed_row(at(op.rows) + i * dim, dim, address.compressed);
    }
  });
}

// ---- DSpark
// -----------------------------------------------------------------------------------------------------------

void CpuBackend::do_now(const GatherMarkov& op) const {
  const int64_t hidden = config().hidden_size, rank = config().dspark_markov_rank, block = config().dspark_block_size;
  for (int64_t s = 0; s < op.count; ++s) {
    const Bf16* embedding = parts_.weights.dspark->markov_embed.as<Bf16>() + at(op.ids)[s] * rank;
    Bf16* features = at(op.features) + s * (hidden + rank);
    std::copy_n(at(op.x) + (s * block + op.draft) * hidden, hidden, features);
    std::copy_n(embedding, rank, features + hidden);
    std::copy_n(embedding, rank, at(op.rows) + s * rank);
  }
}

void CpuBackend::do_last(const AddMarkov& op) const {
  const int64_t vocab = config().vocab_size, block = config().dspark_block_size;
  for (int64_t s = 0; s < op.count; ++s) {
    float* logits = at(op.logits) + (s * block + op.draft) * vocab;
    const float* markov = at(op.markov) + s * vocab;
    for (int64_t v = 0; v < vocab; ++v) logits[v] += markov[v];
  }
}

// ---- Engram
// -----------------------------------------------------------------------------------------------------------

void CpuBackend::do_now(const HashEngram& op) const {
  const EngramLayerHash& hash = parts_.engram_hashes[op.engram];
  const int64_t columns = hash.num_columns();
  for (int64_t i = 0; i < num_rows(); ++i) {
    const Row& row = rows_[i];
    std::array<int64_t, kEngramTokens> ids;
    for (int64_t back = 0; back < kEngramTokens; ++back) {
      ids[back] = row.position >= back ? row.engram_ids[back] : parts_.engram_pad_class;
    }
    hash.rows(ids, {ws().engram_rows.data() + i * columns, static_cast<size_t>(columns)});
  }
}

void CpuBackend::do_now(const GatherEngram& op) const {
  const EngramWeights& weights = *block(op.block).engram;
  const int64_t dim = config().engram_head_dim;
  Bf16* out = at(op.out);
  for (int64_t i = 0; i < op.count; ++i) {
    const int64_t row = at(op.rows)[i];
    const uint8_t* codes = weights.codes.as<uint8_t>() + row * dim;
    const uint8_t* scales = weights.scales.as<uint8_t>() + row * (dim / 32);
    for (int64_t d = 0; d < dim; ++d) *out++ = to_bf16(e4m3_to_float(codes[d]) * e8m0_to_float(scales[d / 32]));
  }
}

Region::Phase CpuBackend::cut(const EngramGate& op, const Needs& needs) {
  return add_rows(op.rows, 32 * config().hidden_size, needs, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t hidden = config().hidden_size;
    const EngramWeights& weights = *block(op.block).engram;
    ops().engram_gate({.hidden = hidden,
                       .norm_eps = norm_eps(),
                       .q_weight = weights.q_weight.data(),
                       .k_weight = weights.k_weight.data(),
                       .key_value = at(op.key_value) + begin * 5 * hidden,
                       .h = at(op.h) + begin * 4 * hidden},
                      end - begin);
  });
}

}  // namespace deepinfer
