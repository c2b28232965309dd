// AVX2 + FMA products. Lanes are output rows, never terms of one sum, so the bits are those of kernels/ref.
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "kernels/linear_chunks.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "kernels/x86/avx2_math.h"

namespace deepinfer::avx2 {
namespace {

// One block of 32 columns of a row group as fp32 [32][16].
using WeightBlock = float[kSumBlock][kRowGroup];

inline __m256i load8(const std::byte* line, int half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(line + 32 * half));
}

// Lines of 64 bytes as in kernels/matrix.h.
void decode_fp8(const std::byte* line, WeightBlock& out) {
  const __m128i column[4] = {_mm_setr_epi8(1, -1, -1, -1, 3, -1, -1, -1, 5, -1, -1, -1, 7, -1, -1, -1),
                             _mm_setr_epi8(0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6, -1, -1, -1),
                             _mm_setr_epi8(9, -1, -1, -1, 11, -1, -1, -1, 13, -1, -1, -1, 15, -1, -1, -1),
                             _mm_setr_epi8(8, -1, -1, -1, 10, -1, -1, -1, 12, -1, -1, -1, 14, -1, -1, -1)};
  for (int64_t k = 0; k < kSumBlock; k += 4, line += 64) {
    for (int half = 0; half < 2; ++half) {
      const __m256i codes = load8(line, half);
      for (int i = 0; i < 4; ++i) {
        const __m256i wide = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(column[i]));
        _mm256_store_ps(out[k + i] + 8 * half, decode_e4m3(wide));
      }
    }
  }
}

void decode_fp4(const std::byte* line, WeightBlock& out) {
  for (int64_t k = 0; k < kSumBlock; k += 8, line += 64) {
    for (int half = 0; half < 2; ++half) {
      const __m256i codes = load8(line, half);
      for (int i = 0; i < 8; ++i) {
        const __m256i shifted = _mm256_srli_epi32(codes, (i % 2 == 0 ? 16 : 0) + i / 2 * 4);
        _mm256_store_ps(out[k + i] + 8 * half, decode_e2m1(shifted));
      }
    }
  }
}

void decode_bf16(const std::byte* line, int64_t length, WeightBlock& out) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  for (int64_t k = 0; k < length; k += 2, line += 64) {
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = load8(line, half);
      _mm256_store_ps(out[k] + 8 * half, _mm256_castsi256_ps(_mm256_and_si256(pairs, upper)));
      _mm256_store_ps(out[k + 1] + 8 * half, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
    }
  }
}

// The block's elements, and the scales of its 16 rows.
void decode_block(const MatrixView& w, int64_t group, int64_t block, int64_t length, WeightBlock& out, float* scales) {
  const std::byte* data = w.data + group * w.group_bytes();
  switch (w.kind) {
    case MatrixKind::kFp8:
      decode_fp8(data + block * kSumBlock * 16, out);
      std::fill_n(scales, kRowGroup, e8m0_to_float(w.scales[group * kRowGroup / 32 * w.num_blocks() + block]));
      return;
    case MatrixKind::kFp4: {
      decode_fp4(data + block * kSumBlock * 8, out);
      const uint8_t* codes = w.scales + (group * w.num_blocks() + block) * kRowGroup;
      for (int64_t r = 0; r < kRowGroup; ++r) scales[r] = e8m0_to_float(codes[r]);
      return;
    }
    case MatrixKind::kBf16:
    case MatrixKind::kF32:
      decode_bf16(data + block * kSumBlock * 32, length, out);
      std::fill_n(scales, kRowGroup, 1.0f);
      return;
  }
}

constexpr int kTokenTile = 4;

