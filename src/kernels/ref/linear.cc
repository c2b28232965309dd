// Products and activation rows.
#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {
namespace {

constexpr int64_t kTokens = 32;  // that share one decoding of a weight

// acc[i] = sum over blocks b of (sum_{k in b} w_k x_ik) * w_s[b] for `count` rows of x from `first` on; the scales are powers of
// two, hence exact.
void dot(const MatrixView& w, int64_t row, const ActivationRows& x, int64_t first, int64_t count, float* acc) {
  std::fill_n(acc, count, 0.0f);
  for (int64_t block = 0; block < w.num_blocks(); ++block) {
    const int64_t begin = block * kSumBlock;
    const int64_t end = std::min(begin + kSumBlock, w.cols);
    float weights[kSumBlock];
    for (int64_t k = begin; k < end; ++k) weights[k - begin] = w.element(row, k);
    const float scale = w.scale(row, begin);
    for (int64_t i = 0; i < count; ++i) {
      const Bf16* values = x.row(first + i);
      float partial = 0;
      for (int64_t k = begin; k < end; ++k) partial = std::fma(weights[k - begin], to_float(values[k ^ 1]), partial);
      acc[i] += partial * scale;
    }
  }
}

// The same in the fast mode: whole numbers within a block.
float dot_int8(const MatrixView& w, int64_t row, const Int8Block* x) {
  float acc = 0;
  for (int64_t block = 0; block < w.num_blocks(); ++block) {
    int32_t sum = 0;
    for (int64_t i = 0; i < kSumBlock; ++i) {
      const int64_t col = block * kSumBlock + i / 8 * 8 + kInt8Order[i % 8];
      sum += static_cast<int32_t>(2 * w.element(row, col)) * x[block].codes[i];
    }
    acc = std::fma(static_cast<float>(sum), w.scale(row, block * kSumBlock) * x[block].scale, acc);
  }
  return acc;
}

}  // namespace

void linear_groups(const LinearTask& task, int64_t first, int64_t end) {
  const auto& [weights, x, y] = task;
  CHECK(weights.kind != MatrixKind::kF32);
  const bool fast = weights.kind == MatrixKind::kFp4 && x.int8 != nullptr;
  for (int64_t n = first * kRowGroup; n < std::min(end * kRowGroup, weights.rows); ++n) {
    for (int64_t start = 0; start < x.count; start += kTokens) {
      const int64_t count = std::min(kTokens, x.count - start);
      float acc[kTokens];
      if (fast) {
        for (int64_t i = 0; i < count; ++i) acc[i] = dot_int8(weights, n, x.int8_row(start + i));
      } else {
        dot(weights, n, x, start, count, acc);
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = (start + i) * y.stride + n;
        if (y.f32 != nullptr) {
          y.f32[place] = acc[i];
        } else {
          y.bf16[place] = to_bf16(acc[i]);
        }
      }
    }
  }
}

void quantize_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values) {
  for (int64_t block = 0; block < rows * cols / 32; ++block) {
    uint8_t codes[32];
    const float scale = e8m0_to_float(quantize_q8(x + 32 * block, codes));
    for (int i = 0; i < 32; ++i) values[32 * block + (i ^ 1)] = to_bf16(e4m3_to_float(codes[i]) * scale);
  }
}

void encode_int8(const Bf16* values, int64_t rows, int64_t cols, Int8Block* blocks) {
  for (int64_t block = 0; block < rows * cols / kSumBlock; ++block) {
    const Bf16* x = values + kSumBlock * block;
    Int8Block& out = blocks[block];
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < kSumBlock; ++i) {
      const float magnitude = std::fabs(to_float(x[i]));
      largest = std::max(largest, magnitude);
      finite = finite && magnitude < INFINITY;
    }
    if (!finite) {
      out = {.codes = {}, .minus_12_sum = 0, .scale = NAN};
      continue;
    }
    const float scale = e8m0_to_float(power_of_two_ceiling(std::max(largest, kInt8Least) * (1.0f / 127.0f)));
    int32_t sum = 0;
    for (int i = 0; i < kSumBlock; ++i) {
      const int col = i / 8 * 8 + kInt8Order[i % 8];
      out.codes[i] = static_cast<int8_t>(std::nearbyint(to_float(x[col ^ 1]) / scale));
      sum += out.codes[i];
    }
    out.minus_12_sum = -12 * sum;
    out.scale = 0.5f * scale;
  }
}

void pair_rows(const Bf16* x, int64_t rows, int64_t cols, Bf16* values) {
  const int64_t width = (cols + 1) / 2 * 2;
  for (int64_t row = 0; row < rows; ++row, x += cols, values += width) {
    values[width - 2] = {};
    for (int64_t k = 0; k < cols; ++k) values[k ^ 1] = x[k];
  }
}

}  // namespace deepinfer::ref
