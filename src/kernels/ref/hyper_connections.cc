// Hyper-connections: mix, fold, unfold (docs/spec/model.md 3).
#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {

HcMix finish_mix(const HcParams& params, const float* m) {
  const float* base = params.base;
  const float* scale = params.scale;
  HcMix mix;
  for (int i = 0; i < 4; ++i) mix.a[i] = sigmoid_f32(m[i] * scale[0] + base[i]) + params.eps;
  for (int i = 0; i < 4; ++i) mix.p[i] = 2.0f * sigmoid_f32(m[4 + i] * scale[1] + base[4 + i]);

  auto& c = mix.c;
  for (int j = 0; j < 4; ++j) {
    for (int k = 0; k < 4; ++k) c[j][k] = m[8 + 4 * j + k] * scale[2] + base[8 + 4 * j + k];
    const float peak = std::fmax(std::fmax(c[j][0], c[j][1]), std::fmax(c[j][2], c[j][3]));
    for (float& entry : c[j]) entry = exp_f32(entry - peak);
    const float total = c[j][0] + c[j][1] + c[j][2] + c[j][3];
    for (float& entry : c[j]) entry = entry / total + params.eps;
  }
  const auto divide_columns = [&] {
    for (int k = 0; k < 4; ++k) {
      const float total = c[0][k] + c[1][k] + c[2][k] + c[3][k] + params.eps;
      for (int j = 0; j < 4; ++j) c[j][k] /= total;
    }
  };
  const auto divide_rows = [&] {
    for (int j = 0; j < 4; ++j) {
      const float total = c[j][0] + c[j][1] + c[j][2] + c[j][3] + params.eps;
      for (float& entry : c[j]) entry /= total;
    }
  };
  divide_columns();  // the softmax above was the first row step
  for (int64_t iteration = 1; iteration < params.sinkhorn_iters; ++iteration) {
    divide_rows();
    divide_columns();
  }
  return mix;
}

void hc_sums(const HcParams& params, const Bf16* h, int64_t rows, int64_t hidden, int64_t first, int64_t end, float* sums) {
  const int64_t width = 4 * hidden, num_blocks = params.fn.num_blocks();
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* x = h + row * width;
    for (int64_t block = first; block < end; ++block) {
      const int64_t last = std::min((block + 1) * kSumBlock, width);
      float* out = sums + (row * num_blocks + block) * kHcSumStride;
      std::fill_n(out, kHcSumStride, 0.0f);
      for (int64_t i = block * kSumBlock; i < last; ++i) {
        for (int j = 0; j < 24; ++j) out[j] = std::fma(params.fn.element(j, i), to_float(x[i]), out[j]);
        out[24] = std::fma(to_float(x[i]), to_float(x[i]), out[24]);
      }
    }
  }
}

void hc_finish(const HcParams& params, const float* sums, int64_t rows, int64_t hidden, float* products, HcMix* mixes) {
  for (int64_t row = 0; row < rows; ++row) {
    double acc[24] = {};
    float squares = 0;
    for (int64_t block = 0; block < params.fn.num_blocks(); ++block, sums += kHcSumStride) {
      for (int j = 0; j < 24; ++j) acc[j] += sums[j];
      squares += sums[24];
    }
    const float rho = 1.0f / std::sqrt(squares / static_cast<float>(4 * hidden) + params.norm_eps);
    float* m = products + row * 24;
    for (int j = 0; j < 24; ++j) m[j] = static_cast<float>(acc[j]) * rho;
    mixes[row] = finish_mix(params, m);
  }
}

void hc_fold(const Bf16* h, const float* weights, int64_t weight_stride, int64_t rows, int64_t hidden, Columns columns,
             Bf16* x) {
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* streams = h + row * 4 * hidden;
    const float* w = weights + row * weight_stride;
    for (int64_t d = columns.first; d < columns.end; ++d) {
      float sum = w[0] * to_float(streams[d]);
      for (int i = 1; i < 4; ++i) sum += w[i] * to_float(streams[i * hidden + d]);
      x[row * hidden + d] = to_bf16(sum);
    }
  }
}

void hc_unfold(const Bf16* y, const HcMix* mixes, int64_t rows, int64_t hidden, Columns columns, Bf16* h) {
  for (int64_t row = 0; row < rows; ++row) {
    Bf16* streams = h + row * 4 * hidden;
    const HcMix& mix = mixes[row];
    for (int64_t d = columns.first; d < columns.end; ++d) {
      float old[4];
      for (int i = 0; i < 4; ++i) old[i] = to_float(streams[i * hidden + d]);
      const float value = to_float(y[row * hidden + d]);
      for (int j = 0; j < 4; ++j) {
        float sum = mix.c[0][j] * old[0];
        for (int i = 1; i < 4; ++i) sum += mix.c[i][j] * old[i];
        streams[j * hidden + d] = to_bf16(mix.p[j] * value + sum);
      }
    }
  }
}

}  // namespace deepinfer::ref
