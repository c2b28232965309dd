// AVX2 + FMA versions of the heavy ops. Same order of every sum as kernels/ref, hence the same bits: lanes are output
// rows (products), heads (scores), channels (weighted sums) or keys (index), never terms of one sum.
//
// Instruction-set code is enabled by the target pragma below, after all standard headers.
#include "kernels/x86/avx2.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/quantize.h"
#include "kernels/ref/ref_ops.h"

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace deepinfer::avx2 {
namespace {

// ---- decoding ------------------------------------------------------------------------------------------------------

// Eight E4M3 codes to fp32.
inline __m256 decode_e4m3(__m256i codes) {
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7f));
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(0x80)), 24);
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
  const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f));
  const __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
  const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  const __m256 value =
      _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal, _mm256_castsi256_ps(is_subnormal));
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(value), is_nan), sign));
}

inline __m256 load_e4m3(const void* codes) {
  return decode_e4m3(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(codes))));
}

// Eight E2M1 codes (low four bits of each lane) to fp32.
inline __m256 decode_e2m1(__m256i codes) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
  return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign));
}

// Eight consecutive values of a packed FP4 row (four bytes, the low nibble first).
inline __m256 load_e2m1(const void* packed) {
  int32_t word;
  __builtin_memcpy(&word, packed, sizeof(word));
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
  return decode_e2m1(_mm256_and_si256(codes, _mm256_set1_epi32(15)));
}

inline __m256 load_bf16(const Bf16* values) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

void unpack_window_row8(const std::byte* row, int64_t dim, float* x) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim;
  for (int64_t i = 0; i < dim; i += 8) {
    const __m256 scale = _mm256_set1_ps(e8m0_to_float(scales[i / 32]));
    _mm256_storeu_ps(x + i, _mm256_mul_ps(load_e4m3(row + i), scale));
  }
}

void unpack_compressed_row8(const std::byte* row, int64_t dim, float* x) {
  const auto* scales = reinterpret_cast<const uint8_t*>(row) + dim / 2;
  for (int64_t i = 0; i < dim; i += 8) {
    const __m256 scale = _mm256_set1_ps(e4m3_to_float(scales[i / 16]));
    _mm256_storeu_ps(x + i, _mm256_mul_ps(load_e2m1(row + i / 2), scale));
  }
}

void unpack_index_row8(const std::byte* codes, const std::byte* scales, int64_t dim, float* x) {
  for (int64_t i = 0; i < dim; i += 8) {
    const __m256 scale = _mm256_set1_ps(e8m0_to_float(static_cast<uint8_t>(scales[i / 32])));
    _mm256_storeu_ps(x + i, _mm256_mul_ps(load_e2m1(codes + i / 2), scale));
  }
}

// ---- products ------------------------------------------------------------------------------------------------------

// One block of 32 columns of a row group as fp32 [32][16].
using WeightBlock = float[kSumBlock][kRowGroup];

void decode_block(const MatrixView& w, const std::byte* group, int64_t begin, int64_t end, WeightBlock& out) {
  switch (w.kind) {
    case MatrixKind::kFp8:
      for (int64_t k = begin; k < end; ++k) {
        _mm256_store_ps(out[k - begin], load_e4m3(group + k * kRowGroup));
        _mm256_store_ps(out[k - begin] + 8, load_e4m3(group + k * kRowGroup + 8));
      }
      return;
    case MatrixKind::kFp4:
      for (int64_t k = begin; k < end; k += 2) {
        for (int half = 0; half < 16; half += 8) {
          const std::byte* pairs = group + k / 2 * kRowGroup + half;
          const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs)));
          _mm256_store_ps(out[k - begin] + half, decode_e2m1(_mm256_and_si256(codes, _mm256_set1_epi32(15))));
          _mm256_store_ps(out[k - begin + 1] + half, decode_e2m1(_mm256_srli_epi32(codes, 4)));
        }
      }
      return;
    case MatrixKind::kBf16:
      for (int64_t k = begin; k < end; ++k) {
        const Bf16* values = reinterpret_cast<const Bf16*>(group) + k * kRowGroup;
        _mm256_store_ps(out[k - begin], load_bf16(values));
        _mm256_store_ps(out[k - begin] + 8, load_bf16(values + 8));
      }
      return;
    case MatrixKind::kF32:
      __builtin_memcpy(out, reinterpret_cast<const float*>(group) + begin * kRowGroup,
                       static_cast<size_t>(end - begin) * kRowGroup * sizeof(float));
      return;
  }
}

