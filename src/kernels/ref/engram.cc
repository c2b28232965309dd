// The Engram gate (docs/spec/model.md 6.3).
#include <algorithm>
#include <cmath>

#include "kernels/elementary.h"
#include "kernels/ref/ref_ops.h"

namespace deepinfer::ref {
namespace {

float inverse_rms(const Bf16* x, int64_t count, float eps) {
  const float squares = block_sum(
      count, [&](float partial, int64_t d) { return std::fma(to_float(x[d]), to_float(x[d]), partial); });
  return 1.0f / std::sqrt(squares / static_cast<float>(count) + eps);
}

float gate_of(const EngramGateArgs& args, int64_t stream, const Bf16* h, const Bf16* key) {
  const Bf16* qw = args.q_weight + stream * args.hidden;
  const Bf16* kw = args.k_weight + stream * args.hidden;
  const float product = block_sum(args.hidden, [&](float partial, int64_t d) {
    const float weight = to_float(qw[d]) * to_float(kw[d]);
    return std::fma(to_float(h[d]) * weight, to_float(key[d]), partial);
  });
  const float statistic = inverse_rms(h, args.hidden, args.norm_eps) * inverse_rms(key, args.hidden, args.norm_eps);
  const float dot = product * statistic * (1.0f / std::sqrt(static_cast<float>(args.hidden)));
  return sigmoid_f32(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot));
}

}  // namespace

void engram_gate(const EngramGateArgs& args, int64_t rows) {
  const int64_t hidden = args.hidden;
  for (int64_t row = 0; row < rows; ++row) {
    const Bf16* key = args.key_value + row * 5 * hidden;
    const Bf16* value = key + 4 * hidden;
    for (int64_t stream = 0; stream < 4; ++stream) {
      Bf16* h = args.h + (row * 4 + stream) * hidden;
      const float gate = gate_of(args, stream, h, key + stream * hidden);
      for (int64_t d = 0; d < hidden; ++d) h[d] = to_bf16(to_float(h[d]) + gate * to_float(value[d]));
    }
  }
}

}  // namespace deepinfer::ref
