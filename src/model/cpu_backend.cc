#include "model/cpu_backend.h"

#include <type_traits>

namespace deepinfer {

void CpuBackend::run(const Program& program, std::span<const Row> rows) {
  rows_ = rows;
  streams_ = program.streams;
  std::array<Phase, Program::kMaxOps> phases;  // by op
  std::array<const Program::Entry*, Program::kMaxOps> last;
  size_t count = 0, num_last = 0;
  for (const Program::Entry& entry : program.entries()) {
    Needs needs = after(Region::kNone);
    size_t num_needs = 0;
    for (const Program::EntryNeed& need : entry.all_needs()) {
      if (phases[need.op] != Region::kNone) needs[num_needs++] = {phases[need.op], need.same_share};
    }
    phases[count++] = std::visit(
        [&](const auto& op) -> Phase {
          if constexpr (requires { cut(op, needs); }) {
            return cut(op, needs);
          } else if constexpr (requires { do_now(op); }) {
            do_now(op);
          } else {
            last[num_last++] = &entry;
          }
          return Region::kNone;
        },
        entry.op);
  }
  parts_.kernel.pool->run(region_);
  region_.clear();
  num_tasks_ = 0;
  for (size_t i = 0; i < num_last; ++i) {
    std::visit(
        [&](const auto& op) {
          if constexpr (requires { do_last(op); }) do_last(op);
        },
        last[i]->op);
  }
}

// ---- operands
// ---------------------------------------------------------------------------------------------------------

const BlockWeights& CpuBackend::block(Block block) const {
  const auto layers = static_cast<Block>(parts_.weights.layers.size());
  return block < layers ? parts_.weights.layers[static_cast<size_t>(block)]
                        : parts_.weights.dspark->stages[static_cast<size_t>(block - layers)];
}

MatrixView CpuBackend::matrix(const MatrixRef& ref) const {
  const ModelWeights& model = parts_.weights;
  switch (ref.name) {
    case MatrixName::kWqA:
      return block(ref.block).wq_a.view();
    case MatrixName::kWqB:
      return block(ref.block).wq_b.view();
    case MatrixName::kWkv:
      return block(ref.block).wkv.view();
    case MatrixName::kWoB:
      return block(ref.block).wo_b.view();
    case MatrixName::kRouter:
      return block(ref.block).moe.gate.view();
    case MatrixName::kCompressorWkv:
      return block(ref.block).compressor->wkv.view();
    case MatrixName::kCompressorWgate:
      return block(ref.block).compressor->wgate->view();
    case MatrixName::kIndexWk:
      return block(ref.block).compressor->wk.view();
    case MatrixName::kIndexWqB:
      return block(ref.block).indexer->wq_b.view();
    case MatrixName::kIndexWeightsProj:
      return block(ref.block).indexer->weights_proj.view();
    case MatrixName::kEngramWkv:
      return block(ref.block).engram->wkv.view();
    case MatrixName::kHead:
      return model.head.view();
    case MatrixName::kMainProj:
      return model.dspark->main_proj.view();
    case MatrixName::kMarkovHead:
      return model.dspark->markov_head.view();
    case MatrixName::kConfidence:
      return model.dspark->confidence.view();
  }
  CHECK(false);
  return {};
}

const std::vector<Bf16>& CpuBackend::norm(const NormRef& ref) const {
  switch (ref.name) {
    case NormName::kQuery:
      return block(ref.block).q_norm;
    case NormName::kLatent:
      return block(ref.block).compressor->norm;
    case NormName::kFinal:
      return parts_.weights.norm;
    case NormName::kDsparkMain:
      return parts_.weights.dspark->main_norm;
    case NormName::kDsparkFinal:
      return parts_.weights.dspark->norm;
  }
  CHECK(false);
  return parts_.weights.norm;
}

const HcWeights& CpuBackend::mixing(const HcRef& ref) const {
  const BlockWeights& weights = block(ref.block);
  return ref.sublayer == Sublayer::kAttention ? weights.hc_attn : weights.hc_ffn;
}

const std::vector<Bf16>& CpuBackend::sublayer_norm(const HcRef& ref) const {
  const BlockWeights& weights = block(ref.block);
  return ref.sublayer == Sublayer::kAttention ? weights.attn_norm : weights.ffn_norm;
}

ActivationRows CpuBackend::input(const InputRows& rows) const {
  ActivationRows x = {.values = at(rows.values), .count = rows.count, .stride = rows.stride};
  if (rows.int8.exists() && parts_.numerics == Numerics::kFast) x.int8 = at(rows.int8);
  return x;
}

LinearTask CpuBackend::task(const Product& product) const {
  LinearTask task = {matrix(product.weights), input(product.x), {.stride = product.stride}};
  if (product.f32.exists()) {
    task.y.f32 = at(product.f32);
  } else {
    task.y.bf16 = at(product.bf16);
  }
  return task;
}

std::span<LinearTask> CpuBackend::new_tasks(int64_t count) {
  CHECK(num_tasks_ + count <= parts_.ws.tasks.size());
  return {parts_.ws.tasks.data() + std::exchange(num_tasks_, num_tasks_ + count), static_cast<size_t>(count)};
}

}  // namespace deepinfer
