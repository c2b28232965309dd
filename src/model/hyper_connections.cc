// Hyper-connections around a sublayer (docs/spec/model.md 3):
//
//   (A, P, C) = mix(h);   x = fold(h, pre);   y = sublayer(norm(x));   h' = P y + C^T h;   pre' = A
//
// The fold uses the A of the sublayer BEFORE, and hands its own A on; P and C stay with the sublayer that made them.
// The way out (LeaveSublayer) is part of the last product of a sublayer; where the next mix is known by then, that op
// begins it.
#include "model/forward_pass.h"

namespace deepinfer {

Phase enter_sublayer(ForwardPass& pass, const HcRef& hc, const Left& left) {
  return pass.add(EnterSublayer{hc, pass.num_rows(), left.begun}, {left.phase});
}

}  // namespace deepinfer
