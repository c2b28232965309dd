// Experts on processors: the products of all chosen experts are one list, cut by cost; each share makes its columns of
// what the experts hand on.
#include <algorithm>

#include "model/cpu_backend.h"
#include "model/select.h"

namespace deepinfer {

Region::Phase CpuBackend::cut(const Route& op, const Needs& needs) {
  const int64_t experts = std::ssize(block(op.block).moe.experts);
  return add_rows(op.rows, 64 * experts, needs, [this, &op](int64_t begin, int64_t end, int thread) {
    const MoeWeights& moe = block(op.block).moe;
    const int64_t experts = moe.gate.view().rows, k = moe.experts_per_token;
    const std::span scores(ws().router_scores.data() + thread * experts, static_cast<size_t>(experts));
    for (int64_t row = begin; row < end; ++row) {
      route_experts({at(op.logits) + row * experts, static_cast<size_t>(experts)}, moe.bias,
                    static_cast<float>(config().routed_scaling_factor), scores,
                    {at(op.ids) + row * k, static_cast<size_t>(k)}, {at(op.weights) + row * k, static_cast<size_t>(k)});
    }
  });
}

// The products of an expert on the slots from `slot` on: gate and up of the slots' tokens, down of the slots.
void CpuBackend::set_expert_tasks(int64_t i, const ExpertWeights& expert, int64_t slot, const ActivationRows& x) const {
  const ExpertTasks& tasks = expert_tasks_;
  const int64_t inner = config().moe_intermediate_size, hidden = config().hidden_size;
  ActivationRows activated = {
      .values = ws().activated_quantized.data() + slot * inner, .count = x.count, .stride = inner};
  if (parts_.numerics == Numerics::kFast) activated.int8 = ws().activated_int8.data() + slot * inner / kSumBlock;
  tasks.gate[i] = {expert.w1.view(), x, {.bf16 = ws().gate.data() + slot * inner, .stride = inner}};
  tasks.up[i] = {expert.w3.view(), x, {.bf16 = ws().up.data() + slot * inner, .stride = inner}};
  tasks.down[i] = {expert.w2.view(), activated, {.bf16 = ws().expert_out.data() + slot * hidden, .stride = hidden}};
}

// Lays the slots out and sets the tasks of every expert that has some, ascending; returns how many have.
int64_t CpuBackend::lay_out_experts(const ExpertWork& work) const {
  const MoeWeights& moe = block(work.block).moe;
  const int64_t k = work.experts_per_token;
  int64_t slot = 0, chosen = 0;
  std::fill_n(ws().token_slot_count.data(), work.rows, 0);
  for (int32_t expert = 0; expert < std::ssize(moe.experts); ++expert) {
    const int64_t first = slot;
    for (int64_t token = 0; token < work.rows; ++token) {
      const int32_t* ids = at(work.ids) + token * k;
      const int32_t* found = std::find(ids, ids + k, expert);
      if (found == ids + k) continue;
      ws().slot_tokens[slot] = static_cast<int32_t>(token);
      ws().slot_weights[slot] = at(work.weights)[found - at(work.ids)];
      ws().token_slots[token * (k + 1) + ws().token_slot_count[token]++] = static_cast<int32_t>(slot);
      ++slot;
    }
    if (slot == first) continue;
    ActivationRows x = input(work.x);
    x.count = slot - first;
    x.row_index = ws().slot_tokens.data() + first;
    set_expert_tasks(chosen++, moe.experts[expert], first, x);
  }
  for (int64_t token = 0; token < work.rows; ++token) {
    ws().token_slots[token * (k + 1) + k] = static_cast<int32_t>(slot + token);
  }
  return chosen;
}

// The shared expert's tasks stand behind those of the chosen ones.
Region::Phase CpuBackend::cut(const DispatchExperts& op, const Needs& needs) {
  const ExpertWork& work = op.work;
  const MoeWeights& moe = block(work.block).moe;
  const int64_t slots = work.rows * work.experts_per_token;
  experts_per_token_ = work.experts_per_token;
  most_chosen_ = std::min<int64_t>(std::ssize(moe.experts), slots);
  expert_tasks_ = {new_tasks(most_chosen_ + 1), new_tasks(most_chosen_ + 1), new_tasks(most_chosen_ + 1)};
  set_expert_tasks(most_chosen_, moe.shared, slots, input(work.x));
  return add(1, needs, [this, &work](const Share&) { num_chosen_ = lay_out_experts(work); });
}

// The share's columns of what the experts hand on: gate, up, SwiGLU, operand.
void CpuBackend::run_expert_up(const ExpertTasks& tasks, int64_t num_routed_slots, const Share& share) const {
  const int64_t inner = config().moe_intermediate_size;
  const auto limit = static_cast<float>(config().swiglu_limit);
  Workspace& ws = this->ws();
  for_each_linear_part(tasks.gate, share, [&](int64_t i, int64_t first, int64_t end) {
    ops().linear_groups(tasks.gate[i], first, end);
    ops().linear_groups(tasks.up[i], first, end);
    const int64_t column = first * kRowGroup, columns = std::min(end * kRowGroup, inner) - column;
    const int64_t first_slot = (tasks.gate[i].y.bf16 - ws.gate.data()) / inner;
    for (int64_t slot = first_slot; slot < first_slot + tasks.gate[i].x.count; ++slot) {
      const int64_t place = slot * inner + column;
      const float* weight = slot < num_routed_slots ? &ws.slot_weights[slot] : nullptr;
      ops().swiglu(ws.gate.data() + place, ws.up.data() + place, weight, 1, columns, limit,
                   ws.activated.data() + place);
      ops().quantize_rows(ws.activated.data() + place, 1, columns, ws.activated_quantized.data() + place);
      if (parts_.numerics == Numerics::kExact) continue;
      ops().encode_int8(ws.activated_quantized.data() + place, 1, columns,
                        ws.activated_int8.data() + place / kSumBlock);
    }
  });
}

Region::Phase CpuBackend::cut(const ExpertUp& op, const Needs& needs) {
  const int64_t slots = op.rows * experts_per_token_, shared_cost = 2 * linear_cost(expert_tasks_.shared().gate);
  if (op.shared) {
    return add(product_shares(shared_cost), needs,
               [this, slots](const Share& share) { run_expert_up(expert_tasks_.shared(), slots, share); });
  }
  return add(product_shares(shared_cost * most_chosen_), needs,
             [this, slots](const Share& share) { run_expert_up(expert_tasks_.first(num_chosen_), slots, share); });
}

// Each share makes its columns of all experts, and so of their sum.
Region::Phase CpuBackend::cut(const ExpertDown& op, const Needs& needs) {
  const int shares = column_shares(linear_cost(expert_tasks_.shared().down) * (most_chosen_ + 1));
  return add(shares, needs, [this, &op](const Share& share) {
    const int64_t hidden = config().hidden_size;
    const Columns columns = columns_of(share, hidden);
    if (columns.first == columns.end) return;
    for (const LinearTask& task : expert_tasks_.first(num_chosen_).down) run_linear_columns(ops(), task, columns);
    run_linear_columns(ops(), expert_tasks_.shared().down[0], columns);
    ops().sum_rows(ws().expert_out.data(), ws().token_slots.data(), experts_per_token_ + 1, op.rows, hidden, columns,
                   at(streams_.y));
    leave_sublayer(op.leave, op.rows, columns);
  });
}

}  // namespace deepinfer
