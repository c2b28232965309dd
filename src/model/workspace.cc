#include "model/workspace.h"

#include <algorithm>

#include "kernels/quantize.h"

namespace deepinfer {
namespace {

// `allocate(array, count)` for every array.
template <typename Allocate>
void fill(Workspace& ws, const Allocate& allocate, const ModelConfig& config, const KvLayout& layout, int64_t max_rows,
          int64_t max_context_tokens, int num_threads, Numerics numerics) {
  const int64_t rows = max_rows, hidden = config.hidden_size, head_dim = config.head_dim;
  const int64_t query = config.num_attention_heads * head_dim;
  const int64_t grouped = config.o_groups * config.o_lora_rank;
  const int64_t inner = config.moe_intermediate_size;
  const int64_t experts_per_token = std::max(config.num_experts_per_tok, config.dspark_num_experts_per_tok);
  const int64_t experts = std::max(config.n_routed_experts, config.dspark_n_routed_experts);
  const int64_t slots = rows * experts_per_token, all_slots = slots + rows;
  const int64_t engram_columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  const int64_t engram_width = config.engram_layer_ids.empty() ? 0 : engram_columns * config.engram_head_dim;
  const int64_t targets = std::ssize(config.dspark_target_layer_ids);
  const int64_t index_width = config.index_n_heads * config.index_head_dim;

  allocate(ws.ids, rows);
  allocate(ws.h, rows * 4 * hidden);
  allocate(ws.pre, rows * 4);
  allocate(ws.mix, rows);
  allocate(ws.hc_products, rows * 24);
  allocate(ws.x, rows * hidden);
  allocate(ws.y, rows * hidden);
  ws.most_sum_rows = std::min<int64_t>(rows, 2 * kHcRowTile * num_threads);
  allocate(ws.hc_sums, ws.most_sum_rows * static_cast<int64_t>(ceil_div(4 * hidden, kSumBlock)) * kHcSumStride);
  allocate(ws.x_paired, rows * hidden);
  allocate(ws.x_quantized, rows * hidden);
  allocate(ws.qr_quantized, rows * config.q_lora_rank);
  allocate(ws.latents_paired, rows * head_dim);
  allocate(ws.o_paired, rows * query);
  allocate(ws.z_quantized, rows * grouped);
  allocate(ws.activated_quantized, all_slots * inner);
  const bool fast = numerics == Numerics::kFast;
  allocate(ws.x_int8, fast ? rows * hidden / kSumBlock : 0);
  allocate(ws.activated_int8, fast ? all_slots * inner / kSumBlock : 0);
  allocate(ws.paired, rows * (hidden + 2 * config.dspark_markov_rank + 2));
  allocate(ws.quantized, rows * std::max(hidden * targets, engram_width));

  allocate(ws.qr, rows * config.q_lora_rank);
  allocate(ws.q, rows * query);
  allocate(ws.kv, rows * head_dim);
  allocate(ws.o, rows * query);
  allocate(ws.z, rows * grouped);
  allocate(ws.window_rows, rows * layout.window_row_bytes);
  allocate(ws.lists, rows);
  allocate(ws.window_pointers, rows * (layout.window + config.dspark_block_size));
  allocate(ws.compressed_pointers, rows * config.index_topk);
  allocate(ws.cos_sin, rows);
  allocate(ws.pair_values, rows * head_dim);
  allocate(ws.pair_gates, rows * head_dim);
  allocate(ws.latents, rows * head_dim);
  allocate(ws.index_keys, rows * config.index_head_dim);
  allocate(ws.latent_rows, rows);
  allocate(ws.latent_cos_sin, rows);

  allocate(ws.index_query_bf16, rows * index_width);
  allocate(ws.index_query, rows * index_width);
  allocate(ws.head_weights_bf16, rows * config.index_n_heads);
  allocate(ws.head_weights, rows * config.index_n_heads);
  allocate(ws.topk, rows * config.index_topk);
  allocate(ws.topk_count, rows);
  allocate(ws.candidates, rows * config.candidate_topk_blocks);
  allocate(ws.candidate_count, rows);
  allocate(ws.candidate_margin, rows);
  ws.max_context_tokens = max_context_tokens;
  ws.max_blocks = static_cast<int64_t>(ceil_div(max_context_tokens, kBlockTokens));
  allocate(ws.scores, num_threads * max_context_tokens);
  allocate(ws.block_scores, num_threads * max_context_tokens);
  allocate(ws.order, num_threads * max_context_tokens);
  allocate(ws.runs, num_threads * std::max<int64_t>(1, config.candidate_topk_blocks));
  allocate(ws.key_blocks, num_threads * ws.max_blocks);
  allocate(ws.score_plans, num_threads);
  const int64_t longest_list = layout.window + std::max(config.index_topk, config.dspark_block_size);
  ws.kernel_scratch_bytes = std::max({attention_scratch_bytes(longest_list, head_dim), hc_scratch_bytes(hidden),
                                      index_scratch_bytes(config.index_n_heads, config.index_head_dim)});
  allocate(ws.kernel_scratch, num_threads * static_cast<int64_t>(ws.kernel_scratch_bytes));

  allocate(ws.router_logits, rows * experts);
  allocate(ws.router_scores, num_threads * experts);
  allocate(ws.expert_ids, slots);
  allocate(ws.expert_weights, slots);
  allocate(ws.slot_tokens, slots);
  allocate(ws.tasks, 3 * (experts + 1) + config.o_groups + 16);
  allocate(ws.token_slots, all_slots);
  allocate(ws.token_slot_count, rows);
  allocate(ws.slot_weights, slots);
  allocate(ws.gate, all_slots * inner);
  allocate(ws.up, all_slots * inner);
  allocate(ws.activated, all_slots * inner);
  allocate(ws.expert_out, all_slots * hidden);

  allocate(ws.engram_rows, rows * engram_columns);
  allocate(ws.engram_embedding, rows * engram_width);
  allocate(ws.engram_key_value, engram_width > 0 ? rows * 5 * hidden : 0);
  allocate(ws.main_hidden, rows * targets * hidden);
  const int64_t drafting = targets > 0 ? rows / config.dspark_block_size : 0;
  allocate(ws.draft_features, drafting * (hidden + config.dspark_markov_rank));
  allocate(ws.markov_rows, drafting * config.dspark_markov_rank);
  allocate(ws.markov_logits, drafting * config.vocab_size);
  allocate(ws.draft_confidence, targets > 0 ? rows : 0);
  allocate(ws.logits, rows * config.vocab_size);
  allocate(ws.logit_rows, rows);
}

}  // namespace

Result<Workspace> Workspace::make(const ModelConfig& config, const KvLayout& layout, int64_t max_rows,
                                  int64_t max_context_tokens, int num_threads, Numerics numerics) {
  Workspace ws;
  const auto allocate = [&ws](auto& array, int64_t count) { ws.buffers.allocate(array, Place::kHost, count); };
  fill(ws, allocate, config, layout, max_rows, max_context_tokens, num_threads, numerics);
  RETURN_IF_ERROR(ws.buffers.status());
  return ws;
}

uint64_t Workspace::planned_bytes(const ModelConfig& config, const KvLayout& layout, int64_t max_rows,
                                  int64_t max_context_tokens, int num_threads, Numerics numerics) {
  uint64_t bytes = 0;
  const auto count_bytes = [&bytes]<typename T>(Array<T>&, int64_t count) {
    bytes += static_cast<uint64_t>(count) * sizeof(T);
  };
  Workspace unused;
  fill(unused, count_bytes, config, layout, max_rows, max_context_tokens, num_threads, numerics);
  return bytes;
}

}  // namespace deepinfer