// Scales of the 16 rows of a group for one block of columns.
void load_scales(const MatrixView& w, int64_t group, int64_t block, float* out) {
  switch (w.kind) {
    case MatrixKind::kFp8:
      std::fill_n(out, kRowGroup, e8m0_to_float(w.scales[group * kRowGroup / 32 * w.num_blocks() + block]));
      return;
    case MatrixKind::kFp4:
      for (int64_t r = 0; r < kRowGroup; ++r) {
        out[r] = e8m0_to_float(w.scales[(group * w.num_blocks() + block) * kRowGroup + r]);
      }
      return;
    case MatrixKind::kBf16:
    case MatrixKind::kF32: std::fill_n(out, kRowGroup, 1.0f); return;
  }
}

constexpr int kTokenTile = 4;

inline void add_to(float* acc, __m256 terms) { _mm256_store_ps(acc, _mm256_add_ps(_mm256_load_ps(acc), terms)); }
inline void add_to(double* acc, __m256 terms) {
  const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(terms));
  const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(terms, 1));
  _mm256_store_pd(acc, _mm256_add_pd(_mm256_load_pd(acc), first));
  _mm256_store_pd(acc + 4, _mm256_add_pd(_mm256_load_pd(acc + 4), second));
}

// acc[t] += (sum over the block of w x_t) * a_scale_t * w_scale for `count` <= 4 tokens: eight independent chains.
template <int kCount, typename Total>
inline void accumulate_block(const WeightBlock& w, int64_t length, const float* const* x, const float* a_scales,
                             const float* w_scales, Total (*acc)[kRowGroup]) {
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
  const __m256 s_low = _mm256_loadu_ps(w_scales), s_high = _mm256_loadu_ps(w_scales + 8);
  for (int t = 0; t < kCount; ++t) {
    const __m256 a_scale = _mm256_set1_ps(a_scales[t]);
    add_to(acc[t], _mm256_mul_ps(_mm256_mul_ps(low[t], a_scale), s_low));
    add_to(acc[t] + 8, _mm256_mul_ps(_mm256_mul_ps(high[t], a_scale), s_high));
  }
}

// The rows of a call, resolved once.
struct TokenRow {
  const float* values;
  const float* scales;
};
inline TokenRow token_row(const ActivationRows& x, int64_t i) {
  const int64_t source = x.row_index != nullptr ? x.row_index[i] : i;
  return {x.values + source * x.stride, x.scales != nullptr ? x.scales + source * x.scale_stride : nullptr};
}

template <int kCount, typename Total>
void accumulate_tile(const WeightBlock& w, const ActivationRows& x, int64_t first, int64_t block, int64_t length,
                     const float* w_scales, Total (*acc)[kRowGroup]) {
  const float* values[kCount];
  float a_scales[kCount];
  for (int t = 0; t < kCount; ++t) {
    const TokenRow row = token_row(x, first + t);
    values[t] = row.values + block * kSumBlock;
    a_scales[t] = row.scales != nullptr ? row.scales[block] : 1.0f;
  }
  accumulate_block<kCount>(w, length, values, a_scales, w_scales, acc);
}

constexpr int64_t kMaxTokens = 64;  // tokens that share one decoding of a weight block; bounds the stack

template <typename Total>
void store_outputs(const Total (*acc)[kRowGroup], int64_t first, int64_t count, int64_t row, int64_t lanes,
                   const OutputRows& y) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < lanes; ++r) {
      const int64_t index = (first + i) * y.stride + row + r;
      const auto value = static_cast<float>(acc[i][r]);
      if (y.f32 != nullptr) {
        y.f32[index] = value;
      } else {
        y.bf16[index] = to_bf16(value);
      }
    }
  }
}

