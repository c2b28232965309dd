// Attention of one layer (docs/spec/model.md 2.1, 4):
//
//   qr = RMS(wq_a x)   q = rotate(wq_b qr)   u = Q8(rotate(RMS(wkv x)))              u: the window row of a position
//   list(p) = window rows max(0, p - W + 1) .. p, then the selected compressed rows, ascending
//   o = softmax with sink over the list, rotated back at p;   y = wo_b(per group: wo_a o)
#include "model/forward_pass.h"

namespace deepinfer {

Product window_row_product(const ForwardPass& pass, Block block) {
  return {{block, MatrixName::kWkv}, pass.x_quantized(pass.num_rows()), {}, pass.ws.kv.at(), pass.config.head_dim};
}

Phase make_window_rows(ForwardPass& pass, Block block, Phase values) {
  return pass.add(WindowRows{block, pass.num_rows(), pass.ws.kv.at(), pass.ws.window_rows.at()}, {values});
}

void observe_window_rows(ForwardPass& pass, int64_t window_layer) {
  pass.observe("window_row", window_layer, pass.ws.kv.data(), pass.num_rows() * pass.config.head_dim);
}

InputRows query_operand(const ForwardPass& pass) {
  return {pass.ws.qr_quantized.at(), {}, pass.num_rows(), pass.config.q_lora_rank};
}

InputPhases project_input(ForwardPass& pass, Block block, Phase x, const Product* beside) {
  const int64_t rows = pass.num_rows(), rank = pass.config.q_lora_rank;
  const Ref<Bf16> qr = pass.ws.qr.at();
  const Phase compressed =
      pass.add(Products{{Product{{block, MatrixName::kWqA}, pass.x_quantized(rows), {}, qr, rank}}, 1}, {x});
  Products values{{window_row_product(pass, block)}, 1};
  if (beside != nullptr) values.list[values.count++] = *beside;
  InputPhases made;
  made.values = pass.add(values, {x});
  made.query = pass.add(NormRows{{block, NormName::kQuery},
                                 rows,
                                 rank,
                                 qr,
                                 qr,
                                 {.paired = {}, .quantized = pass.ws.qr_quantized.at(), .int8 = {}}},
                        {compressed});
  made.window_rows = make_window_rows(pass, block, made.values);
  return made;
}

Left attend_and_project(ForwardPass& pass, Block block, const InputPhases& input, Phase lists, Phase compressed) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), width = config.num_attention_heads * config.head_dim;
  const int64_t grouped_width = config.o_groups * config.o_lora_rank;
  const Phase query = pass.add(
      Products{{Product{{block, MatrixName::kWqB}, query_operand(pass), {}, ws.q.at(), width}}, 1}, {input.query});
  const Phase attended = pass.add(Attend{block, rows, ws.q.at(), ws.o.at(), ws.o_paired.at()},
                                  {Region::same_share(query), input.window_rows, lists, compressed});
  const Phase grouped = pass.add(GroupedOutput{block, rows, ws.o_paired.at(), ws.z.at(), ws.z_quantized.at()},
                                 {Region::same_share(attended)});
  const HcRef next = {block, Sublayer::kFfn};
  const InputRows z = {ws.z_quantized.at(), {}, rows, grouped_width};
  return {pass.add(AttentionOutput{block, pass.leave(&next), z}, {grouped}), true};
}

Left attention(ForwardPass& pass, const LayerPlan& plan, Block block, Phase x, Phase compressed) {
  const Half half = block < pass.config.first_decoder_layer() ? Half::kEncoder : Half::kDecoder;
  pass.add(SetAngles{plan.rope}, {});
  pass.add(ListWindow{block, half}, {});
  if (plan.owns_index) {
    const Product head_weights = head_weights_product(pass, block);
    const InputPhases input = project_input(pass, block, x, &head_weights);
    observe_window_rows(pass, block);
    const Phase lists = select_rows(pass, plan, block, input, compressed);
    return attend_and_project(pass, block, input, lists, compressed);
  }
  if (plan.ratio > 0) pass.add(ListCompressed{*plan.kv_source}, {});
  const InputPhases input = project_input(pass, block, x, nullptr);
  observe_window_rows(pass, block);
  return attend_and_project(pass, block, input, Program::kNone, compressed);
}

}  // namespace deepinfer
