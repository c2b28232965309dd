#include "schedule/step_cost.h"

#include <algorithm>

namespace deepinfer {
namespace {

void average(double& value, double sample, double weight) {
  value = value == 0 ? sample : value + weight * (sample - value);
}

}  // namespace

void StepCost::observe(int64_t decode_rows, int64_t prefill_rows, double seconds) {
  if (prefill_rows == 0) {
    if (decode_rows > 0) decode_.observe(decode_rows, seconds);
    return;
  }
  const double rest = seconds - (decode_rows > 0 ? decode_.nearest(decode_rows) : 0);
  if (rest > 0) average(prefill_row_, rest / static_cast<double>(prefill_rows), kWeight);
}

int64_t StepCost::prefill_slice(int64_t decode_rows, double slowdown, int64_t most_rows) const {
  const double decode = decode_.nearest(decode_rows);
  if (decode == 0 || prefill_row_ == 0) return most_rows;
  const double rows = decode * (slowdown - 1) / prefill_row_;
  return std::clamp(static_cast<int64_t>(std::min(rows + 0.5, 1e9)), std::min<int64_t>(1, most_rows), most_rows);
}

}  // namespace deepinfer
