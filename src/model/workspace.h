// The buffers of one forward call, sized once for `max_rows` rows so that nothing allocates while tokens flow.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernels/ops.h"
#include "model/buffers.h"
#include "model/kv_arena.h"

namespace deepinfer {

// What to score for a row, in compressed rows.
struct ScorePlan {
  IndexKeys keys;
  std::span<const RowRun> runs;
  int64_t num_scores = 0;  // 0: everything is taken, scores do not matter, and every block is a candidate
};

struct Workspace {
  static Result<Workspace> make(const ModelConfig& config, const KvLayout& layout, int64_t max_rows,
                                int64_t max_context_tokens, int num_threads, Numerics numerics);
  // What make() would allocate, without a byte of it.
  static uint64_t planned_bytes(const ModelConfig& config, const KvLayout& layout, int64_t max_rows,
                                int64_t max_context_tokens, int num_threads, Numerics numerics);
  uint64_t size_bytes() const { return buffers.size_bytes(Place::kHost); }

  Buffers buffers;  // owns what follows

  Array<int32_t> ids;  // of the rows, or of the tokens before the drafts to choose
  // Residual streams: h [rows][4][hidden], fold weights pre [rows][4].
  Array<Bf16> h;
  Array<float> pre;
  Array<HcMix> mix;                 // of the running sublayer
  Array<float> hc_products;         // [rows][24]
  Array<float> hc_sums;             // of a mix whose columns are shared, [most_sum_rows][blocks][kHcSumStride]
  int64_t most_sum_rows = 0;
  Array<Bf16> x, y;                 // input and output of a sublayer [rows][hidden]

  // Activations as the products read them; INT8 in the fast mode.
  Array<Bf16> x_paired, x_quantized, qr_quantized, latents_paired, o_paired, z_quantized, activated_quantized;
  Array<Int8Block> x_int8, activated_int8;
  Array<Bf16> paired, quantized;    // of a product alone

  // Attention.
  Array<Bf16> qr, q, kv, o, z;
  Array<std::byte> window_rows;     // packed rows of this call
  Array<AttentionList> lists;
  Array<const std::byte*> window_pointers, compressed_pointers;
  Array<const float*> cos_sin;
  Array<float> pair_values, pair_gates;
  Array<Bf16> latents, index_keys;
  Array<int32_t> latent_rows;       // row of the call that finished the latent
  Array<const float*> latent_cos_sin;

  // Index: lists live until the next index source, candidates until the end of the pass.
  Array<Bf16> index_query_bf16, head_weights_bf16;
  Array<float> index_query, head_weights;
  Array<int32_t> topk, topk_count;  // [rows][index_topk]
  Array<int32_t> candidates, candidate_count;  // [rows][candidate_topk_blocks]
  Array<float> candidate_margin;               // [rows], for observers only
  Array<float> scores, block_scores;           // per thread, [max_context]
  Array<int32_t> order;                        // per thread, [max_context]
  Array<RowRun> runs;                          // per thread, [candidate_topk_blocks]
  Array<ScorePlan> score_plans;                // per thread
  Array<const std::byte*> key_blocks;          // per thread, block pointers of a sequence
  Array<std::byte> kernel_scratch;             // per thread
  size_t kernel_scratch_bytes = 0;
  int64_t max_context_tokens = 0;
  int64_t max_blocks = 0;

  // Experts. A slot is one (token, chosen expert), sorted by expert, then token; the shared expert's slots, one a token,
  // stand behind them.
  Array<float> router_logits, router_scores;
  Array<int32_t> expert_ids;
  Array<float> expert_weights;
  Array<LinearTask> tasks;  // of one region
  Array<int32_t> slot_tokens, token_slots, token_slot_count;
  Array<float> slot_weights;
  Array<Bf16> gate, up, activated, expert_out;

  // Engram and DSpark.
  Array<int64_t> engram_rows;
  Array<Bf16> engram_embedding, engram_key_value;
  Array<Bf16> main_hidden;
  Array<Bf16> draft_features, markov_rows;  // [rows / block][hidden + rank], [rows / block][rank]
  Array<float> markov_logits;               // [rows / block][vocab]
  Array<float> draft_confidence;            // [rows]
  Array<float> logits;              // [rows][vocab]
  Array<int32_t> logit_rows;        // of the batch, whose logits they are
};

}  // namespace deepinfer
