// Products and activation rows.
#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {
namespace {

// acc = sum over blocks b of (sum_{k in b} w_k x_k) * a_s[b] * w_s[b]; the scales are powers of two, hence exact.
template <typename Total>
float block_dot(const MatrixView& w, int64_t row, const float* x, const float* scales) {
  Total acc = 0;
  for (int64_t block = 0; block < w.num_blocks(); ++block) {
    const int64_t begin = block * kSumBlock;
    const int64_t end = std::min(begin + kSumBlock, w.cols);
    float partial = 0;
    for (int64_t k = begin; k < end; ++k) partial = std::fma(w.element(row, k), x[k], partial);
    if (scales != nullptr) partial *= scales[block];
    acc += partial * w.scale(row, begin);
  }
  return static_cast<float>(acc);
}

float dot(const MatrixView& w, int64_t row, const float* x, const float* scales) {
  return w.kind == MatrixKind::kF32 ? block_dot<double>(w, row, x, scales) : block_dot<float>(w, row, x, scales);
}

}  // namespace

void linear(KernelContext& ctx, const MatrixView& weights, const ActivationRows& x, const OutputRows& y) {
  ctx.pool->parallel_for(weights.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < x.count; ++i) {
      const int64_t source = x.row_index != nullptr ? x.row_index[i] : i;
      const float* values = x.values + source * x.stride;
      const float* scales = x.scales != nullptr ? x.scales + source * x.scale_stride : nullptr;
      for (int64_t n = begin; n < end; ++n) {
        const float acc = dot(weights, n, values, scales);
        if (y.f32 != nullptr) {
          y.f32[i * y.stride + n] = acc;
        } else {
          y.bf16[i * y.stride + n] = to_bf16(acc);
        }
      }
    }
  });
}

void quantize_rows(KernelContext&, const Bf16* x, int64_t rows, int64_t cols, float* values, float* scales) {
  for (int64_t block = 0; block < rows * cols / 32; ++block) {
    uint8_t codes[32];
    scales[block] = e8m0_to_float(quantize_q8(x + 32 * block, codes));
    for (int i = 0; i < 32; ++i) values[32 * block + i] = e4m3_to_float(codes[i]);
  }
}

void widen_rows(KernelContext&, const Bf16* x, int64_t rows, int64_t cols, float* values) {
  for (int64_t i = 0; i < rows * cols; ++i) values[i] = to_float(x[i]);
}

}  // namespace deepinfer::ref
