// Mixture of experts (docs/spec/model.md 7):
//
//   chosen = the k largest of sqrt(softplus(gate x)) + bias;   weight_e = s_e / (sum s + 1e-20) * scaling
//   a_e = bf(weight_e * silu(min(g, limit)) * clamp(u, +-limit)),  g = w1 x, u = w3 x (bf16);   y_e = w2 a_e
//   (bf16) y = bf(0 + y_e ... ascending by expert + shared)
//
// In the fast mode the FP4 products take x and a_e in INT8. The shared expert waits for nobody: while one thread chooses,
// the others work on it.
#include "model/expert_backend.h"
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

void observe_route(ForwardPass& pass, int64_t k, int64_t layer) {
  if (!pass.is_wanted("route_idx") && !pass.is_wanted("route_w")) return;
  pass.run();
  const std::vector<int64_t> ids(pass.ws.expert_ids.data(), pass.ws.expert_ids.data() + pass.num_rows() * k);
  pass.observer->indices("route_idx", layer, ids);
  pass.observe("route_w", layer, pass.ws.expert_weights.data(), pass.num_rows() * k);
}

}  // namespace

Program::Phase LocalExperts::run(ForwardPass& pass, const ExpertWork& work, Phase x, Phase routed,
                                 const LeaveSublayer& leave) {
  const Phase dispatched = pass.add(DispatchExperts{work}, {routed});
  const Phase shared = pass.add(ExpertUp{work.block, true, work.rows}, {x});
  const Phase up = pass.add(ExpertUp{work.block, false, work.rows}, {dispatched});
  return pass.add(ExpertDown{work.block, leave, work.rows}, {up, shared});
}

Left experts(ForwardPass& pass, Block block, Phase x, const HcRef* next) {
  Workspace& ws = pass.ws;
  const bool draft_stage = block >= pass.config.num_hidden_layers;
  const int64_t rows = pass.num_rows();
  const int64_t k = draft_stage ? pass.config.dspark_num_experts_per_tok : pass.config.num_experts_per_tok;
  const int64_t count = draft_stage ? pass.config.dspark_n_routed_experts : pass.config.n_routed_experts;
  const Phase router = pass.add(
      Products{{Product{{block, MatrixName::kRouter}, pass.x_paired(rows), ws.router_logits.at(), {}, count}}, 1}, {x});
  const Phase routed =
      pass.add(Route{block, rows, ws.router_logits.at(), ws.expert_ids.at(), ws.expert_weights.at()}, {router});
  observe_route(pass, k, block);
  const ExpertWork work = {block, rows, k, pass.x_quantized(rows), ws.expert_ids.at(), ws.expert_weights.at()};
  return {pass.experts.run(pass, work, x, routed, pass.leave(next)), next != nullptr};
}

}  // namespace deepinfer
