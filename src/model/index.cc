// Which compressed rows a query reads (docs/spec/model.md 5):
//
//   q = Q4i(rotate(wq_b qr))   w = weights_proj x * (dim heads)^(-1/2)   score_j = sum_h w_h max(0, q_h . k_j), j < V(p)
//   top(p) = the min(index_topk, V) best rows, ascending.   V(p) = floor((p + 1) / r)
//
// The candidate source also keeps its best blocks; later index sources choose inside them only.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/quantize.h"
#include "model/forward_pass.h"
#include "model/select.h"

namespace deepinfer {
namespace {

// Index queries of rows [begin, end) as the scores take them, and the weights of their heads.
void make_index_query(const ForwardPass& pass, int64_t begin, int64_t end) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t heads = config.index_n_heads, dim = config.index_head_dim, width = heads * dim;
  pass.ops.rotate(ws.index_query_bf16.data() + begin * width, end - begin, heads, dim, config.qk_rope_head_dim,
                  ws.cos_sin.data() + begin, Ops::Rotation::kForward);
  std::byte codes[16], scale;
  for (int64_t block = begin * width / 32; block < end * width / 32; ++block) {
    pack_index_row(ws.index_query_bf16.data() + 32 * block, 32, codes, &scale);
    unpack_index_row(codes, &scale, 32, ws.index_query.data() + 32 * block);
  }
  const float factor = 1.0f / std::sqrt(static_cast<float>(dim * heads));
  for (int64_t i = begin * heads; i < end * heads; ++i) ws.head_weights[i] = to_float(ws.head_weights_bf16[i]) * factor;
}

// What the choice for one row needs: that of a thread, or, of fewer rows than threads, that of the row.
struct IndexScratch {
  std::span<float> scores, block_scores;
  std::span<int32_t> order;
  std::span<RowRun> runs;
  const std::byte** key_blocks;
};

IndexScratch scratch_of(const ForwardPass& pass, int64_t thread) {
  Workspace& ws = pass.ws;
  const int64_t context = ws.max_context_tokens, max_runs = std::max<int64_t>(1, pass.config.candidate_topk_blocks);
  const auto size = static_cast<size_t>(context);
  return {std::span(ws.scores.data() + thread * context, size),
          std::span(ws.block_scores.data() + thread * context, size),
          std::span(ws.order.data() + thread * context, size),
          std::span(ws.runs.data() + thread * max_runs, static_cast<size_t>(max_runs)),
          ws.key_blocks.data() + thread * ws.max_blocks};
}

int64_t visible_rows(const ForwardPass& pass, const LayerPlan& plan, int64_t i) {
  return (pass.rows[i].position + 1) / plan.ratio;
}

std::span<int32_t> candidates_of(const ForwardPass& pass, int64_t i) {
  return {pass.ws.candidates.data() + i * pass.config.candidate_topk_blocks,
          static_cast<size_t>(pass.config.candidate_topk_blocks)};
}

ScorePlan plan_scores(const ForwardPass& pass, const LayerPlan& plan, int64_t i, const IndexScratch& scratch) {
  const ModelConfig& config = pass.config;
  const Row& row = pass.rows[i];
  const BlockGroup& group = pass.layout.groups[*plan.kv_source];
  const int64_t visible = visible_rows(pass, plan, i), block_size = config.candidate_block_size;
  if (visible <= config.index_topk) return {};
  int64_t num_runs = 1, num_scores = visible;
  scratch.runs[0] = {0, visible};
  if (plan.uses_candidates) {
    num_runs = pass.ws.candidate_count[i];
    num_scores = 0;
    for (int64_t k = 0; k < num_runs; ++k) {
      const int64_t first = candidates_of(pass, i)[k] * block_size;
      scratch.runs[k] = {first, std::min(block_size, visible - first)};
      num_scores += scratch.runs[k].count;
    }
  }
  for (size_t b = 0; b < row.sequence->blocks.size(); ++b) {
    scratch.key_blocks[b] = pass.arena.block(row.sequence->blocks[b]) + group.index_offset;
  }
  return {{scratch.key_blocks, group.rows, config.index_head_dim}, scratch.runs.first(num_runs), num_scores};
}

// The share's part of a row's scores. Of several runs all but the last have the length of the first.
void score(const ForwardPass& pass, const ScorePlan& plan, int64_t i, float* scores, const Share& share) {
  if (plan.num_scores == 0) return;
  const auto num_runs = std::ssize(plan.runs);
  RowRun part = plan.runs[0];
  std::span<const RowRun> runs = {&part, 1};
  if (num_runs == 1) {
    part = {plan.runs[0].first + share.begin(plan.num_scores), share.end(plan.num_scores) - share.begin(plan.num_scores)};
    scores += share.begin(plan.num_scores);
  } else {
    runs = plan.runs.subspan(share.begin(num_runs), share.end(num_runs) - share.begin(num_runs));
    scores += share.begin(num_runs) * plan.runs[0].count;
  }
  const int64_t heads = pass.config.index_n_heads;
  pass.ops.index_scores({.keys = plan.keys,
                         .num_heads = heads,
                         .query = pass.ws.index_query.data() + i * heads * plan.keys.dim,
                         .head_weights = pass.ws.head_weights.data() + i * heads,
                         .runs = runs,
                         .scores = scores,
                         .scratch = pass.kernel.thread_scratch(share.thread)});
}

// Chooses the list of a row by its scores.
void choose_rows(ForwardPass& pass, const LayerPlan& plan, int64_t i, int64_t num_scores, const IndexScratch& scratch) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t visible = visible_rows(pass, plan, i), block_size = config.candidate_block_size;
  const std::span top(ws.topk.data() + i * config.index_topk, static_cast<size_t>(config.index_topk));
  ws.candidate_margin[i] = INFINITY;
  if (num_scores == 0) {
    std::iota(top.begin(), top.begin() + visible, 0);
    ws.candidate_count[i] = 0;
    ws.topk_count[i] = static_cast<int32_t>(visible);
    return;
  }
  const std::span candidates = candidates_of(pass, i);
  const auto scores = std::span<const float>(scratch.scores.first(num_scores));
  if (plan.picks_candidates) {
    ws.candidate_count[i] = static_cast<int32_t>(
        select_candidate_blocks(scores, block_size, config.candidate_topk_blocks, scratch.block_scores, scratch.order,
                                candidates));
    if (pass.observer != nullptr) {
      const int64_t num_blocks = (visible + block_size - 1) / block_size;
      ws.candidate_margin[i] =
          selection_margin(scratch.block_scores.first(num_blocks), ws.candidate_count[i], scratch.order);
    }
  }
  select_top_rows(scores, config.index_topk, scratch.order, top);
  if (plan.uses_candidates) {  // compact positions back to rows; all candidate blocks but the newest are full
    for (int32_t& position : top) position = candidates[position / block_size] * block_size + position % block_size;
  }
  ws.topk_count[i] = static_cast<int32_t>(config.index_topk);
}

