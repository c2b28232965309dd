// Mixture of experts (docs/spec/model.md 7):
//
//   chosen = the k largest of sqrt(softplus(gate x)) + bias;   weight_e = s_e / (sum s + 1e-20) * scaling
//   a_e = bf(weight_e * silu(min(g, limit)) * clamp(u, +-limit)),  g = w1 x, u = w3 x (bf16);   y_e = w2 a_e
//   (bf16) y = bf(0 + y_e ... ascending by expert + shared)
//
// In the fast mode the FP4 products take x and a_e in INT8. The shared expert waits for nobody: while one thread chooses,
// the others work on it.
#include <algorithm>

#include "model/forward_pass.h"
#include "model/select.h"

namespace deepinfer {
namespace {

void route(const ForwardPass& pass, const MoeWeights& weights, int64_t begin, int64_t end, int thread) {
  Workspace& ws = pass.ws;
  const int64_t experts = weights.gate.view().rows, k = weights.experts_per_token;
  const std::span scores(ws.router_scores.data() + thread * experts, static_cast<size_t>(experts));
  for (int64_t row = begin; row < end; ++row) {
    route_experts({ws.router_logits.data() + row * experts, static_cast<size_t>(experts)}, weights.bias,
                  static_cast<float>(pass.config.routed_scaling_factor), scores,
                  {ws.expert_ids.data() + row * k, static_cast<size_t>(k)},
                  {ws.expert_weights.data() + row * k, static_cast<size_t>(k)});
  }
}

// The products of an expert: gate and up of its slots' tokens, down of its slots.
struct ExpertTasks {
  std::span<LinearTask> gate, up, down;
  ExpertTasks first(int64_t count) const {
    const auto size = static_cast<size_t>(count);
    return {gate.first(size), up.first(size), down.first(size)};
  }
};

void set_tasks(const ForwardPass& pass, const ExpertTasks& tasks, int64_t i, const ExpertWeights& expert, int64_t slot,
               const ActivationRows& x) {
  Workspace& ws = pass.ws;
  const int64_t inner = pass.config.moe_intermediate_size, hidden = pass.config.hidden_size;
  ActivationRows activated = {.values = ws.activated_quantized.data() + slot * inner, .count = x.count, .stride = inner};
  if (pass.numerics == Numerics::kFast) activated.int8 = ws.activated_int8.data() + slot * inner / kSumBlock;
  tasks.gate[i] = {expert.w1.view(), x, {.bf16 = ws.gate.data() + slot * inner, .stride = inner}};
  tasks.up[i] = {expert.w3.view(), x, {.bf16 = ws.up.data() + slot * inner, .stride = inner}};
  tasks.down[i] = {expert.w2.view(), activated, {.bf16 = ws.expert_out.data() + slot * hidden, .stride = hidden}};
}

// Lays the slots out and sets the tasks of every expert that has some, ascending; returns how many have.
int64_t lay_out(const ForwardPass& pass, const MoeWeights& weights, const ExpertTasks& tasks) {
  Workspace& ws = pass.ws;
  const int64_t k = weights.experts_per_token;
  int64_t slot = 0, chosen = 0;
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
    if (slot == first) continue;
    ActivationRows x = pass.x_quantized(slot - first);
    x.row_index = ws.slot_tokens.data() + first;
    set_tasks(pass, tasks, chosen++, weights.experts[expert], first, x);
  }
  for (int64_t token = 0; token < pass.num_rows(); ++token) {
    ws.token_slots[token * (k + 1) + k] = static_cast<int32_t>(slot + token);
  }
  return chosen;
}

// The share's columns of what the experts hand on: gate, up, SwiGLU, operand.
void run_up(const ForwardPass& pass, const ExpertTasks& tasks, int64_t num_routed_slots, const Share& share) {
  Workspace& ws = pass.ws;
  const int64_t inner = pass.config.moe_intermediate_size;
  const auto limit = static_cast<float>(pass.config.swiglu_limit);
  for_each_linear_part(tasks.gate, share, [&](int64_t i, int64_t first, int64_t end) {
    pass.ops.linear_groups(tasks.gate[i], first, end);
    pass.ops.linear_groups(tasks.up[i], first, end);
    const int64_t column = first * kRowGroup, columns = std::min(end * kRowGroup, inner) - column;
    const int64_t first_slot = (tasks.gate[i].y.bf16 - ws.gate.data()) / inner;
    for (int64_t slot = first_slot; slot < first_slot + tasks.gate[i].x.count; ++slot) {
      const int64_t place = slot * inner + column;
      const float* weight = slot < num_routed_slots ? &ws.slot_weights[slot] : nullptr;
      pass.ops.swiglu(ws.gate.data() + place, ws.up.data() + place, weight, 1, columns, limit, ws.activated.data() + place);
      pass.ops.quantize_rows(ws.activated.data() + place, 1, columns, ws.activated_quantized.data() + place);
      if (pass.numerics == Numerics::kExact) continue;
      pass.ops.encode_int8(ws.activated_quantized.data() + place, 1, columns, ws.activated_int8.data() + place / kSumBlock);
    }
  });
}

void observe_route(ForwardPass& pass, int64_t k, int64_t layer) {
  if (!pass.is_wanted("route_idx") && !pass.is_wanted("route_w")) return;
  pass.run_region();
  const std::vector<int64_t> ids(pass.ws.expert_ids.data(), pass.ws.expert_ids.data() + pass.num_rows() * k);
  pass.observer->indices("route_idx", layer, ids);
  pass.observe("route_w", layer, pass.ws.expert_weights.data(), pass.num_rows() * k);
}

}  // namespace

