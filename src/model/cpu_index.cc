// The choice of rows on processors: fewer rows than threads are scored by all threads, each in a phase of its own; of
// many, each share scores and chooses for its rows.
#include <cmath>
#include <numeric>

#include "kernels/quantize.h"
#include "model/cpu_backend.h"
#include "model/select.h"

namespace deepinfer {

// Index queries as the scores take them, and the weights of their heads.
Region::Phase CpuBackend::cut(const IndexQuery& op, const Needs& needs) {
  const int64_t width = config().index_n_heads * config().index_head_dim;
  return add_rows(op.rows, 8 * width, needs, [this, &op](int64_t begin, int64_t end, int) {
    const int64_t heads = config().index_n_heads, dim = config().index_head_dim, width = heads * dim;
    ops().rotate(at(op.query_bf16) + begin * width, end - begin, heads, dim, config().qk_rope_head_dim,
                 ws().cos_sin.data() + begin, Ops::Rotation::kForward);
    std::byte codes[16], scale;
    for (int64_t block = begin * width / 32; block < end * width / 32; ++block) {
      pack_index_row(at(op.query_bf16) + 32 * block, 32, codes, &scale);
      unpack_index_row(codes, &scale, 32, at(op.query) + 32 * block);
    }
    const float factor = 1.0f / std::sqrt(static_cast<float>(dim * heads));
    for (int64_t i = begin * heads; i < end * heads; ++i) at(op.weights)[i] = to_float(at(op.weights_bf16)[i]) * factor;
  });
}

namespace {

// What the choice for one row needs: that of a thread, or, of fewer rows than threads, that of the row.
struct IndexScratch {
  std::span<float> scores, block_scores;
  std::span<int32_t> order;
  std::span<RowRun> runs;
  const std::byte** key_blocks;
};

// The choice for the rows of one op.
class Selection {
 public:
  Selection(const CpuBackend& cpu, const SelectRows& op) : cpu_(cpu), op_(op) {}

  IndexScratch scratch_of(int64_t thread) const {
    Workspace& ws = cpu_.ws();
    const int64_t context = ws.max_context_tokens, max_runs = std::max<int64_t>(1, config().candidate_topk_blocks);
    const auto size = static_cast<size_t>(context);
    return {std::span(ws.scores.data() + thread * context, size),
            std::span(ws.block_scores.data() + thread * context, size),
            std::span(ws.order.data() + thread * context, size),
            std::span(ws.runs.data() + thread * max_runs, static_cast<size_t>(max_runs)),
            ws.key_blocks.data() + thread * ws.max_blocks};
  }

  ScorePlan plan(int64_t i, const IndexScratch& scratch) const {
    const Sequence& sequence = *cpu_.rows()[i].sequence;
    const BlockGroup& group = cpu_.parts().layout.groups[op_.group];
    const int64_t visible = visible_rows(i), block_size = config().candidate_block_size;
    if (visible <= config().index_topk) return {};
    int64_t num_runs = 1, num_scores = visible;
    scratch.runs[0] = {0, visible};
    if (op_.uses_candidates) {
      num_runs = cpu_.ws().candidate_count[i];
      num_scores = 0;
      for (int64_t k = 0; k < num_runs; ++k) {
        const int64_t first = candidates_of(i)[k] * block_size;
        scratch.runs[k] = {first, std::min(block_size, visible - first)};
        num_scores += scratch.runs[k].count;
      }
    }
    for (size_t b = 0; b < sequence.blocks.size(); ++b) {
      scratch.key_blocks[b] = cpu_.parts().arena.block(sequence.blocks[b]) + group.index_offset;
    }
    return {{scratch.key_blocks, group.rows, config().index_head_dim}, scratch.runs.first(num_runs), num_scores};
  }

  // The share's part of a row's scores. Of several runs all but the last have the length of the first.
  void score(const ScorePlan& plan, int64_t i, float* scores, const Share& share) const {
    if (plan.num_scores == 0) return;
    const auto num_runs = std::ssize(plan.runs);
    RowRun part = plan.runs[0];
    std::span<const RowRun> runs = {&part, 1};
    if (num_runs == 1) {
      part = {plan.runs[0].first + share.begin(plan.num_scores),
              share.end(plan.num_scores) - share.begin(plan.num_scores)};
      scores += share.begin(plan.num_scores);
    } else {
      runs = plan.runs.subspan(share.begin(num_runs), share.end(num_runs) - share.begin(num_runs));
      scores += share.begin(num_runs) * plan.runs[0].count;
    }
    const int64_t heads = config().index_n_heads;
    cpu_.ops().index_scores({.keys = plan.keys,
                             .num_heads = heads,
                             .query = cpu_.at(op_.query) + i * heads * plan.keys.dim,
                             .head_weights = cpu_.at(op_.weights) + i * heads,
                             .runs = runs,
                             .scores = scores,
                             .scratch = cpu_.scratch(share.thread)});
  }

