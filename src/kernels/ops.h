// The operations of the model: the only seam between the forward pass and a processor.
//
// One table of functions per instruction set, all of them equal bit for bit to the scalar reference in kernels/ref
// (docs/numerics.md names the order of every sum: `f32-block32`). Rounding points follow docs/spec/model.md; "bf(x)" is
// a rounding of fp32 to bf16. Every op works row by row: the result of a row never depends on the other rows of a call,
// on the number of threads or on the part of the work a thread gets.
//
// The functions of a table run on the calling thread; callers divide rows, columns, heads or row groups among threads
// (model/ does, and one_op.h for one op at a time). Pointers in the argument structs are borrowed for the
// call. Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"

namespace deepinfer {

// Numeric modes. kFast rounds the activations of FP4 products to INT8 and adds those products up in whole
// numbers, block by block; everything else is as in kExact.
enum class Numerics { kExact, kFast };

// The name of a mode's summation order; part of the fingerprint of stored KV blocks.
constexpr std::string_view summation_order(Numerics numerics) {
  return numerics == Numerics::kExact ? "f32-block32" : "f32-block32 i8-fp4";
}

// Threads, and scratch memory for each of them. Owned by the executor thread.
struct KernelContext {
  ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;        // num_threads pieces of scratch_bytes, each aligned to 64
  size_t scratch_bytes = 0;            // per thread; see attention_scratch_bytes(), index_scratch_bytes()
  std::byte* thread_scratch(int64_t thread) const { return scratch + static_cast<size_t>(thread) * scratch_bytes; }
};

// Columns [first, end) of rows; `first` is a multiple of 32.
struct Columns {
  int64_t first = 0;
  int64_t end = 0;
};

// 32 activations of the fast mode: code times scale. The codes of eight columns stand in the order of the
// nibbles of a packed FP4 line (kernels/matrix.h), and weights take part as twice their value, so the scale
// is half of that of the codes.
struct Int8Block {
  int8_t codes[32];      // of columns 8 i + kInt8Order[j] at 8 i + j
  int32_t minus_12_sum;  // -12 times their sum, for weights stored as 12 + twice their value
  float scale;           // a power of two, or NaN when one of the activations is not finite
};
inline constexpr int kInt8Order[8] = {1, 5, 0, 4, 3, 7, 2, 6};
inline constexpr float kInt8Least = 0x1p-100f;  // the largest activation counts as at least this

// Rows of activations as the products read them: bf16 numbers, the two columns of every pair exchanged, column k at place
// k ^ 1, as in packed matrices (kernels/matrix.h); quantize_rows() and pair_rows() make them. After an odd last column
// comes a zero.
struct ActivationRows {
  const Bf16* values = nullptr;        // row i at values + i * stride, aligned to 4
  int64_t count = 0;
  int64_t stride = 0;
  const int32_t* row_index = nullptr;  // when set, row i is row row_index[i] of `values`
  const Int8Block* int8 =
      nullptr;  // when set, products of FP4 weights read these rows, stride / 32 blocks each, instead

  int64_t place(int64_t i) const { return row_index != nullptr ? row_index[i] : i; }
  const Bf16* row(int64_t i) const { return values + place(i) * stride; }
  const Int8Block* int8_row(int64_t i) const { return int8 + place(i) * (stride / kSumBlock); }

  // Rows [first, first + num_rows). Requires that they follow each other (no row_index).
  ActivationRows rows_from(int64_t first, int64_t num_rows) const {
    const Int8Block* blocks = int8 != nullptr ? int8 + first * (stride / kSumBlock) : nullptr;
    return {values + first * stride, num_rows, stride, nullptr, blocks};
  }
};

// Where a product goes: exactly one of the two. Row i at f32/bf16 + i * stride.
struct OutputRows {
  float* f32 = nullptr;
  Bf16* bf16 = nullptr;                // rounded once at the end
  int64_t stride = 0;
};

// One product of a list: y = W x.
struct LinearTask {
  MatrixView weights;                  // any kind but kF32
  ActivationRows x;
  OutputRows y;
};

// One hyper-connection mix of a token (docs/spec/model.md 3): A folds, P and C unfold.
struct HcMix {
  float a[4];
  float p[4];
  float c[4][4];
};
struct HcParams {
  MatrixView fn;                       // kF32 [24, 4 * hidden]
  const float* base = nullptr;         // [24]
  const float* scale = nullptr;        // [3]
  int64_t sinkhorn_iters = 20;
  float eps = 1e-6f;                   // hc_eps
  float norm_eps = 1e-20f;
};

// The rows one query attends to: window rows oldest first, then compressed rows ascending by position. Window row i has
// column i, compressed row j column window_columns + j; a chunk of the online softmax is kAttentionChunk columns.
inline constexpr int64_t kAttentionChunk = 64;
// A list is unpacked once for so many heads at most, and worth it for so many at least.
inline constexpr int64_t kMostAttentionHeads = 64, kAttentionHeads = 16;
struct AttentionList {
  const std::byte* const* window = nullptr;      // packed window rows
  const std::byte* const* compressed = nullptr;  // packed compressed rows
  int32_t num_window = 0;
  int32_t num_compressed = 0;
};
struct AttentionArgs {
  int64_t num_tokens = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;                // multiple of 32
  float softmax_scale = 0;             // head_dim^(-1/2)
  const float* sinks = nullptr;        // [num_heads]
  const Bf16* query = nullptr;         // [num_tokens][num_heads][head_dim], rotated
  const AttentionList* lists = nullptr;  // [num_tokens]
  Bf16* out = nullptr;                 // [num_tokens][num_heads][head_dim], not yet rotated back
  int64_t window_columns = 0;          // columns set aside for window rows, however few a list has

