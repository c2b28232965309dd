#include "schedule/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace deepinfer {
namespace {

constexpr double kNewest = 0.05;  // least weight of a new sample
constexpr double kOutlier = 3,
                 kOutlierLater = 1.5;  // a sample further from the estimate than this factor counts as that
constexpr double kSpeedWeight = 0.02;
constexpr double kOptimism = 0.25;  // of the mean cost of a unit, what one more is guessed to cost
constexpr double kSlope = 0.8;      // of the slope between the largest two, what one more is guessed to cost
constexpr double kTrusted = 4;      // samples; a knot seen less often sinks fast, down to half
constexpr double kSinkingFast = 1e-3, kSinkingSlow = 1e-5;  // an observation

constexpr int64_t kExact = 16;

int64_t size_of(size_t knot) {
  if (knot <= static_cast<size_t>(kExact)) return static_cast<int64_t>(knot);
  const double octaves = static_cast<double>(knot - static_cast<size_t>(kExact)) / 4;
  return std::llround(static_cast<double>(kExact) * std::exp2(octaves));
}

// The last knot at or below the size.
size_t knot_at(int64_t size, size_t knots) {
  if (size <= kExact) return static_cast<size_t>(std::max<int64_t>(size, 0));
  const double octaves = std::log2(static_cast<double>(size) / static_cast<double>(kExact));
  auto knot = std::min(static_cast<size_t>(kExact) + static_cast<size_t>(4 * octaves), knots - 1);
  while (knot + 1 < knots && size_of(knot + 1) <= size) ++knot;
  while (size_of(knot) > size) --knot;
  return knot;
}

}  // namespace

double CostCurve::aged(size_t index) const {
  const Knot& knot = knots_[index];
  const auto age = static_cast<double>(now_ - knot.last_seen);
  return knot.seconds * (knot.weight < kTrusted ? std::max(0.5, 1 - kSinkingFast * age)
                                                : std::max(0.9, 1 - kSinkingSlow * age));
}

// `error`: how far the line was off; `norm`: so that moving both ends by their shares takes all of it away.
void CostCurve::move(Knot& knot, double share, double error, double norm) {
  if (share == 0) return;
  knot.seconds += std::max(kNewest, 1 / (knot.weight + 1)) * share * error / norm;
  knot.weight += share;
  knot.last_seen = now_;
}

void CostCurve::observe(int64_t size, double seconds) {
  if (!(seconds > 0)) return;
  ++now_;
  const size_t below = knot_at(size, kKnots), above = std::min(below + 1, kKnots - 1);
  const double width = static_cast<double>(size_of(above) - size_of(below));
  const double t = width > 0 ? std::min(1.0, static_cast<double>(size - size_of(below)) / width) : 0;
  double sample = seconds / speed_;
  Knot &a = knots_[below], &b = knots_[above];
  if (a.weight == 0) a = {sample, 0, now_};
  if (t > 0 && b.weight == 0) b = {sample, 0, now_};
  const double line = t > 0 ? (1 - t) * a.seconds + t * b.seconds : a.seconds;
  const double seen = t > 0 ? (1 - t) * a.weight + t * b.weight : a.weight;
  if (seen >= 3) {
    speed_ *= std::pow(std::clamp(sample / line, 1 / kOutlier, kOutlier), kSpeedWeight);
    sample = seconds / speed_;
  }
  const double limit = seen < 2 * kTrusted ? kOutlier : kOutlierLater;
  const double error = std::clamp(sample, line / limit, line * limit) - line;
  const double norm = (1 - t) * (1 - t) + t * t;
  move(a, 1 - t, error, norm);
  move(b, t, error, norm);
}

double CostCurve::seconds(int64_t size) const {
  const size_t middle = knot_at(size, kKnots);
  const auto wanted = static_cast<double>(size);
  const auto is_known = [&](size_t knot) { return knots_[knot].weight > 0; };
  const auto place = [](size_t knot) { return static_cast<double>(size_of(knot)); };
  size_t below = middle + 1, above = middle;  // one past the known knot; the known knot
  while (below > 0 && !is_known(below - 1)) --below;
  while (above < kKnots && (!is_known(above) || size_of(above) < size)) ++above;
  if (below == 0 && above == kKnots) return 0;
  if (below == 0) return speed_ * aged(above) * wanted / place(above);
  --below;
  if (above < kKnots) {
    if (above == below) return speed_ * aged(below);
    const double share = (wanted - place(below)) / (place(above) - place(below));
    return speed_ * (aged(below) + share * (aged(above) - aged(below)));
  }
  size_t before = below;
  while (before > 0 && !is_known(before - 1)) --before;
  const double unit = before == 0
                          ? kOptimism * aged(below) / std::max(1.0, place(below))
                          : kSlope * (aged(below) - aged(before - 1)) / (place(below) - place(before - 1));
  return speed_ * (aged(below) + std::max(0.0, unit) * (wanted - place(below)));
}

double CostCurve::nearest(int64_t size) const {
  const auto wanted = static_cast<int64_t>(knot_at(size, kKnots));
  for (int64_t away = 0; away < static_cast<int64_t>(kKnots); ++away) {
    for (const int64_t knot : {wanted - away, wanted + away}) {
      if (knot < 0 || knot >= static_cast<int64_t>(kKnots)) continue;
      if (knots_[static_cast<size_t>(knot)].weight > 0)
        return speed_ * knots_[static_cast<size_t>(knot)].seconds;
    }
  }
  return 0;
}

}  // namespace deepinfer