  // Chooses the list of a row by its scores.
  void choose(int64_t i, int64_t num_scores, const IndexScratch& scratch) const {
    Workspace& ws = cpu_.ws();
    const int64_t visible = visible_rows(i), block_size = config().candidate_block_size, topk = config().index_topk;
    const std::span top(ws.topk.data() + i * topk, static_cast<size_t>(topk));
    ws.candidate_margin[i] = INFINITY;
    if (num_scores == 0) {
      std::iota(top.begin(), top.begin() + visible, 0);
      ws.candidate_count[i] = 0;
      ws.topk_count[i] = static_cast<int32_t>(visible);
      return;
    }
    const std::span candidates = candidates_of(i);
    const auto scores = std::span<const float>(scratch.scores.first(num_scores));
    if (op_.picks_candidates) {
      ws.candidate_count[i] = static_cast<int32_t>(select_candidate_blocks(
          scores, block_size, config().candidate_topk_blocks, scratch.block_scores, scratch.order, candidates));
      if (op_.wants_margin) {
        const int64_t num_blocks = (visible + block_size - 1) / block_size;
        ws.candidate_margin[i] =
            selection_margin(scratch.block_scores.first(num_blocks), ws.candidate_count[i], scratch.order);
      }
    }
    select_top_rows(scores, topk, scratch.order, top);
    if (op_.uses_candidates) {  // compact positions back to rows; all candidate blocks but the newest are full
      for (int32_t& position : top) position = candidates[position / block_size] * block_size + position % block_size;
    }
    ws.topk_count[i] = static_cast<int32_t>(topk);
  }

 private:
  const ModelConfig& config() const { return cpu_.config(); }
  int64_t visible_rows(int64_t i) const { return (cpu_.rows()[i].position + 1) / op_.ratio; }
  std::span<int32_t> candidates_of(int64_t i) const {
    const int64_t most = config().candidate_topk_blocks;
    return {cpu_.ws().candidates.data() + i * most, static_cast<size_t>(most)};
  }

  const CpuBackend& cpu_;
  const SelectRows& op_;
};

}  // namespace

Region::Phase CpuBackend::cut(const SelectRows& op, const Needs& needs) {
  if (op.rows >= num_threads()) {
    const int shares = static_cast<int>(std::min<int64_t>(op.rows, 4 * num_threads()));  // later rows take longer
    return add(shares, needs, [this, &op](const Share& share) {
      const Selection selection(*this, op);
      const IndexScratch scratch = selection.scratch_of(share.thread);
      const Share alone = {.thread = share.thread};
      for (int64_t i = share.begin(op.rows); i < share.end(op.rows); ++i) {
        const ScorePlan scores = selection.plan(i, scratch);
        selection.score(scores, i, scratch.scores.data(), alone);
        selection.choose(i, scores.num_scores, scratch);
      }
      list_compressed_rows(op.group, share.begin(op.rows), share.end(op.rows));
    });
  }
  const Selection selection(*this, op);
  int64_t num_scores = 0;
  for (int64_t i = 0; i < op.rows; ++i) {
    ws().score_plans[i] = selection.plan(i, selection.scratch_of(i));
    num_scores += ws().score_plans[i].num_scores;
  }
  const int64_t width = config().index_n_heads * config().index_head_dim;
  const Phase scored =
      add(linear_shares(num_scores * width / 64, num_threads()), needs, [this, &op](const Share& share) {
        const Selection selection(*this, op);
        for (int64_t i = 0; i < op.rows; ++i) {
          selection.score(ws().score_plans[i], i, selection.scratch_of(i).scores.data(), share);
        }
      });
  return add_rows(op.rows, 16384, after(scored), [this, &op](int64_t begin, int64_t end, int) {
    const Selection selection(*this, op);
    for (int64_t i = begin; i < end; ++i) selection.choose(i, ws().score_plans[i].num_scores, selection.scratch_of(i));
    list_compressed_rows(op.group, begin, end);
  });
}

}  // namespace deepinfer