// acc[t] += (sum over the block of w x_t) * w_scale for `count` <= 4 tokens: eight independent chains.
template <int kCount>
inline void accumulate_block(const WeightBlock& w, int64_t length, const float (*x)[kSumBlock], const float* scales,
                             float (*acc)[kRowGroup]) {
  __m256 low[kCount], high[kCount];
  for (int t = 0; t < kCount; ++t) low[t] = high[t] = _mm256_setzero_ps();
  for (int64_t k = 0; k < length; ++k) {
    const __m256 w_low = _mm256_load_ps(w[k]), w_high = _mm256_load_ps(w[k] + 8);
    for (int t = 0; t < kCount; ++t) {
      const __m256 value = _mm256_broadcast_ss(x[t] + k);
      low[t] = _mm256_fmadd_ps(w_low, value, low[t]);
      high[t] = _mm256_fmadd_ps(w_high, value, high[t]);
    }
  }
  const __m256 s_low = _mm256_load_ps(scales), s_high = _mm256_load_ps(scales + 8);
  for (int t = 0; t < kCount; ++t) {
    _mm256_store_ps(acc[t], _mm256_add_ps(_mm256_load_ps(acc[t]), _mm256_mul_ps(low[t], s_low)));
    _mm256_store_ps(acc[t] + 8, _mm256_add_ps(_mm256_load_ps(acc[t] + 8), _mm256_mul_ps(high[t], s_high)));
  }
}

// The block's columns of a row of activations as fp32, in order.
void widen_block(const Bf16* pairs, int64_t length, float* x) {
  for (int64_t k = 0; k < length; ++k) x[k] = to_float(pairs[k ^ 1]);
}

template <int kCount>
void accumulate_tile(const WeightBlock& w, const ActivationRows& x, int64_t first, int64_t block, int64_t length,
                     const float* scales, float (*acc)[kRowGroup]) {
  alignas(32) float values[kCount][kSumBlock];
  for (int t = 0; t < kCount; ++t) widen_block(x.row(first + t) + block * kSumBlock, length, values[t]);
  accumulate_block<kCount>(w, length, values, scales, acc);
}

constexpr int64_t kMaxTokens = 64;  // tokens that share one decoding of a weight block; bounds the stack

void store_outputs(const float (*acc)[kRowGroup], int64_t first, int64_t count, int64_t row, int64_t lanes,
                   const OutputRows& y) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < lanes; ++r) {
      const int64_t index = (first + i) * y.stride + row + r;
      if (y.f32 != nullptr) {
        y.f32[index] = acc[i][r];
      } else {
        y.bf16[index] = to_bf16(acc[i][r]);
      }
    }
  }
}

void linear_group(const MatrixView& w, int64_t group, const ActivationRows& x, const OutputRows& y) {
  const int64_t lanes = std::min(kRowGroup, w.rows - group * kRowGroup);
  for (int64_t first = 0; first < x.count; first += kMaxTokens) {
    const int64_t count = std::min(kMaxTokens, x.count - first);
    alignas(32) float acc[kMaxTokens][kRowGroup];
    std::fill_n(&acc[0][0], count * kRowGroup, 0.0f);
    for (int64_t block = 0; block < w.num_blocks(); ++block) {
      const int64_t length = std::min(kSumBlock, w.cols - block * kSumBlock);
      alignas(32) WeightBlock weights;
      alignas(32) float scales[kRowGroup];
      decode_block(w, group, block, length, weights, scales);
      int64_t t = 0;
      for (; t + kTokenTile <= count; t += kTokenTile) {
        accumulate_tile<kTokenTile>(weights, x, first + t, block, length, scales, acc + t);
      }
      for (; t < count; ++t) accumulate_tile<1>(weights, x, first + t, block, length, scales, acc + t);
    }
    store_outputs(acc, first, count, group * kRowGroup, lanes, y);
  }
}

}  // namespace

void linear_list(KernelContext& ctx, std::span<const LinearTask> tasks) {
  for_each_chunk(*ctx.pool, tasks, [](const LinearTask& task, int64_t first, int64_t count) {
    for (int64_t group = first; group < first + count; ++group) linear_group(task.weights, group, task.x, task.y);
  });
}

}  // namespace deepinfer::avx2

#pragma GCC pop_options

#endif
