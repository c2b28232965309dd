// How long steps take, learnt from those that ran, and the prefill slice that follows: as many prompt rows beside decode
// rows as keep the step within a factor of its length without them. The bits of a row do not depend on the slice, so it
// may follow the clock.
#pragma once

#include <cstdint>

#include "schedule/cost_curve.h"

namespace deepinfer {

// Pure arithmetic on what it was told. Decode-only steps make a curve over their rows, drafts included; a
// prompt row costs what a mixed step took beyond that, divided by its prompt rows.
class StepCost {
 public:
  void observe(int64_t decode_rows, int64_t prefill_rows, double seconds);

  // At least one row, so that a prompt always advances; most_rows while nothing is known.
  int64_t prefill_slice(int64_t decode_rows, double slowdown, int64_t most_rows) const;

  double prefill_row_seconds() const { return prefill_row_; }  // 0 while nothing is known
  const CostCurve& decode() const { return decode_; }

 private:
  static constexpr double kWeight = 0.1;  // of the newest step

  CostCurve decode_;
  double prefill_row_ = 0;
};

}  // namespace deepinfer