template <typename Total>
void linear_group(const MatrixView& w, int64_t group, const ActivationRows& x, const OutputRows& y) {
  const std::byte* data = w.data + group * w.group_bytes();
  const int64_t lanes = std::min(kRowGroup, w.rows - group * kRowGroup);
  for (int64_t first = 0; first < x.count; first += kMaxTokens) {
    const int64_t count = std::min(kMaxTokens, x.count - first);
    alignas(32) Total acc[kMaxTokens][kRowGroup];
    std::fill_n(&acc[0][0], count * kRowGroup, Total{0});
    for (int64_t block = 0; block < w.num_blocks(); ++block) {
      const int64_t begin = block * kSumBlock, end = std::min(begin + kSumBlock, w.cols);
      alignas(32) WeightBlock weights;
      float w_scales[kRowGroup];
      decode_block(w, data, begin, end, weights);
      load_scales(w, group, block, w_scales);
      int64_t t = 0;
      for (; t + kTokenTile <= count; t += kTokenTile) {
        accumulate_tile<kTokenTile>(weights, x, first + t, block, end - begin, w_scales, acc + t);
      }
      for (; t < count; ++t) accumulate_tile<1>(weights, x, first + t, block, end - begin, w_scales, acc + t);
    }
    store_outputs(acc, first, count, group * kRowGroup, lanes, y);
  }
}

}  // namespace

void linear(KernelContext& ctx, const MatrixView& weights, const ActivationRows& x, const OutputRows& y) {
  // A range should be worth a fork: about 10,000 multiply-adds.
  const int64_t work_per_group = kRowGroup * weights.cols * std::max<int64_t>(1, x.count);
  const int64_t grain = std::max<int64_t>(1, 10000 / std::max<int64_t>(1, work_per_group));
  ctx.pool->parallel_for(weights.num_groups(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      if (weights.kind == MatrixKind::kF32) {
        linear_group<double>(weights, group, x, y);
      } else {
        linear_group<float>(weights, group, x, y);
      }
    }
  });
}

void widen_rows(KernelContext&, const Bf16* x, int64_t rows, int64_t cols, float* values) {
  const int64_t count = rows * cols;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(values + i, load_bf16(x + i));
  for (; i < count; ++i) values[i] = to_float(x[i]);
}

// ---- norms ---------------------------------------------------------------------------------------------------------

namespace {

// Sum of squares in blocks of 32; eight blocks at a time are eight independent chains.
float sum_squares(const float* x, int64_t count) {
  float total = 0;
  int64_t begin = 0;
  for (; begin + 8 * kSumBlock <= count; begin += 8 * kSumBlock) {
    float partial[8] = {};
    for (int64_t i = 0; i < kSumBlock; ++i) {
      for (int b = 0; b < 8; ++b) {
        const float value = x[begin + b * kSumBlock + i];
        partial[b] = __builtin_fmaf(value, value, partial[b]);
      }
    }
    for (const float part : partial) total += part;
  }
  for (; begin < count; begin += kSumBlock) {
    float partial = 0;
    for (int64_t i = begin; i < std::min(begin + kSumBlock, count); ++i) partial = __builtin_fmaf(x[i], x[i], partial);
    total += partial;
  }
  return total;
}

}  // namespace

void hc_mix(KernelContext& ctx, const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, float* widened,
            float* products, HcMix* mixes) {
  const int64_t width = 4 * hidden;
  widen_rows(ctx, h, rows, width, widened);
  linear(ctx, params.fn, {.values = widened, .count = rows, .stride = width}, {.f32 = products, .stride = 24});
  ctx.pool->parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float mean = sum_squares(widened + row * width, width) / static_cast<float>(width);
      const float rho = 1.0f / std::sqrt(mean + params.norm_eps);
      float* m = products + row * 24;
      for (int j = 0; j < 24; ++j) m[j] *= rho;
      mixes[row] = ref::finish_mix(params, m);
    }
  });
}

