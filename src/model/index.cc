// Which compressed rows a query reads (docs/spec/model.md 5):
//
//   q = Q4i(rotate(wq_b qr))   w = weights_proj x * (dim heads)^(-1/2)   score_j = sum_h w_h max(0, q_h . k_j), j <
//   V(p) top(p) = the min(index_topk, V) best rows, ascending.   V(p) = floor((p + 1) / r)
//
// The candidate source also keeps its best blocks; later index sources choose inside them only.
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

// The lists of all rows, each padded to `width` with -1.
void observe_lists(ForwardPass& pass, std::string_view name, int64_t layer, const int32_t* lists, const int32_t* counts,
                   int64_t width) {
  std::vector<int64_t> padded(static_cast<size_t>(pass.num_rows() * width), -1);
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    std::copy_n(lists + i * width, counts[i], padded.begin() + i * width);
  }
  pass.observer->indices(name, layer, padded);
}

}  // namespace

Product head_weights_product(const ForwardPass& pass, Block block) {
  return {{block, MatrixName::kIndexWeightsProj},
          pass.x_paired(pass.num_rows()),
          {},
          pass.ws.head_weights_bf16.at(),
          pass.config.index_n_heads};
}

Phase select_rows(ForwardPass& pass, const LayerPlan& plan, Block block, const InputPhases& input, Phase compressed) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), width = pass.config.index_n_heads * pass.config.index_head_dim;
  const Phase projected = pass.add(
      Products{{Product{{block, MatrixName::kIndexWqB}, query_operand(pass), {}, ws.index_query_bf16.at(), width}}, 1},
      {input.query});
  const Phase query = pass.add(
      IndexQuery{rows, ws.index_query_bf16.at(), ws.head_weights_bf16.at(), ws.index_query.at(), ws.head_weights.at()},
      {projected, input.values});
  pass.observe("index_query", block, ws.index_query.data(), rows * width);
  pass.observe("index_weights", block, ws.head_weights.data(), rows * pass.config.index_n_heads);
  const Phase chosen = pass.add(SelectRows{.group = *plan.kv_source,
                                           .ratio = plan.ratio,
                                           .rows = rows,
                                           .picks_candidates = plan.picks_candidates,
                                           .uses_candidates = plan.uses_candidates,
                                           .wants_margin = pass.is_wanted("candidate_margin"),
                                           .query = ws.index_query.at(),
                                           .weights = ws.head_weights.at()},
                                {query, compressed});
  if (!pass.is_wanted("topk")) return chosen;
  pass.run();
  observe_lists(pass, "topk", block, ws.topk.data(), ws.topk_count.data(), pass.config.index_topk);
  if (plan.picks_candidates) {
    observe_lists(pass, "candidates", block, ws.candidates.data(), ws.candidate_count.data(),
                  pass.config.candidate_topk_blocks);
    pass.observe("candidate_margin", block, ws.candidate_margin.data(), rows);
  }
  return chosen;
}

}  // namespace deepinfer
