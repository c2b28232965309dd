// The rule of rejection mode as a pure function (Leviathan et al. 2023; Chen et al. 2023), in exact integers.
//
// With target p and draft distribution q, both in masses over their own totals P and Q: draft x is accepted
// with probability min(1, (p_x / P) / (q_x / Q)); else the token comes from max(p / P - q / Q, 0),
// renormalized. The token then has exactly the distribution p / P:  q_x min(1, p_x / q_x) + (1 - sum_y
// min(p_y, q_y)) * max(p_x - q_x, 0) / (the sum of those) = min(p_x, q_x) + max(p_x - q_x, 0) = p_x.
#pragma once

#include <cstdint>

#include "sampling/sampling.h"

namespace deepinfer {

struct Verdict {
  bool accepted = false;
  int32_t token = 0;
};

// `draft` was drawn from `drafted`; null: it was certain (all mass on it). The words are uniform and
// independent of each other and of the draft.
Verdict verify_by_rejection(const Masses& target, const Masses* drafted, int32_t draft, uint64_t accept_word,
                            uint64_t residual_word);

}  // namespace deepinfer
