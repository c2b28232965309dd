// Runs programs on the processors of this machine: each op becomes one phase of a region of the thread pool, or two,
// cut into shares (base/thread_pool.h). A whole program is one region.
//
// Work over weights is cut by output rows, so that what follows them column by column (SwiGLU, quantization, unfold,
// the sums of the next mix) stays with the share that made the columns; the rest is cut by rows, heads or keys. What
// needs nothing but the batch and what has ended (lists, angles, hashes) is done at once by the caller; what comes
// behind everything (the rings, finite checks) when the region has ended.
//
// How each op is cut and what a share does: cpu_streams.cc, cpu_attention.cc, cpu_index.cc, cpu_experts.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/linear_list.h"
#include "kernels/ops.h"
#include "model/engram_hash.h"
#include "model/kv_arena.h"
#include "model/model.h"
#include "model/program.h"
#include "model/rope.h"
#include "model/row.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace deepinfer {

// What a backend works with; borrowed from a Model, which outlives it.
struct BackendParts {
  const ModelConfig& config;
  const KvLayout& layout;
  KvArena& arena;
  const Ops& ops;
  KernelContext& kernel;
  Workspace& ws;
  const ModelWeights& weights;
  const std::vector<EngramLayerHash>& engram_hashes;
  const RopeTable& plain_rope;
  const RopeTable& compress_rope;
  Numerics numerics;
  int32_t engram_pad_class;
  std::function<void(const Row& row, int64_t layer)> note_fault;
};

class CpuBackend {
 public:
  using Phase = Region::Phase;
  using Needs = std::array<Region::Need, Region::kMaxNeeds>;  // kNone: no need

  explicit CpuBackend(BackendParts parts) : parts_(std::move(parts)), bases_(parts_.ws.buffers.host_bases()) {}
  // Returns when all ops have ended.
  void run(const Program& program, std::span<const Row> rows);

  // ---- for what shares do (cpu_*.cc)

  const BackendParts& parts() const { return parts_; }
  const ModelConfig& config() const { return parts_.config; }
  const Ops& ops() const { return parts_.ops; }
  Workspace& ws() const { return parts_.ws; }
  std::span<const Row> rows() const { return rows_; }
  const StreamRefs& streams() const { return streams_; }
  int64_t num_rows() const { return std::ssize(rows_); }
  template <typename T>
  T* at(const Ref<T>& ref) const {
    return reinterpret_cast<T*>(bases_[ref.buffer]) + ref.offset;
  }
  const RopeTable& rope(RopeKind kind) const {
    return kind == RopeKind::kPlain ? parts_.plain_rope : parts_.compress_rope;
  }
  std::byte* scratch(int thread) const { return parts_.kernel.thread_scratch(thread); }
  const BlockWeights& block(Block block) const;
  MatrixView matrix(const MatrixRef& ref) const;
  const std::vector<Bf16>& norm(const NormRef& ref) const;
  const HcWeights& mixing(const HcRef& ref) const;
  const std::vector<Bf16>& sublayer_norm(const HcRef& ref) const;
  ActivationRows input(const InputRows& rows) const;
  LinearTask task(const Product& product) const;
  float norm_eps() const { return static_cast<float>(config().rms_norm_eps); }
  void rms_norm(const Bf16* x, const std::vector<Bf16>& weight, int64_t count, Bf16* out) const {
    ops().rms_norm(x, weight.data(), count, std::ssize(weight), norm_eps(), out);
  }
  // Rows [begin, end) of x as the operands that exist.
  void make_operands(const Bf16* x, int64_t width, const OperandRefs& operands, int64_t begin, int64_t end) const;
  // For the share that made these columns of y: unfolds them into h, and makes its part of the next mix.
  void leave_sublayer(const LeaveSublayer& leave, int64_t rows, Columns columns) const;
  // Few rows share the columns of a mix; of many each share mixes its own.
  bool are_few(int64_t rows) const { return rows <= parts_.ws.most_sum_rows; }

