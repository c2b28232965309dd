// Where the routed experts of a layer are: the seam between the forward pass, which chooses experts and has the rows,
// and whoever holds their weights.
//
//   route      the pass: ids and weights of each row (Route)
//   dispatch   rows to where their experts are, sorted into slots
//   products   gate, up, SwiGLU, down of every slot
//   combine    the sum of each row's slots, ascending by expert, then its shared expert: y, and h behind it
//
// An implementation adds ops to the program of the layer, or runs what is in it and does its own work between; it may
// not change a bit: a slot's result is a function of its row and its expert, and the order of the sum is fixed.
#pragma once

#include "model/op.h"
#include "model/program.h"

namespace deepinfer {

struct ForwardPass;

class ExpertBackend {
 public:
  virtual ~ExpertBackend() = default;
  // `x`: after it the rows are there; `routed`: ids and weights. Returns the phase after which the sublayer is left.
  virtual Program::Phase run(ForwardPass& pass, const ExpertWork& work, Program::Phase x, Program::Phase routed,
                             const LeaveSublayer& leave) = 0;
};

// All experts in the memory of this process.
class LocalExperts final : public ExpertBackend {
 public:
  Program::Phase run(ForwardPass& pass, const ExpertWork& work, Program::Phase x, Program::Phase routed,
                     const LeaveSublayer& leave) override;
};

}  // namespace deepinfer
