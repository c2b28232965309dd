// Hyper-connections around a sublayer (model-v41 3):
//
//   (A, P, C) = mix(h);   x = fold(h, pre);   y = sublayer(norm(x));   h' = P y + C^T h;   pre' = A
//
// The fold uses the A of the sublayer BEFORE, and hands its own A on; P and C stay with the sublayer that made them.
#include "model/forward_pass.h"

namespace deepinfer {

void hc_enter(ForwardPass& pass, const HcWeights& weights, const std::vector<Bf16>& norm) {
  Workspace& ws = pass.ws;
  const int64_t hidden = pass.config.hidden_size;
  pass.ops.hc_mix(pass.kernel, weights.params(pass.config), ws.h.data(), pass.num_rows(), hidden,
                  ws.hc_products.data(), ws.mix.data());
  pass.ops.hc_fold(pass.kernel, ws.h.data(), ws.pre.data(), 4, pass.num_rows(), hidden, ws.x.data());
  pass.rms_norm(ws.x.data(), norm, pass.num_rows(), ws.x.data());
}

void hc_leave(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  pass.ops.hc_unfold(pass.kernel, ws.y.data(), ws.mix.data(), pass.num_rows(), pass.config.hidden_size, ws.h.data());
  for (int64_t row = 0; row < pass.num_rows(); ++row) {
    for (int i = 0; i < 4; ++i) ws.pre[4 * row + i] = ws.mix[row].a[i];
  }
}

}  // namespace deepinfer
