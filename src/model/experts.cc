// Mixture of experts (model-v41 7):
//
//   chosen = the k largest of sqrt(softplus(gate x)) + bias;   weight_e = s_e / (sum s + 1e-20) * scaling
//   a_e = bf(weight_e * silu(min(g, limit)) * clamp(u, +-limit)),  g = w1 x, u = w3 x (bf16);   y_e = w2 a_e (bf16)
//   y = bf(0 + y_e ... ascending by expert + shared)
#include <algorithm>

#include "model/forward_pass.h"
#include "model/select.h"

namespace deepinfer {
namespace {

void route(ForwardPass& pass, const MoeWeights& weights) {
  Workspace& ws = pass.ws;
  const int64_t experts = weights.gate.view().rows, k = weights.experts_per_token;
  pass.ops.linear(pass.kernel, weights.gate.view(), pass.pair(ws.x.data(), pass.num_rows(), pass.config.hidden_size),
                  {.f32 = ws.router_logits.data(), .stride = experts});
  const int64_t threads = pass.kernel.pool->num_threads();
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
      ws.token_slots[token * k + ws.token_slot_count[token]++] = static_cast<int32_t>(slot);
      ++slot;
    }
    if (slot > first) run(weights.experts[expert], first, slot - first);
  }
}

// y = bf(sum of the token's slots, ascending by expert, then its shared slot).
void combine(ForwardPass& pass, int64_t k) {
  Workspace& ws = pass.ws;
  const int64_t hidden = pass.config.hidden_size, shared = pass.num_rows() * k;
  pass.kernel.pool->parallel_for(pass.num_rows(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t d = 0; d < hidden; ++d) {
        float sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += to_float(ws.expert_out[ws.token_slots[token * k + i] * hidden + d]);
        sum += to_float(ws.expert_out[(shared + token) * hidden + d]);
        ws.y[token * hidden + d] = to_bf16(sum);
      }
    }
  });
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
  route(pass, weights);
  observe_route(pass, k, layer);

  ActivationRows x = pass.quantize(ws.x.data(), rows, hidden);
  const auto up_project = [&](const ExpertWeights& expert, int64_t slot, const ActivationRows& input) {
    pass.ops.linear(pass.kernel, expert.w1.view(), input, {.bf16 = ws.gate.data() + slot * inner, .stride = inner});
    pass.ops.linear(pass.kernel, expert.w3.view(), input, {.bf16 = ws.up.data() + slot * inner, .stride = inner});
  };
  up_project(weights.shared, shared, x);
  for_each_expert(pass, weights, [&](const ExpertWeights& expert, int64_t slot, int64_t count) {
    x.row_index = ws.slot_tokens.data() + slot;
    x.count = count;
    up_project(expert, slot, x);
  });

  const auto limit = static_cast<float>(pass.config.swiglu_limit);
  pass.ops.swiglu(pass.kernel, ws.gate.data(), ws.up.data(), ws.slot_weights.data(), shared, inner, limit,
                  ws.activated.data());
  pass.ops.swiglu(pass.kernel, ws.gate.data() + shared * inner, ws.up.data() + shared * inner, nullptr, rows, inner,
                  limit, ws.activated.data() + shared * inner);

  const ActivationRows activated = pass.quantize(ws.activated.data(), shared + rows, inner);
  const auto down_project = [&](const ExpertWeights& expert, int64_t slot, int64_t count) {
    ActivationRows input = activated;
    input.values += slot * input.stride;
    input.count = count;
    pass.ops.linear(pass.kernel, expert.w2.view(), input, {.bf16 = ws.expert_out.data() + slot * hidden, .stride = hidden});
  };
  for_each_expert(pass, weights, down_project);
  down_project(weights.shared, shared, rows);
  combine(pass, k);
}

}  // namespace deepinfer
