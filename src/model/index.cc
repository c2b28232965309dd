// Which compressed rows a query reads (model-v41 5):
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

void project_index_query(ForwardPass& pass, const IndexerWeights& weights) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), heads = config.index_n_heads, dim = config.index_head_dim;
  pass.linear(weights.wq_b, pass.quantize(ws.qr.data(), rows, config.q_lora_rank), ws.index_query_bf16.data());
  pass.ops.rotate(pass.kernel, ws.index_query_bf16.data(), rows, heads, dim, config.qk_rope_head_dim,
                  ws.cos_sin.data(), Ops::Rotation::kForward);
  std::byte codes[16], scale;
  for (int64_t block = 0; block < rows * heads * dim / 32; ++block) {
    pack_index_row(ws.index_query_bf16.data() + 32 * block, 32, codes, &scale);
    unpack_index_row(codes, &scale, 32, ws.index_query.data() + 32 * block);
  }
  pass.linear(weights.weights_proj, pass.pair(ws.x.data(), rows, config.hidden_size), ws.head_weights_bf16.data());
  const float factor = 1.0f / std::sqrt(static_cast<float>(dim * heads));
  for (int64_t i = 0; i < rows * heads; ++i) ws.head_weights[i] = to_float(ws.head_weights_bf16[i]) * factor;
}

// The scratch of one thread.
struct IndexScratch {
  std::span<float> scores, block_scores;
  std::span<int32_t> order;
  std::span<RowRun> runs;
  const std::byte** key_blocks;
  std::byte* kernel;
};

IndexScratch scratch_of(ForwardPass& pass, int64_t thread) {
  Workspace& ws = pass.ws;
  const int64_t context = ws.max_context_tokens, max_runs = std::max<int64_t>(1, pass.config.candidate_topk_blocks);
  const auto size = static_cast<size_t>(context);
  return {std::span(ws.scores.data() + thread * context, size),
          std::span(ws.block_scores.data() + thread * context, size),
          std::span(ws.order.data() + thread * context, size),
          std::span(ws.runs.data() + thread * max_runs, static_cast<size_t>(max_runs)),
          ws.key_blocks.data() + thread * ws.max_blocks,
          pass.kernel.thread_scratch(thread)};
}

void take_all(std::span<int32_t> top, int64_t visible) { std::iota(top.begin(), top.begin() + visible, 0); }

void score_runs_alone(ForwardPass& pass, const IndexKeys& keys, int64_t i, std::span<const RowRun> runs, float* scores,
                      std::byte* memory) {
  const int64_t heads = pass.config.index_n_heads;
  pass.ops.index_scores({.keys = keys,
                         .num_heads = heads,
                         .query = pass.ws.index_query.data() + i * heads * keys.dim,
                         .head_weights = pass.ws.head_weights.data() + i * heads,
                         .runs = runs,
                         .scores = scores,
                         .scratch = memory});
}

// The same by `parts` threads. Of several runs all but the last have the length of the first.
void score_runs(ForwardPass& pass, const IndexKeys& keys, int64_t i, std::span<const RowRun> runs, int64_t num_scores,
                float* scores, int64_t parts) {
  pass.kernel.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::byte* memory = pass.kernel.thread_scratch(part);
      if (runs.size() == 1) {
        const int64_t first = num_scores * part / parts, last = num_scores * (part + 1) / parts;
        const RowRun run = {runs[0].first + first, last - first};
        score_runs_alone(pass, keys, i, {&run, 1}, scores + first, memory);
      } else {
        const int64_t count = std::ssize(runs), first = count * part / parts, last = count * (part + 1) / parts;
        score_runs_alone(pass, keys, i, runs.subspan(first, last - first), scores + first * runs[0].count, memory);
      }
    }
  });
}

// Chooses the list of row i of the call; returns how many rows it has. With `parts` > 1 the caller is the only thread at
// work and shares the scoring with others.
int64_t select_for_row(ForwardPass& pass, const LayerPlan& plan, int64_t i, IndexScratch scratch, int64_t parts) {
  const ModelConfig& config = pass.config;
  Workspace& ws = pass.ws;
  const Row& row = pass.rows[i];
  const BlockGroup& group = pass.layout.groups[*plan.kv_source];
  const int64_t visible = (row.position + 1) / plan.ratio;
  const std::span top(ws.topk.data() + i * config.index_topk, static_cast<size_t>(config.index_topk));
  if (visible <= config.index_topk) {  // everything is taken, scores do not matter, and every block is a candidate
    take_all(top, visible);
    ws.candidate_count[i] = 0;
    return visible;
  }

  const int64_t block_size = config.candidate_block_size;
  const std::span candidates(ws.candidates.data() + i * config.candidate_topk_blocks,
                             static_cast<size_t>(config.candidate_topk_blocks));
  int64_t num_runs = 1, num_scores = visible;
  scratch.runs[0] = {0, visible};
  if (plan.uses_candidates) {
    num_runs = ws.candidate_count[i];
    num_scores = 0;
    for (int64_t k = 0; k < num_runs; ++k) {
      const int64_t first = candidates[k] * block_size;
      scratch.runs[k] = {first, std::min(block_size, visible - first)};
      num_scores += scratch.runs[k].count;
    }
  }
  for (size_t b = 0; b < row.sequence->blocks.size(); ++b) {
    scratch.key_blocks[b] = pass.arena.block(row.sequence->blocks[b]) + group.index_offset;
  }
  const IndexKeys keys = {scratch.key_blocks, group.rows, config.index_head_dim};
  const std::span<const RowRun> runs = scratch.runs.first(num_runs);
  if (parts > 1) {
    score_runs(pass, keys, i, runs, num_scores, scratch.scores.data(), parts);
  } else {
    score_runs_alone(pass, keys, i, runs, scratch.scores.data(), scratch.kernel);
  }
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
  return config.index_topk;
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

void select_rows(ForwardPass& pass, const IndexerWeights& weights, const LayerPlan& plan, int64_t layer) {
  project_index_query(pass, weights);
  Workspace& ws = pass.ws;
  const int64_t threads = pass.kernel.pool->num_threads();
  if (pass.num_rows() < threads) {  // few rows: all threads score each
    for (int64_t i = 0; i < pass.num_rows(); ++i) {
      ws.topk_count[i] = static_cast<int32_t>(select_for_row(pass, plan, i, scratch_of(pass, 0), threads));
    }
  } else {
    pass.kernel.pool->parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      const IndexScratch scratch = scratch_of(pass, thread);
      for (int64_t i = thread; i < pass.num_rows(); i += threads) {
        ws.topk_count[i] = static_cast<int32_t>(select_for_row(pass, plan, i, scratch, 1));
      }
    }
    });
  }
  if (pass.observer == nullptr) return;
  observe_lists(pass, "topk", layer, ws.topk.data(), ws.topk_count.data(), pass.config.index_topk);
  if (plan.picks_candidates) {
    observe_lists(pass, "candidates", layer, ws.candidates.data(), ws.candidate_count.data(),
                  pass.config.candidate_topk_blocks);
    pass.observe("candidate_margin", layer, ws.candidate_margin.data(), pass.num_rows());
  }
}

}  // namespace deepinfer
