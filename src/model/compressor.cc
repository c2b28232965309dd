// Compressed rows and index keys of a KV source (docs/spec/model.md 4.4, 5):
//
//   ratio 2:  a = wkv x, g = wgate x (fp32);  latent_j = RMS(bf(softmax over the pair of g, per channel . a))
//   ratio 1:  latent_j = RMS(bf(wkv x))
//   index key_j = Q4i(rotate_{jr}(RMS(wk latent_j)))      compressed row_j = Q4k(rotate_{jr}(latent_j))
//
// A pair is pooled when its second token arrives; the first waits in a ring of the sequence, whatever the chunking.
#include <cstring>

#include "kernels/quantize.h"
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

// Number of the ratio-2 source among ratio-2 sources.
int64_t pair_group_of(const KvLayout& layout, int64_t group) {
  int64_t pair_group = 0;
  for (int64_t g = 0; g < group; ++g) pair_group += layout.groups[g].ratio == 2 ? 1 : 0;
  return pair_group;
}

// Rows of the call that finish a latent, into ws.latent_rows; returns how many.
int64_t list_latents(const ForwardPass& pass, int64_t ratio) {
  int64_t count = 0;
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    if (ratio == 2 && (row.position % 2 == 0 || row.position < row.sequence->cut.write_first)) continue;
    const int64_t group_start = row.position / ratio * ratio;
    pass.ws.latent_cos_sin[count] = pass.compress_rope.row(group_start);
    pass.ws.latent_rows[count++] = static_cast<int32_t>(i);
  }
  return count;
}

// ws.pair_values, ws.pair_gates -> ws.latents, through the rings, row after row.
void pool_pairs(const ForwardPass& pass, int64_t pair_group, int64_t num_latents) {
  Workspace& ws = pass.ws;
  const int64_t dim = pass.config.head_dim;
  int64_t latent = 0;
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    float* entry = row.sequence->compressor_entry(pair_group, row.position);
    std::memcpy(entry, ws.pair_values.data() + i * dim, dim * sizeof(float));
    std::memcpy(entry + dim, ws.pair_gates.data() + i * dim, dim * sizeof(float));
    if (latent == num_latents || ws.latent_rows[latent] != i) continue;
    const float* first = row.sequence->compressor_entry(pair_group, row.position - 1);
    pass.ops.pool_pair(first, first + dim, entry, entry + dim, dim, ws.latents.data() + latent++ * dim);
  }
}

// The phase of ws.latents, before their norm.
Phase make_latents(ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t layer, Phase x,
                   int64_t count) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), dim = pass.config.head_dim;
  const ActivationRows operand = pass.x_paired(rows);
  if (plan.ratio != 2) {
    return pass.add_linear({x}, {LinearTask{weights.wkv.view(), operand, {.bf16 = ws.latents.data(), .stride = dim}}});
  }
  const Phase projected =
      pass.add_linear({x}, {LinearTask{weights.wkv.view(), operand, {.f32 = ws.pair_values.data(), .stride = dim}},
                            LinearTask{weights.wgate->view(), operand, {.f32 = ws.pair_gates.data(), .stride = dim}}});
  pass.observe("compressor_value", layer, ws.pair_values.data(), rows * dim);
  pass.observe("compressor_gate", layer, ws.pair_gates.data(), rows * dim);
  const int64_t pair_group = pair_group_of(pass.layout, *plan.kv_source);
  return pass.region.add(1, {projected},
                         [&pass, pair_group, count](const Share&) { pool_pairs(pass, pair_group, count); });
}

// Latents [begin, end) with their index keys into the blocks.
void pack_latents(const ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t begin,
                  int64_t end) {
  Workspace& ws = pass.ws;
  const ModelConfig& config = pass.config;
  const int64_t dim = config.head_dim, index_dim = config.index_head_dim, rotary = config.qk_rope_head_dim;
  Bf16* keys = ws.index_keys.data() + begin * index_dim;
  const float* const* cos_sin = ws.latent_cos_sin.data() + begin;
  pass.rms_norm(keys, weights.k_norm, end - begin, keys);
  pass.ops.rotate(keys, end - begin, 1, index_dim, rotary, cos_sin, Ops::Rotation::kForward);
  pass.ops.rotate(ws.latents.data() + begin * dim, end - begin, 1, dim, rotary, cos_sin, Ops::Rotation::kForward);
  for (int64_t i = begin; i < end; ++i) {
    const Row& row = pass.rows[ws.latent_rows[i]];
    if (row.position < row.sequence->cut.write_first) continue;
    const auto address = pass.arena.row(pass.layout, *row.sequence, *plan.kv_source, row.position / plan.ratio);
    pack_index_row(ws.index_keys.data() + i * index_dim, index_dim, address.index_codes, address.index_scales);
    pack_compressed_row(ws.latents.data() + i * dim, dim, address.compressed);
  }
}

}  // namespace

Phase compress(ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t layer, Phase x) {
  Workspace& ws = pass.ws;
  const int64_t dim = pass.config.head_dim, index_dim = pass.config.index_head_dim;
  const int64_t count = list_latents(pass, plan.ratio);
  const Phase latents = make_latents(pass, weights, plan, layer, x, count);
  if (count == 0) return latents;
  const Phase normed = pass.add_rows(count, 8 * dim, {latents}, [&](int64_t begin, int64_t end, int) {
    const int64_t dim = pass.config.head_dim;
    Bf16* rows = pass.ws.latents.data() + begin * dim;
    pass.rms_norm(rows, weights.norm, end - begin, rows);
    pass.ops.pair_rows(rows, end - begin, dim, pass.ws.latents_paired.data() + begin * dim);
  });
  const Phase keys = pass.add_linear(
      {normed}, {LinearTask{weights.wk.view(), {.values = ws.latents_paired.data(), .count = count, .stride = dim},
                            {.bf16 = ws.index_keys.data(), .stride = index_dim}}});
  const Phase packed = pass.add_rows(count, 8 * (dim + index_dim), {keys}, [&](int64_t begin, int64_t end, int) {
    pack_latents(pass, weights, plan, begin, end);
  });
  pass.observe("compressed_row", layer, ws.latents.data(), count * dim);
  pass.observe("index_key", layer, ws.index_keys.data(), count * index_dim);
  return packed;
}

}  // namespace deepinfer
