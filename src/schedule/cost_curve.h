// How long something takes by its size, learnt from what it took: steps by rows, draft passes by sequences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer {

// Pure arithmetic on what it was told: a line from knot to knot. Every size up to 16 is a knot, of larger
// ones four an octave; a sample between two knots moves both.
//
// Between knots that were seen the line is straight; beyond them the estimate is on the low side, and values
// that were seen seldom or long ago sink. So a caller that chooses sizes by these estimates tries a size again
// before it rules it out for good.
class CostCurve {
 public:
  void observe(int64_t size, double seconds);
  // 0 while nothing is known. Requires size >= 0.
  double seconds(int64_t size) const;
  // Of the nearest knot that was seen, for those who don't choose the size; 0 while nothing is known.
  double nearest(int64_t size) const;

 private:
  static constexpr size_t kKnots = 64;
  struct Knot {
    double seconds = 0;  // at the usual speed of the machine
    double weight = 0;   // of its samples; 0: not seen
    int64_t last_seen = 0;
  };
  void move(Knot& knot, double share, double error, double norm);
  double aged(size_t knot) const;

  std::array<Knot, kKnots> knots_{};
  double speed_ = 1;  // how much longer everything takes now: other load, longer contexts
  int64_t now_ = 0;   // observations so far
};

}  // namespace deepinfer