// ---- attention -----------------------------------------------------------------------------------------------------

namespace {

// exp_f32 of eight values, the same operations in the same order.
inline __m256 exp8(__m256 x) {
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2e)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), r);
  __m256 p = _mm256_set1_ps(kExpPolynomial[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPolynomial[i]));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  const __m256 scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  const __m256 too_low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_LT_OQ);
  const __m256 too_high = _mm256_cmp_ps(x, _mm256_set1_ps(kExpHighest), _CMP_GT_OQ);
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  __m256 result = _mm256_andnot_ps(too_low, scaled);
  result = _mm256_blendv_ps(result, _mm256_set1_ps(INFINITY), too_high);
  return _mm256_blendv_ps(result, x, is_nan);
}

constexpr int64_t kKeyTile = 8;

// Dot products of up to eight fp32 rows with eight queries at once: lane = query. query_t: [dim][query_stride].
template <int kRows>
inline void dot_tile(const float* rows, int64_t dim, const float* query_t, int64_t query_stride, __m256* dots) {
  for (int i = 0; i < kRows; ++i) dots[i] = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < dim; begin += kSumBlock) {
    __m256 partial[kRows];
    for (int i = 0; i < kRows; ++i) partial[i] = _mm256_setzero_ps();
    for (int64_t d = begin; d < begin + kSumBlock; ++d) {
      const __m256 query = _mm256_loadu_ps(query_t + d * query_stride);
      for (int i = 0; i < kRows; ++i) {
        partial[i] = _mm256_fmadd_ps(query, _mm256_broadcast_ss(rows + i * dim + d), partial[i]);
      }
    }
    for (int i = 0; i < kRows; ++i) dots[i] = _mm256_add_ps(dots[i], partial[i]);
  }
}

// [heads][dim] to [dim][8 * ceil(heads / 8)], missing heads zero.
template <typename Load>
void transpose_queries(int64_t heads, int64_t dim, int64_t stride, Load&& load, float* query_t) {
  for (int64_t d = 0; d < dim; ++d) {
    for (int64_t h = 0; h < stride; ++h) query_t[d * stride + h] = h < heads ? load(h, d) : 0.0f;
  }
}

// Scores of eight heads against all rows: scores[i * 8].
void attention_scores(const float* rows, int64_t count, int64_t dim, const float* query_t, __m256 scale, float* scores) {
  int64_t i = 0;
  __m256 dots[kKeyTile];
  for (; i + kKeyTile <= count; i += kKeyTile) {
    dot_tile<kKeyTile>(rows + i * dim, dim, query_t, 8, dots);
    for (int64_t j = 0; j < kKeyTile; ++j) _mm256_storeu_ps(scores + (i + j) * 8, _mm256_mul_ps(dots[j], scale));
  }
  for (; i < count; ++i) {
    dot_tile<1>(rows + i * dim, dim, query_t, 8, dots);
    _mm256_storeu_ps(scores + i * 8, _mm256_mul_ps(dots[0], scale));
  }
}

// bf(x) of eight numbers as fp32; finite or infinite.
inline __m256 round_bf16_8(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Turns the scores of eight heads into the weights of the sum, chunk by chunk; factors[c * 8] is what chunk c makes of
// the sums before it. Returns the denominators.
__m256 softmax_weights(const AttentionArgs& args, const AttentionList& list, int64_t count, __m256 sinks, float* scores,
                       float* factors) {
  __m256 peak = _mm256_set1_ps(-INFINITY), total = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < count; factors += 8) {
    const int64_t end = args.chunk_end(list, begin);
    const __m256 old_peak = peak;
    for (int64_t i = begin; i < end; ++i) peak = _mm256_max_ps(_mm256_loadu_ps(scores + i * 8), peak);
    const __m256 factor = exp8(_mm256_sub_ps(old_peak, peak));
    _mm256_storeu_ps(factors, factor);
    __m256 chunk_total = _mm256_setzero_ps();
    for (; begin < end; begin += kSumBlock) {
      __m256 partial = _mm256_setzero_ps();
      for (int64_t i = begin; i < std::min(begin + kSumBlock, end); ++i) {
        const __m256 weight = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + i * 8), peak));
        _mm256_storeu_ps(scores + i * 8, round_bf16_8(weight));
        partial = _mm256_add_ps(partial, weight);
      }
      chunk_total = _mm256_add_ps(chunk_total, partial);
    }
    begin = end;
    total = _mm256_fmadd_ps(total, factor, chunk_total);
  }
  return _mm256_add_ps(total, exp8(_mm256_sub_ps(sinks, peak)));
}