 private:
  int num_threads() const { return parts_.kernel.pool->num_threads(); }
  // Shares of weights: twice the threads, so that they end together, unless that is too little work for each.
  int product_shares(std::span<const LinearTask> tasks) const { return product_shares(linear_cost(tasks)); }
  int product_shares(int64_t cost) const { return num_threads() == 1 ? 1 : linear_shares(cost, 2 * num_threads()); }
  // Shares of columns of the streams.
  int column_shares(int64_t cost) const {
    return std::min(product_shares(cost), static_cast<int>(ceil_div(config().hidden_size, kChunkRows)));
  }
  // The products of experts: gate and up of their slots' tokens, down of their slots; the shared expert's behind the
  // others.
  struct ExpertTasks {
    std::span<LinearTask> gate, up, down;
    ExpertTasks first(int64_t count) const {
      const auto size = static_cast<size_t>(count);
      return {gate.first(size), up.first(size), down.first(size)};
    }
    ExpertTasks shared() const { return {gate.last(1), up.last(1), down.last(1)}; }
  };
  void set_expert_tasks(int64_t i, const ExpertWeights& expert, int64_t slot, const ActivationRows& x) const;
  int64_t lay_out_experts(const ExpertWork& work) const;
  void run_expert_up(const ExpertTasks& tasks, int64_t num_routed_slots, const Share& share) const;
  int head_shares() const;
  void list_compressed_rows(int64_t group, int64_t begin, int64_t end) const;  // ws.topk -> ws.lists
  template <typename Body>
  Phase add(int shares, const Needs& needs, const Body& body) {
    return region_.add(shares, {needs[0], needs[1], needs[2], needs[3]}, body);
  }
  static Needs after(Phase phase) { return {phase, Region::kNone, Region::kNone, Region::kNone}; }
  // A phase of body(first row, end, thread) over `count` rows of about `elements` numbers each.
  template <typename Body>
  Phase add_rows(int64_t count, int64_t elements, const Needs& needs, const Body& body) {
    const int64_t worth = std::max<int64_t>(1, count * elements / 16384);
    const auto shares = static_cast<int>(std::clamp<int64_t>(std::min(count, worth), 1, num_threads()));
    return add(shares, needs, [body, count](const Share& share) {
      if (share.begin(count) < share.end(count)) body(share.begin(count), share.end(count), share.thread);
    });
  }
  // Memory for the products of this region.
  std::span<LinearTask> new_tasks(int64_t count);

  // The phase after which the op has ended.
  Phase cut(const EnterSublayer& op, const Needs& needs);
  Phase cut(const FoldRows& op, const Needs& needs);
  Phase cut(const GatherRows& op, const Needs& needs);
  Phase cut(const Products& op, const Needs& needs);
  Phase cut(const NormRows& op, const Needs& needs);
  Phase cut(const MakeOperands& op, const Needs& needs);
  Phase cut(const WindowRows& op, const Needs& needs);
  Phase cut(const Attend& op, const Needs& needs);
  Phase cut(const GroupedOutput& op, const Needs& needs);
  Phase cut(const AttentionOutput& op, const Needs& needs);
  Phase cut(const PoolPairs& op, const Needs& needs);
  Phase cut(const PackLatents& op, const Needs& needs);
  Phase cut(const IndexQuery& op, const Needs& needs);
  Phase cut(const SelectRows& op, const Needs& needs);
  Phase cut(const Route& op, const Needs& needs);
  Phase cut(const DispatchExperts& op, const Needs& needs);
  Phase cut(const ExpertUp& op, const Needs& needs);
  Phase cut(const ExpertDown& op, const Needs& needs);
  Phase cut(const EngramGate& op, const Needs& needs);

  // What needs the batch alone, at once.
  void do_now(const Embed& op) const;
  void do_now(const MeanOfStreams& op) const;
  void do_now(const GatherMarkov& op) const;
  void do_now(const SetAngles& op) const;
  void do_now(const ListWindow& op) const;
  void do_now(const ListDraftWindow& op) const;
  void do_now(const ListCompressed& op) const;
  void do_now(const ListLatents& op) const;
  void do_now(const HashEngram& op) const;
  void do_now(const GatherEngram& op) const;
  // What comes last.
  void do_last(const StoreWindow& op) const;
  void do_last(const CheckFinite& op) const;
  void do_last(const CheckLogits& op) const;
  void do_last(const AddMarkov& op) const;

  const BackendParts parts_;
  std::byte* const* const bases_;  // of the workspace's buffers
  // Of the running program.
  std::span<const Row> rows_;
  StreamRefs streams_;
  Region region_;
  int64_t num_tasks_ = 0;  // of ws.tasks in this region
  // Of the experts of one layer, from their dispatch on.
  int64_t experts_per_token_ = 0;
  ExpertTasks expert_tasks_;
  int64_t most_chosen_ = 0, num_chosen_ = 0;
};

// The columns of a share of rows of `width` numbers, in steps of a chunk of output rows.
inline Columns columns_of(const Share& share, int64_t width) {
  const auto chunks = static_cast<int64_t>(ceil_div(width, kChunkRows));
  return {share.begin(chunks) * kChunkRows, std::min(width, share.end(chunks) * kChunkRows)};
}

}  // namespace deepinfer