// The lists of all rows, each padded to `width` with -1.
void observe_lists(ForwardPass& pass, std::string_view name, int64_t layer, const int32_t* lists, const int32_t* counts,
                   int64_t width) {
  std::vector<int64_t> padded(static_cast<size_t>(pass.num_rows() * width), -1);
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    std::copy_n(lists + i * width, counts[i], padded.begin() + i * width);
  }
  pass.observer->indices(name, layer, padded);
}

}  // namespace

LinearTask head_weights_task(const ForwardPass& pass, const IndexerWeights& weights) {
  return {weights.weights_proj.view(), pass.x_paired(pass.num_rows()),
          {.bf16 = pass.ws.head_weights_bf16.data(), .stride = pass.config.index_n_heads}};
}

Phase select_rows(ForwardPass& pass, const IndexerWeights& weights, const LayerPlan& plan, int64_t layer,
                  const InputPhases& input, Phase compressed) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), width = pass.config.index_n_heads * pass.config.index_head_dim;
  const Phase projected = pass.add_linear({input.query}, {LinearTask{weights.wq_b.view(), query_operand(pass),
                                                                     {.bf16 = ws.index_query_bf16.data(), .stride = width}}});
  const Phase query = pass.add_rows(rows, 8 * width, {projected, input.values},
                                    [&](int64_t begin, int64_t end, int) { make_index_query(pass, begin, end); });
  Phase chosen = Region::kNone;
  if (rows < pass.num_threads()) {  // all threads score each row
    int64_t num_scores = 0;
    for (int64_t i = 0; i < rows; ++i) {
      ws.score_plans[i] = plan_scores(pass, plan, i, scratch_of(pass, i));
      num_scores += ws.score_plans[i].num_scores;
    }
    const int shares = linear_shares(num_scores * width / 64, pass.num_threads());
    const Phase scored = pass.region.add(shares, {query, compressed}, [&](const Share& share) {
      for (int64_t i = 0; i < pass.num_rows(); ++i) {
        const IndexScratch scratch = scratch_of(pass, i);
        score(pass, pass.ws.score_plans[i], i, scratch.scores.data(), share);
      }
    });
    chosen = pass.add_rows(rows, 16384, {scored}, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        choose_rows(pass, plan, i, pass.ws.score_plans[i].num_scores, scratch_of(pass, i));
      }
      list_compressed_rows(pass, *plan.kv_source, begin, end);
    });
  } else {
    const int shares = static_cast<int>(std::min<int64_t>(rows, 4 * pass.num_threads()));  // later rows take longer
    chosen = pass.region.add(shares, {query, compressed}, [&](const Share& share) {
      const IndexScratch scratch = scratch_of(pass, share.thread);
      const Share alone = {.thread = share.thread};
      for (int64_t i = share.begin(pass.num_rows()); i < share.end(pass.num_rows()); ++i) {
        const ScorePlan scores = plan_scores(pass, plan, i, scratch);
        score(pass, scores, i, scratch.scores.data(), alone);
        choose_rows(pass, plan, i, scores.num_scores, scratch);
      }
      list_compressed_rows(pass, *plan.kv_source, share.begin(pass.num_rows()), share.end(pass.num_rows()));
    });
  }
  if (!pass.is_wanted("topk")) return chosen;
  pass.run_region();
  observe_lists(pass, "topk", layer, ws.topk.data(), ws.topk_count.data(), pass.config.index_topk);
  if (plan.picks_candidates) {
    observe_lists(pass, "candidates", layer, ws.candidates.data(), ws.candidate_count.data(),
                  pass.config.candidate_topk_blocks);
    pass.observe("candidate_margin", layer, ws.candidate_margin.data(), rows);
  }
  return chosen;
}

}  // namespace deepinfer