// out[d] = bf(sum_i weights[i * 8] rows[i][d] / total) for 32 channels from d, chunk by chunk.
void weighted_sum32(const AttentionArgs& args, const AttentionList& list, const float* rows, int64_t count,
                    const float* weights, const float* factors, float total, Bf16* out) {
  const int64_t dim = args.head_dim;
  __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t begin = 0; begin < count; factors += 8) {
    const int64_t end = args.chunk_end(list, begin);
    __m256 chunk[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (; begin < end; begin += kSumBlock) {
      __m256 partial[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
      for (int64_t i = begin; i < std::min(begin + kSumBlock, end); ++i) {
        const __m256 weight = _mm256_broadcast_ss(weights + i * 8);
        for (int v = 0; v < 4; ++v) {
          partial[v] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(rows + i * dim + 8 * v), partial[v]);
        }
      }
      for (int v = 0; v < 4; ++v) chunk[v] = _mm256_add_ps(chunk[v], partial[v]);
    }
    begin = end;
    const __m256 factor = _mm256_broadcast_ss(factors);
    for (int v = 0; v < 4; ++v) sum[v] = _mm256_fmadd_ps(sum[v], factor, chunk[v]);
  }
  alignas(32) float values[32];
  for (int v = 0; v < 4; ++v) _mm256_store_ps(values + 8 * v, _mm256_div_ps(sum[v], _mm256_set1_ps(total)));
  for (int d = 0; d < 32; ++d) out[d] = to_bf16(values[d]);
}

// Heads [first, last) of one token; first is a multiple of 8.
void attend(const AttentionArgs& args, int64_t token, int64_t first, int64_t last, float* scratch) {
  const int64_t dim = args.head_dim;
  const AttentionList& list = args.lists[token];
  const int64_t count = list.num_window + list.num_compressed;
  const Bf16* query = args.query + token * args.num_heads * dim;
  Bf16* out = args.out + token * args.num_heads * dim;
  if (count == 0) {
    std::fill(out + first * dim, out + last * dim, Bf16{0});
    return;
  }
  float* rows = scratch;
  for (int32_t i = 0; i < list.num_window; ++i) unpack_window_row8(list.window[i], dim, rows + i * dim);
  for (int32_t i = 0; i < list.num_compressed; ++i) {
    unpack_compressed_row8(list.compressed[i], dim, rows + (list.num_window + i) * dim);
  }
  float* query_t = rows + count * dim;
  float* weights = query_t + 8 * dim;
  float* factors = weights + 8 * count;
  for (int64_t head = first; head < last; head += 8) {
    const int64_t heads = std::min<int64_t>(8, last - head);
    transpose_queries(heads, dim, 8, [&](int64_t h, int64_t d) { return to_float(query[(head + h) * dim + d]); },
                      query_t);
    alignas(32) float sinks[8] = {}, totals[8];
    std::copy_n(args.sinks + head, heads, sinks);
    attention_scores(rows, count, dim, query_t, _mm256_set1_ps(args.softmax_scale), weights);
    _mm256_store_ps(totals, softmax_weights(args, list, count, _mm256_load_ps(sinks), weights, factors));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < dim; d += 32) {
        weighted_sum32(args, list, rows + d, count, weights + h, factors + h, totals[h], out + (head + h) * dim + d);
      }
    }
  }
}

}  // namespace

