// The scalar reference of every op, written to be read beside docs/spec/model.md; the oracle of all other tables.
// Contracts: kernels/ops.h.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::ref {

void linear_groups(const LinearTask& task, int64_t first, int64_t end);
void quantize_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values);
void encode_int8(const Bf16* values, int64_t rows, int64_t cols, Int8Block* blocks);
void pair_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values);
void rms_norm(const Bf16* x, const Bf16* weight, int64_t rows, int64_t cols, float eps, Bf16* out);
void rotate(Bf16* x, int64_t rows, int64_t heads, int64_t dim, int64_t rotary_dim,
            const float* const* cos_sin, Ops::Rotation rotation);
void hc_sums(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, int64_t first, int64_t end, float* sums);
void hc_finish(const HcParams& params, const float* sums, int64_t rows, int64_t hidden, float* products, HcMix* mixes);
void hc_fold(const Bf16* h, const float* weights, int64_t weight_stride, int64_t rows, int64_t hidden, Columns columns,
             Bf16* x);
void hc_unfold(const Bf16* y, const HcMix* mixes, int64_t rows, int64_t hidden, Columns columns, Bf16* h);
void swiglu(const Bf16* gate, const Bf16* up, const float* weights, int64_t rows, int64_t cols,
            float limit, Bf16* out);
void sum_rows(const Bf16* x, const int32_t* index, int64_t count, int64_t rows, int64_t cols, Columns columns,
              Bf16* out);
void attend(const AttentionArgs& args, int64_t token, int64_t first_head, int64_t heads, std::byte* scratch);
void index_scores(const IndexScoreArgs& args);
void engram_gate(const EngramGateArgs& args, int64_t rows);
void pool_pair(const float* value0, const float* gate0, const float* value1, const float* gate1, int64_t dim,
               Bf16* latent);

// The reference as a table.
const Ops& table();

// The 24 numbers of a token (after the statistic) to A, P and C: sigmoids, row softmax, Sinkhorn. docs/spec/model.md 3.
HcMix finish_mix(const HcParams& params, const float* m);

// Sum of f(0) ... f(count - 1) in the order of docs/numerics.md: blocks of 32 from zero, then block after block.
// `add(partial, i)` returns the partial sum with term i added.
template <typename AddTerm>
float block_sum(int64_t count, AddTerm&& add) {
  float total = 0;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < count ? begin + kSumBlock : count;
    float partial = 0;
    for (int64_t i = begin; i < end; ++i) partial = add(partial, i);
    total += partial;
  }
  return total;
}

}  // namespace deepinfer::ref