  // One past the last row of a list that shares a chunk with row `begin`.
  int64_t chunk_end(const AttentionList& list, int64_t begin) const;
};

// Index keys of one source layer: `rows_per_block` keys a block, all codes first, then all scales.
struct IndexKeys {
  const std::byte* const* blocks = nullptr;  // the layer's key section in each block of the sequence
  int64_t rows_per_block = 0;
  int64_t dim = 0;                     // multiple of 32
};
struct RowRun {
  int64_t first = 0;
  int64_t count = 0;
};
struct IndexScoreArgs {
  IndexKeys keys;
  int64_t num_heads = 0;
  const float* query = nullptr;        // [num_heads][dim], values after Q4i
  const float* head_weights = nullptr;  // [num_heads]
  std::span<const RowRun> runs;        // rows to score; each run within the sequence's rows
  float* scores = nullptr;             // one score a row, runs one after another
  std::byte* scratch = nullptr;        // index_scratch_bytes() of memory, aligned to 64
};

struct EngramGateArgs {
  int64_t hidden = 0;
  float norm_eps = 1e-20f;
  const Bf16* q_weight = nullptr;      // [4][hidden]
  const Bf16* k_weight = nullptr;      // [4][hidden]
  const Bf16* key_value = nullptr;     // row i at + i * 5 * hidden: key [4][hidden], value [hidden]
  Bf16* h = nullptr;                   // row i at + i * 4 * hidden, updated in place
};

struct Ops {
  std::string_view name;               // "ref", "avx2", ...

  // Row groups [first, end) of y = W x; `first` is a multiple of kChunkGroups (linear_list.h). Per output: acc
  // = sum over blocks of 32 columns, ascending, of (sum of the block's products, ascending from zero, each by
  // one fma) * w_scale. docs/spec/model.md 3, 4.1 (LinB, LinF, Lin8, Lin4). FP4 weights with INT8 activations: acc =
  // fma(n, w_scale * x_scale, acc), n the whole number that the block's codes and doubled weights add up to.
  void (*linear_groups)(const LinearTask& task, int64_t first, int64_t end);

  // Q8 of bf16 rows as an operand: code times scale, exact in bf16, in exchanged pairs. Requires cols % 32 == 0.
  void (*quantize_rows)(const Bf16* x, int64_t rows, int64_t cols, Bf16* values);

  // bf16 rows as an operand: the same numbers in exchanged pairs, [rows][cols rounded up to even].
  void (*pair_rows)(const Bf16* x, int64_t rows, int64_t cols, Bf16* values);

  // The same rows in INT8, from the result of quantize_rows: per block the smallest power of two as scale
  // with which no code is beyond +-127; codes to nearest, ties to even. `blocks`: [rows][cols / 32]. Codes of
  // E4M3 above an eighth of the largest of a block lose nothing.
  void (*encode_int8)(const Bf16* values, int64_t rows, int64_t cols, Int8Block* blocks);

  // out = bf((x * 1/sqrt(mean(x^2) + eps)) * weight), row by row; may alias. Sum of squares in blocks of 32.
  void (*rms_norm)(const Bf16* x, const Bf16* weight, int64_t rows, int64_t cols, float eps, Bf16* out);

