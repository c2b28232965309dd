// Norm, rotation, SwiGLU, sums of rows, the pair pool of the compressor.
#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {

void rms_norm(const Bf16* x, const Bf16* weight, int64_t rows, int64_t cols, float eps, Bf16* out) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    const float squares = block_sum(cols, [&](float partial, int64_t d) {
      return std::fma(to_float(x[d]), to_float(x[d]), partial);
    });
    const float statistic = 1.0f / std::sqrt(squares / static_cast<float>(cols) + eps);
    for (int64_t d = 0; d < cols; ++d) out[d] = to_bf16(to_float(x[d]) * statistic * to_float(weight[d]));
  }
}

void rotate(Bf16* x, int64_t rows, int64_t heads, int64_t dim, int64_t rotary_dim,
            const float* const* cos_sin, Ops::Rotation rotation) {
  const float direction = rotation == Ops::Rotation::kForward ? 1.0f : -1.0f;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      Bf16* pairs = x + (row * heads + head) * dim + dim - rotary_dim;
      for (int64_t i = 0; i < rotary_dim; i += 2) {
        const float cosine = cos_sin[row][i], sine = direction * cos_sin[row][i + 1];
        const float a = to_float(pairs[i]), b = to_float(pairs[i + 1]);
        pairs[i] = to_bf16(a * cosine - b * sine);
        pairs[i + 1] = to_bf16(a * sine + b * cosine);
      }
    }
  }
}

void swiglu(const Bf16* gate, const Bf16* up, const float* weights, int64_t rows, int64_t cols,
            float limit, Bf16* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const float weight = weights != nullptr ? weights[row] : 1.0f;
    for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
      const float g = std::min(to_float(gate[i]), limit);
      const float u = std::clamp(to_float(up[i]), -limit, limit);
      out[i] = to_bf16(weight * (g * sigmoid_f32(g) * u));
    }
  }
}

void sum_rows(const Bf16* x, const int32_t* index, int64_t count, int64_t rows, int64_t cols, Columns columns,
              Bf16* out) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = columns.first; d < columns.end; ++d) {
      float sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += to_float(x[index[row * count + i] * cols + d]);
      out[row * cols + d] = to_bf16(sum);
    }
  }
}

void pool_pair(const float* value0, const float* gate0, const float* value1, const float* gate1, int64_t dim,
               Bf16* latent) {
  for (int64_t c = 0; c < dim; ++c) {
    const float peak = std::max(gate0[c], gate1[c]);
    const float e0 = exp_f32(gate0[c] - peak), e1 = exp_f32(gate1[c] - peak);
    const float total = e0 + e1;
    latent[c] = to_bf16(e0 / total * value0[c] + e1 / total * value1[c]);
  }
}

}  // namespace deepinfer::ref