void sparse_attention(KernelContext& ctx, const AttentionArgs& args) {
  const int64_t threads = ctx.pool->num_threads();
  // One token: its heads are split in groups of eight. Many tokens: one token a task.
  const int64_t head_groups = (args.num_heads + 7) / 8;
  const int64_t parts_per_token = args.num_tokens >= threads ? 1 : std::min(threads, head_groups);
  const int64_t tasks = args.num_tokens * parts_per_token;
  ctx.pool->parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      auto* scratch = reinterpret_cast<float*>(ctx.thread_scratch(thread));
      for (int64_t task = thread; task < tasks; task += threads) {
        const int64_t part = task % parts_per_token;
        const int64_t first = head_groups * part / parts_per_token * 8;
        const int64_t last = std::min(args.num_heads, head_groups * (part + 1) / parts_per_token * 8);
        attend(args, task / parts_per_token, first, last, scratch);
      }
    }
  });
}

namespace {

// Transposes eight vectors of eight lanes.
inline void transpose8(__m256* r) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  __m256 s[8];
  for (int i = 0; i < 8; i += 4) {
    s[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    s[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    s[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    s[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

const std::byte* key_codes(const IndexKeys& keys, int64_t row, const std::byte** scales) {
  const std::byte* block = keys.blocks[row / keys.rows_per_block];
  const int64_t slot = row % keys.rows_per_block;
  *scales = block + keys.rows_per_block * index_code_bytes(keys.dim) + slot * index_scale_bytes(keys.dim);
  return block + slot * index_code_bytes(keys.dim);
}

// Scores of `count` <= 8 consecutive rows.
void score_rows(const IndexScoreArgs& args, int64_t first, int64_t count, const float* query_t, int64_t stride,
                float* key_rows, float* scores) {
  const int64_t dim = args.keys.dim;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* scales = nullptr;
    const std::byte* codes = key_codes(args.keys, first + i, &scales);
    unpack_index_row8(codes, scales, dim, key_rows + i * dim);
  }
  __m256 sum = _mm256_setzero_ps();  // lane = key
  for (int64_t head = 0; head < args.num_heads; head += 8) {
    __m256 dots[kKeyTile];
    dot_tile<kKeyTile>(key_rows, dim, query_t + head, stride, dots);
    transpose8(dots);  // now vector = head, lane = key
    for (int64_t h = 0; h < std::min<int64_t>(8, args.num_heads - head); ++h) {
      const __m256 positive = _mm256_max_ps(dots[h], _mm256_setzero_ps());
      sum = _mm256_fmadd_ps(_mm256_set1_ps(args.head_weights[head + h]), positive, sum);
    }
  }
  alignas(32) float values[kKeyTile];
  _mm256_store_ps(values, sum);
  std::copy_n(values, count, scores);
}

}  // namespace

void index_scores(const IndexScoreArgs& args) {
  const int64_t dim = args.keys.dim, stride = (args.num_heads + 7) / 8 * 8;
  auto* query_t = reinterpret_cast<float*>(args.scratch);
  float* key_rows = query_t + dim * stride;
  transpose_queries(args.num_heads, dim, stride, [&](int64_t h, int64_t d) { return args.query[h * dim + d]; },
                    query_t);
  std::fill_n(key_rows, kKeyTile * dim, 0.0f);  // lanes beyond a short tile stay finite
  float* scores = args.scores;
  for (const RowRun& run : args.runs) {
    for (int64_t row = run.first; row < run.first + run.count; row += kKeyTile) {
      const int64_t count = std::min(kKeyTile, run.first + run.count - row);
      score_rows(args, row, count, query_t, stride, key_rows, scores);
      scores += count;
    }
  }
}

const Ops& table() {
  static const Ops ops = [] {
    Ops ops = ref::table();
    ops.name = "avx2";
    ops.linear = linear;
    ops.widen_rows = widen_rows;
    ops.hc_mix = hc_mix;
    ops.sparse_attention = sparse_attention;
    ops.index_scores = index_scores;
    return ops;
  }();
  return ops;
}

bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace deepinfer::avx2

#pragma GCC pop_options

#else

namespace deepinfer::avx2 {
const Ops& table() { return ref::table(); }
bool supported() { return false; }
}  // namespace deepinfer::avx2

#endif
