// What the parts of the forward pass share (private to the model room). Each part is one file that begins with its
// formula: hyper_connections.cc, attention.cc, index.cc, compressor.cc, engram.cc, experts.cc, dspark.cc.
//
// A layer is one program (program.h): its parts add ops and say what each waits for, and run() runs them all. Nothing
// is computed before. Ops that fill waits stand between those that wait for each other: the window row between the two
// query projections, the shared expert behind the router, the query behind the choice of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "model/cpu_backend.h"
#include "model/expert_backend.h"
#include "model/kv_arena.h"
#include "model/layer_plan.h"
#include "model/model.h"
#include "model/program.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace deepinfer {

using Phase = Program::Phase;

// How the streams are left by the sublayer before.
struct Left {
  Phase phase = Program::kNone;  // after it h is that of the sublayer before
  bool begun = false;            // and the mix of the next one has begun
};

// Borrowed parts of a Model for the length of one call.
struct ForwardPass {
  const ModelConfig& config;
  const KvLayout& layout;
  Workspace& ws;
  CpuBackend& backend;
  ExpertBackend& experts;
  ForwardObserver* observer;  // null on the decode path
  std::span<const Row> rows;
  Program& program;

  int64_t num_rows() const { return std::ssize(rows); }
  template <typename AnOp>
  Phase add(const AnOp& op, std::initializer_list<Program::Need> needs) {
    return program.add(op, needs);
  }
  void run() {
    if (is_wanted("ops") && !program.entries().empty()) tell_ops();
    backend.run(program, rows);
    program.clear();
  }
  void tell_ops() const {
    std::vector<std::string_view> names;
    for (const Program::Entry& entry : program.entries()) names.push_back(op_name(entry.op));
    observer->ops(names);
  }

  // ---- operands

  const OperandRefs& x_operands() const { return program.streams.operands; }
  InputRows x_quantized(int64_t count) const {
    return {ws.x_quantized.at(), ws.x_int8.at(), count, config.hidden_size};
  }
  InputRows x_paired(int64_t count) const { return {ws.x_paired.at(), {}, count, config.hidden_size}; }
  static LeaveSublayer leave(const HcRef* next) { return {next != nullptr, next != nullptr ? *next : HcRef{}}; }

  // ---- observers see numbers where they are made: the program runs up to there first

  bool is_wanted(std::string_view name) const { return observer != nullptr && observer->wants(name); }
  bool is_replaced() const { return observer != nullptr && observer->replaces(); }
  template <typename T>
  void observe(std::string_view name, int64_t layer, T* values, int64_t count) {
    if (!is_wanted(name)) return;
    run();
    observer->values(name, layer, std::span<const T>(values, static_cast<size_t>(count)));
  }
};

// The parts of a block (backbone layer or DSpark stage), over all rows: h and pre in the workspace are updated in
// place. Each adds ops, takes the phases that its input waits for (Program::kNone: for none) and returns that of its
// output.

// x and its operands: mix, fold, norm.
Phase enter_sublayer(ForwardPass& pass, const HcRef& hc, const Left& left);

// x -> compressed rows and index keys. Of every row, in the first decoder layer too.
Phase compress(ForwardPass& pass, const LayerPlan& plan, Block block, Phase x);

// x -> y -> h. `compressed`: of the compressor, where the layer owns KV.
Left attention(ForwardPass& pass, const LayerPlan& plan, Block block, Phase x, Phase compressed);
// Its steps, for DSpark and the index: what a row of x becomes first, with another product beside it perhaps (null),
struct InputPhases {
  Phase query = Program::kNone;        // query_operand()
  Phase values = Program::kNone;       // the window row's values, and the product beside
  Phase window_rows = Program::kNone;  // ws.window_rows
};
InputPhases project_input(ForwardPass& pass, Block block, Phase x, const Product* beside);
Phase make_window_rows(ForwardPass& pass, Block block, Phase values);  // ws.kv -> ws.window_rows
Product window_row_product(const ForwardPass& pass, Block block);      // x_quantized() -> ws.kv
InputRows query_operand(const ForwardPass& pass);
void observe_window_rows(ForwardPass& pass, int64_t window_layer);
// then from the lists on: y and h.
Left attend_and_project(ForwardPass& pass, Block block, const InputPhases& input, Phase lists, Phase compressed);

// The list of every row. The product of head_weights_product() is among input.values.
Phase select_rows(ForwardPass& pass, const LayerPlan& plan, Block block, const InputPhases& input, Phase compressed);
Product head_weights_product(const ForwardPass& pass, Block block);

// x -> y -> h. `next`: the mix to begin at once, or null.
Left experts(ForwardPass& pass, Block block, Phase x, const HcRef* next);

// ws.ids -> h and pre.
void embed(ForwardPass& pass);

// x -> ws.logits: norm and head.
Phase head(ForwardPass& pass, const NormRef& norm, int64_t rows, Ref<Bf16> x, Phase made);

// In programs of their own:
void engram(ForwardPass& pass, int64_t engram_index, Block block);

// DSpark's side of the backbone: mean of the streams of a target layer, and the stages' window rows of this call.
void capture_target(ForwardPass& pass, int64_t target);
void write_dspark_rows(ForwardPass& pass);

// Keeps the rows that run the decoder half, in the first decoder layer between compressor and attention.
void drop_encoder_rows(ForwardPass& pass, std::vector<Row>& kept);

}  // namespace deepinfer