void experts(ForwardPass& pass, const MoeWeights& weights, int64_t layer, Phase x, const HcWeights* next) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), k = weights.experts_per_token, num_experts = std::ssize(weights.experts);
  const int64_t slots = rows * k, most_chosen = std::min(num_experts, slots);
  const MatrixView gate = weights.gate.view();

  const Phase router = pass.add_linear(
      {x}, {LinearTask{gate, pass.x_paired(rows), {.f32 = ws.router_logits.data(), .stride = gate.rows}}});
  const Phase routed = pass.add_rows(rows, 64 * num_experts, {router}, [&](int64_t begin, int64_t end, int thread) {
    route(pass, weights, begin, end, thread);
  });
  observe_route(pass, k, layer);

  // The shared expert's tasks stand behind those of the chosen ones.
  const auto room = [&] { return pass.new_tasks(most_chosen + 1); };
  const ExpertTasks tasks = {room(), room(), room()};
  const auto shared_of = [](const ExpertTasks& all) {
    return ExpertTasks{all.gate.last(1), all.up.last(1), all.down.last(1)};
  };
  set_tasks(pass, shared_of(tasks), 0, weights.shared, slots, pass.x_quantized(rows));

  const Phase chosen = pass.region.add(1, {routed}, [&pass, &weights, tasks](const Share&) {
    pass.ws.num_chosen = lay_out(pass, weights, tasks);
  });
  const int64_t shared_cost = 2 * linear_cost(shared_of(tasks).gate);
  const Phase shared_up = pass.region.add(pass.linear_shares(shared_cost), {x},
                                          [&pass, tasks, shared_of, slots](const Share& share) {
                                            run_up(pass, shared_of(tasks), slots, share);
                                          });
  const Phase up = pass.region.add(pass.linear_shares(shared_cost * most_chosen), {chosen},
                                   [&pass, tasks, slots](const Share& share) {
                                     run_up(pass, tasks.first(pass.ws.num_chosen), slots, share);
                                   });
  // Each share makes its columns of all experts, and so of their sum: the token's slots ascending by expert, then its
  // shared slot.
  const Phase down = pass.region.add(
      pass.column_shares(linear_cost(shared_of(tasks).down) * (most_chosen + 1)), {up, shared_up},
      [&pass, tasks, shared_of, k, next](const Share& share) {
        const int64_t hidden = pass.config.hidden_size;
        const Columns columns = columns_of(share, hidden);
        if (columns.first == columns.end) return;
        const auto run = [&](const LinearTask& task) { run_linear_columns(pass.ops, task, columns); };
        for (const LinearTask& task : tasks.first(pass.ws.num_chosen).down) run(task);
        run(shared_of(tasks).down[0]);
        pass.ops.sum_rows(pass.ws.expert_out.data(), pass.ws.token_slots.data(), k + 1, pass.num_rows(), hidden, columns,
                          pass.ws.y.data());
        hc_leave(pass, columns, next);
      });
  hc_left(pass, down, next);
}

}  // namespace deepinfer
