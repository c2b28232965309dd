// Mixture of experts (model-v41 7):
//
//   chosen = the k largest of sqrt(softplus(gate x)) + bias;   weight_e = s_e / (sum s + 1e-20) * scaling
//   a_e = bf(weight_e * silu(min(g, limit)) * clamp(u, +-limit)),  g = w1 x, u = w3 x (bf16);   y_e = w2 a_e
//   (bf16) y = bf(0 + y_e ... ascending by expert + shared)
//
// In the fast mode the FP4 products take x and a_e in INT8.
#include <algorithm>
#include <utility>

#include "model/forward_pass.h"
#include "model/select.h"

namespace deepinfer {
namespace {

void route(ForwardPass& pass, const MoeWeights& weights) {
  Workspace& ws = pass.ws;
  const int64_t experts = weights.gate.view().rows, k = weights.experts_per_token;
  // A few rows are routed in less time than the others take to come.
  const int64_t threads = pass.num_rows() < 4 ? 1 : pass.kernel.pool->num_threads();
  pass.kernel.pool->parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const std::span scores(ws.router_scores.data() + thread * experts, static_cast<size_t>(experts));
      for (int64_t row = thread; row < pass.num_rows(); row += threads) {
        route_experts({ws.router_logits.data() + row * experts, static_cast<size_t>(experts)}, weights.bias,
                      static_cast<float>(pass.config.routed_scaling_factor), scores,
                      {ws.expert_ids.data() + row * k, static_cast<size_t>(k)},
                      {ws.expert_weights.data() + row * k, static_cast<size_t>(k)});
      }
    }
  });
}

// Lays the slots out; calls run(expert, first_slot, num_slots) for every expert that has some, ascending.
template <typename Run>
void for_each_expert(ForwardPass& pass, const MoeWeights& weights, Run&& run) {
  Workspace& ws = pass.ws;
  const int64_t k = weights.experts_per_token;
  int64_t slot = 0;
  std::fill_n(ws.token_slot_count.data(), pass.num_rows(), 0);
  for (int32_t expert = 0; expert < std::ssize(weights.experts); ++expert) {
    const int64_t first = slot;
    for (int64_t token = 0; token < pass.num_rows(); ++token) {
      const int32_t* ids = ws.expert_ids.data() + token * k;
      const int32_t* found = std::find(ids, ids + k, expert);
      if (found == ids + k) continue;
      ws.slot_tokens[slot] = static_cast<int32_t>(token);
      ws.slot_weights[slot] = ws.expert_weights[found - ws.expert_ids.data()];
      ws.token_slots[token * (k + 1) + ws.token_slot_count[token]++] = static_cast<int32_t>(slot);
      ++slot;
    }
    if (slot > first) run(weights.experts[expert], first, slot - first);
  }
  for (int64_t token = 0; token < pass.num_rows(); ++token) {
    ws.token_slots[token * (k + 1) + k] = static_cast<int32_t>(slot + token);
  }
}

void observe_route(ForwardPass& pass, int64_t k, int64_t layer) {
  if (pass.observer == nullptr) return;
  const std::vector<int64_t> ids(pass.ws.expert_ids.data(), pass.ws.expert_ids.data() + pass.num_rows() * k);
  pass.observer->indices("route_idx", layer, ids);
  pass.observe("route_w", layer, pass.ws.expert_weights.data(), pass.num_rows() * k);
}

}  // namespace

void experts(ForwardPass& pass, const MoeWeights& weights, int64_t layer) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), k = weights.experts_per_token;
  const int64_t inner = pass.config.moe_intermediate_size, hidden = pass.config.hidden_size, shared = rows * k;

  // The router decides what the second list is; the shared expert waits for nobody.
  ActivationRows x = pass.quantize(ws.x.data(), rows, hidden);
  pass.encode_int8(x);
  size_t count = 0;
  const auto add = [&](const Matrix& matrix, const ActivationRows& input, const OutputRows& output) {
    ws.tasks[static_cast<int64_t>(count++)] = {matrix.view(), input, output};
  };
  const auto run = [&] { pass.ops.linear_list(pass.kernel, {ws.tasks.data(), std::exchange(count, 0)}); };
  const auto add_up = [&](const ExpertWeights& expert, int64_t slot, const ActivationRows& input) {
    add(expert.w1, input, {.bf16 = ws.gate.data() + slot * inner, .stride = inner});
    add(expert.w3, input, {.bf16 = ws.up.data() + slot * inner, .stride = inner});
  };
  add(weights.gate, pass.pair(ws.x.data(), rows, hidden),
      {.f32 = ws.router_logits.data(), .stride = weights.gate.view().rows});
  add_up(weights.shared, shared, x);
  run();
  route(pass, weights);
  observe_route(pass, k, layer);
  for_each_expert(pass, weights, [&](const ExpertWeights& expert, int64_t slot, int64_t slots) {
    x.row_index = ws.slot_tokens.data() + slot;
    x.count = slots;
    add_up(expert, slot, x);
  });
  run();

  const auto limit = static_cast<float>(pass.config.swiglu_limit);
  pass.ops.swiglu(pass.kernel, ws.gate.data(), ws.up.data(), ws.slot_weights.data(), shared, inner, limit,
                  ws.activated.data());
  pass.ops.swiglu(pass.kernel, ws.gate.data() + shared * inner, ws.up.data() + shared * inner, nullptr, rows, inner,
                  limit, ws.activated.data() + shared * inner);

  ActivationRows activated = pass.quantize(ws.activated.data(), shared + rows, inner);
  pass.encode_int8(activated);
  const auto add_down = [&](const ExpertWeights& expert, int64_t slot, int64_t slots) {
    const ActivationRows input = activated.rows_from(slot, slots);
    add(expert.w2, input, {.bf16 = ws.expert_out.data() + slot * hidden, .stride = hidden});
  };
  for_each_expert(pass, weights, add_down);
  add_down(weights.shared, shared, rows);
  run();
  // y = bf(sum of the token's slots, ascending by expert, then its shared slot).
  pass.ops.sum_rows(pass.kernel, ws.expert_out.data(), ws.token_slots.data(), k + 1, rows, hidden, ws.y.data());
}

}  // namespace deepinfer
