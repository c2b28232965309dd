// Compressed rows and index keys of a KV source (docs/spec/model.md 4.4, 5):
//
//   ratio 2:  a = wkv x, g = wgate x (fp32);  latent_j = RMS(bf(softmax over the pair of g, per channel . a))
//   ratio 1:  latent_j = RMS(bf(wkv x))
//   index key_j = Q4i(rotate_{jr}(RMS(wk latent_j)))      compressed row_j = Q4k(rotate_{jr}(latent_j))
//
// A pair is pooled when its second token arrives; the first waits in a ring of the sequence, whatever the chunking.
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

// Number of the ratio-2 source among ratio-2 sources.
int64_t pair_group_of(const KvLayout& layout, int64_t group) {
  return std::count_if(layout.groups.begin(), layout.groups.begin() + group,
                       [](const BlockGroup& before) { return before.ratio == 2; });
}

// The phase of ws.latents, before their norm.
Phase make_latents(ForwardPass& pass, const LayerPlan& plan, Block block, Phase x, int64_t count) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), dim = pass.config.head_dim;
  const InputRows operand = pass.x_paired(rows);
  const MatrixRef wkv = {block, MatrixName::kCompressorWkv}, wgate = {block, MatrixName::kCompressorWgate};
  if (plan.ratio != 2) return pass.add(Products{{Product{wkv, operand, {}, ws.latents.at(), dim}}, 1}, {x});
  const Phase projected = pass.add(Products{{Product{wkv, operand, ws.pair_values.at(), {}, dim},
                                             Product{wgate, operand, ws.pair_gates.at(), {}, dim}},
                                            2},
                                   {x});
  pass.observe("compressor_value", block, ws.pair_values.data(), rows * dim);
  pass.observe("compressor_gate", block, ws.pair_gates.data(), rows * dim);
  return pass.add(PoolPairs{pair_group_of(pass.layout, *plan.kv_source), rows, count, ws.pair_values.at(),
                            ws.pair_gates.at(), ws.latents.at()},
                  {projected});
}

}  // namespace

Phase compress(ForwardPass& pass, const LayerPlan& plan, Block block, Phase x) {
  Workspace& ws = pass.ws;
  const int64_t dim = pass.config.head_dim, index_dim = pass.config.index_head_dim;
  const int64_t count = std::count_if(pass.rows.begin(), pass.rows.end(),
                                      [&](const Row& row) { return finishes_latent(row, plan.ratio); });
  pass.add(ListLatents{plan.ratio}, {});
  const Phase latents = make_latents(pass, plan, block, x, count);
  if (count == 0) return latents;
  const Phase normed = pass.add(NormRows{{block, NormName::kLatent},
                                         count,
                                         dim,
                                         ws.latents.at(),
                                         ws.latents.at(),
                                         {.paired = ws.latents_paired.at(), .quantized = {}, .int8 = {}}},
                                {latents});
  const InputRows operand = {ws.latents_paired.at(), {}, count, dim};
  const Phase keys = pass.add(
      Products{{Product{{block, MatrixName::kIndexWk}, operand, {}, ws.index_keys.at(), index_dim}}, 1}, {normed});
  const Phase packed =
      pass.add(PackLatents{block, *plan.kv_source, plan.ratio, count, ws.latents.at(), ws.index_keys.at()}, {keys});
  pass.observe("compressed_row", block, ws.latents.data(), count * dim);
  pass.observe("index_key", block, ws.index_keys.data(), count * index_dim);
  return packed;
}

}  // namespace deepinfer
