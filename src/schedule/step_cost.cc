#include "schedule/step_cost.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

namespace deepinfer {
namespace {

void average(double& value, double sample, double weight) {
  value = value == 0 ? sample : value + weight * (sample - value);
}

}  // namespace

size_t StepCost::bucket_of(int64_t rows) {
  return std::min<size_t>(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows))), 15);
}

double StepCost::decode_seconds(int64_t rows) const {
  const auto wanted = static_cast<int64_t>(bucket_of(rows));
  for (int64_t away = 0; away < std::ssize(decode_); ++away) {
    for (const int64_t bucket : {wanted - away, wanted + away}) {
      if (bucket >= 0 && bucket < std::ssize(decode_) && decode_[bucket] > 0) return decode_[bucket];
    }
  }
  return 0;
}

void StepCost::observe(int64_t decode_rows, int64_t prefill_rows, double seconds) {
  if (prefill_rows == 0) {
    if (decode_rows > 0) average(decode_[bucket_of(decode_rows)], seconds, kWeight);
    return;
  }
  const double rest = seconds - (decode_rows > 0 ? decode_seconds(decode_rows) : 0);
  if (rest > 0) average(prefill_row_, rest / static_cast<double>(prefill_rows), kWeight);
}

int64_t StepCost::prefill_slice(int64_t decode_rows, double slowdown, int64_t most_rows) const {
  const double decode = decode_seconds(decode_rows);
  if (decode == 0 || prefill_row_ == 0) return most_rows;
  const double rows = decode * (slowdown - 1) / prefill_row_;
  return std::clamp(static_cast<int64_t>(std::min(rows + 0.5, 1e9)), std::min<int64_t>(1, most_rows), most_rows);
}

}  // namespace deepinfer