  // Rotates adjacent pairs of the last `rotary_dim` of every head, in place: (a, b) -> bf(a cos - b sin), bf(a sin +
  // b cos). x: [rows][heads][dim] with row stride heads * dim; cos_sin: per row [rotary_dim] = cos and sin interleaved.
  // Inverse: sin negated. No fused operations. docs/spec/model.md 4.2.
  enum class Rotation { kForward, kInverse };
  void (*rotate)(Bf16* x, int64_t rows, int64_t heads, int64_t dim, int64_t rotary_dim,
                 const float* const* cos_sin, Rotation rotation);

  // Hyper-connections: mix of each token's streams h [rows][4][hidden], in two steps. First, for blocks [first, end) of
  // 32 columns of the streams laid end to end, the sums of products and of squares: sums[row][block][kHcSumStride].
  void (*hc_sums)(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, int64_t first, int64_t end,
                  float* sums);
  // Then, from the sums of all blocks, the mixes; products [rows][24] is left with the 24 numbers after the statistic.
  // Products as in linear_groups, but block sums add up in fp64 and are rounded once at the end.
  void (*hc_finish)(const HcParams& params, const float* sums, int64_t rows, int64_t hidden, float* products,
                    HcMix* mixes);
  // Both steps for all rows, in hc_scratch_bytes() of memory.
  void hc_mix(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, float* products, HcMix* mixes,
              std::byte* scratch) const;
  // x[d] = bf(sum_i w[i] h[i][d]); weights at w + row * weight_stride floats.
  void (*hc_fold)(const Bf16* h, const float* weights, int64_t weight_stride, int64_t rows,
                  int64_t hidden, Columns columns, Bf16* x);
  // h[j][d] = bf(P[j] y[d] + sum_i C[i][j] h[i][d]) in place.
  void (*hc_unfold)(const Bf16* y, const HcMix* mixes, int64_t rows, int64_t hidden, Columns columns, Bf16* h);

  // a = bf(weight * (silu(min(g, limit)) * clamp(u, +-limit))); weights null = 1 (shared expert). docs/spec/model.md 7.
  void (*swiglu)(const Bf16* gate, const Bf16* up, const float* weights, int64_t rows, int64_t cols,
                 float limit, Bf16* out);

  // out[row] = bf(0 + x[index[row][0]] + x[index[row][1]] + ...), `count` rows of x each, in the order of the index.
  void (*sum_rows)(const Bf16* x, const int32_t* index, int64_t count, int64_t rows, int64_t cols, Columns columns,
                   Bf16* out);

  // o_h = bf(sum_i exp(s_i) u_i / (sum_i exp(s_i) + exp(sink_h))), zeros for an empty list, as the reference rounds it:
  // chunk by chunk with m = max of s so far, p_i = exp(s_i - m), older sums times exp(m_old - m); the weighted sum takes
  // bf(p_i), the denominator p_i (docs/spec/model.md 4.5). Heads [first_head, first_head + heads) of one token, in
  // attention_scratch_bytes() of memory; first_head is a multiple of kAttentionHeads, heads at most kMostAttentionHeads.
  void (*attend)(const AttentionArgs& args, int64_t token, int64_t first_head, int64_t heads, std::byte* scratch);

  // score_j = sum_h w_h * max(0, q_h . k_j), heads ascending, one fma each. docs/spec/model.md 5.
  void (*index_scores)(const IndexScoreArgs&);

  // Adds the gated Engram value to every stream. docs/spec/model.md 6.3.
  void (*engram_gate)(const EngramGateArgs&, int64_t rows);

  // latent[c] = bf(softmax over the pair (g0, g1) . (a0, a1)) per channel, before its norm. docs/spec/model.md 4.4.
  void (*pool_pair)(const float* value0, const float* gate0, const float* value1, const float* gate1, int64_t dim,
                    Bf16* latent);
};

// Rows that hc_sums takes at once, and its numbers per block of columns: 24 sums of products, the sum of squares, padding.
inline constexpr int64_t kHcRowTile = 4;
inline constexpr int64_t kHcSumStride = 32;

// Bytes of scratch that attend, index_scores and hc_mix need for these sizes.
size_t attention_scratch_bytes(int64_t max_list, int64_t head_dim);
size_t index_scratch_bytes(int64_t num_heads, int64_t index_head_dim);
size_t hc_scratch_bytes(int64_t hidden);

// The table of a name ("ref", "avx2", "avx512", "avx512vnni", "avx512bf16", "neon"), or for "auto" that of the environment variable
// DEEPINFER_ISA, without it the best this processor has. kInvalidArgument for an unknown name, kUnimplemented when the
// processor lacks it.
Result<const Ops*> select_ops(std::string_view name);

}  // namespace deepinfer
