// Compressed rows and index keys of a KV source (model-v41 4.4, 5):
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

// Fills ws.latents and ws.latent_rows; returns the number of latents.
int64_t pool_pairs(ForwardPass& pass, const CompressorWeights& weights, int64_t pair_group, int64_t layer) {
  Workspace& ws = pass.ws;
  const int64_t dim = pass.config.head_dim;
  const ActivationRows x = pass.pair(ws.x.data(), pass.num_rows(), pass.config.hidden_size);
  pass.ops.linear(pass.kernel, weights.wkv.view(), x, {.f32 = ws.pair_values.data(), .stride = dim});
  pass.ops.linear(pass.kernel, weights.wgate->view(), x, {.f32 = ws.pair_gates.data(), .stride = dim});
  pass.observe("compressor_value", layer, ws.pair_values.data(), pass.num_rows() * dim);
  pass.observe("compressor_gate", layer, ws.pair_gates.data(), pass.num_rows() * dim);
  int64_t count = 0;
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const Row& row = pass.rows[i];
    float* entry = row.sequence->compressor_entry(pair_group, row.position);
    std::memcpy(entry, ws.pair_values.data() + i * dim, dim * sizeof(float));
    std::memcpy(entry + dim, ws.pair_gates.data() + i * dim, dim * sizeof(float));
    if (row.position % 2 == 0 || row.position < row.sequence->cut.write_first) continue;
    const float* first = row.sequence->compressor_entry(pair_group, row.position - 1);
    pass.ops.pool_pair(first, first + dim, entry, entry + dim, dim, ws.latents.data() + count * dim);
    ws.latent_rows[count++] = static_cast<int32_t>(i);
  }
  return count;
}

int64_t project_latents(ForwardPass& pass, const CompressorWeights& weights) {
  Workspace& ws = pass.ws;
  pass.linear(weights.wkv, pass.pair(ws.x.data(), pass.num_rows(), pass.config.hidden_size), ws.latents.data());
  for (int64_t i = 0; i < pass.num_rows(); ++i) ws.latent_rows[i] = static_cast<int32_t>(i);
  return pass.num_rows();
}

}  // namespace

void compress(ForwardPass& pass, const CompressorWeights& weights, const LayerPlan& plan, int64_t layer) {
  Workspace& ws = pass.ws;
  const ModelConfig& config = pass.config;
  const int64_t dim = config.head_dim, index_dim = config.index_head_dim, group = *plan.kv_source;
  const int64_t count = plan.ratio == 2 ? pool_pairs(pass, weights, pair_group_of(pass.layout, group), layer)
                                        : project_latents(pass, weights);
  if (count == 0) return;
  pass.rms_norm(ws.latents.data(), weights.norm, count, ws.latents.data());
  pass.observe("latent", layer, ws.latents.data(), count * dim);

  pass.linear(weights.wk, pass.pair(ws.latents.data(), count, dim), ws.index_keys.data());
  pass.rms_norm(ws.index_keys.data(), weights.k_norm, count, ws.index_keys.data());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group_start = pass.rows[ws.latent_rows[i]].position / plan.ratio * plan.ratio;
    ws.latent_cos_sin[i] = pass.compress_rope.row(group_start);
  }
  pass.ops.rotate(pass.kernel, ws.index_keys.data(), count, 1, index_dim, config.qk_rope_head_dim,
                  ws.latent_cos_sin.data(), Ops::Rotation::kForward);
  pass.ops.rotate(pass.kernel, ws.latents.data(), count, 1, dim, config.qk_rope_head_dim, ws.latent_cos_sin.data(),
                  Ops::Rotation::kForward);
  for (int64_t i = 0; i < count; ++i) {
    const Row& row = pass.rows[ws.latent_rows[i]];
    if (row.position < row.sequence->cut.write_first) continue;
    const auto address = pass.arena.row(pass.layout, *row.sequence, group, row.position / plan.ratio);
    pack_index_row(ws.index_keys.data() + i * index_dim, index_dim, address.index_codes, address.index_scales);
    pack_compressed_row(ws.latents.data() + i * dim, dim, address.compressed);
  }
}

}  // namespace deepinfer
