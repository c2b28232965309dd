// The AVX2 + FMA table (private to the kernels room). Products are in avx2_linear.cc, attention and index scores in
// avx2_attention.cc, everything that works on single rows in avx2_rows.cc. The AVX-512 tables take the last as they are.
#pragma once

#include "kernels/ops.h"

namespace deepinfer::avx2 {

const Ops& table();
bool supported();  // by this processor

void linear_list(KernelContext&, std::span<const LinearTask> tasks);
void sparse_attention(KernelContext&, const AttentionArgs& args);
void index_scores(const IndexScoreArgs& args);

void quantize_rows(KernelContext&, const Bf16* x, int64_t rows, int64_t cols, Bf16* values);
void pair_rows(KernelContext&, const Bf16* x, int64_t rows, int64_t cols, Bf16* values);
void rms_norm(KernelContext&, const Bf16* x, const Bf16* weight, int64_t rows, int64_t cols, float eps, Bf16* out);
void rotate(KernelContext&, Bf16* x, int64_t rows, int64_t heads, int64_t dim, int64_t rotary_dim,
            const float* const* cos_sin, Ops::Rotation rotation);
void hc_mix(KernelContext&, const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, float* products,
            HcMix* mixes);
void hc_fold(KernelContext&, const Bf16* h, const float* weights, int64_t weight_stride, int64_t rows, int64_t hidden,
             Bf16* x);
void hc_unfold(KernelContext&, const Bf16* y, const HcMix* mixes, int64_t rows, int64_t hidden, Bf16* h);
void swiglu(KernelContext&, const Bf16* gate, const Bf16* up, const float* weights, int64_t rows, int64_t cols,
            float limit, Bf16* out);
void sum_rows(KernelContext&, const Bf16* x, const int32_t* index, int64_t count, int64_t rows, int64_t cols, Bf16* out);
void engram_gate(KernelContext&, const EngramGateArgs& args, int64_t rows);

}  // namespace deepinfer::avx2
