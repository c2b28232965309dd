// How far confidences can be trusted: DSpark gives a raw number a draft, sigmoid(raw / T_k) is the
// probability that the k-th draft is accepted when those before it were. T_k is fitted offline (`deepinfer
// calibrate`), kept beside the model and watched while serving.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepinfer {

inline constexpr char kCalibrationFile[] = "dspark_calibration.json";

// sigmoid(raw / temperature), the quotient clamped to +-60.
float calibrated(float raw, float temperature);
// 1 beyond the end.
inline float temperature_of(std::span<const float> temperatures, int64_t k) {
  return k < std::ssize(temperatures) ? temperatures[static_cast<size_t>(k)] : 1.0f;
}

// {"temperatures": [T_0, T_1, ...], "samples": [...], ...}: what `directory` holds in kCalibrationFile, or
// nothing. kInvalidArgument when the file is there and is not that.
Result<std::vector<float>> load_calibration(const std::string& directory);
Result<std::vector<float>> parse_calibration(std::string_view json);

// A draft that was tested: its raw confidence and what became of it.
struct Tested {
  float raw = 0;
  bool accepted = false;
};
// The temperature of the smallest log loss: golden section over log T in [1/16, 16]. 1 without samples.
float fit_temperature(std::span<const Tested> tested);
double log_loss(std::span<const Tested> tested, float temperature);

// Expected calibration error while running: ten bins by confidence, sum over bins of share * |mean confidence
// - acceptance|.
class CalibrationError {
 public:
  void add(float confidence, bool accepted);
  double value() const;

 private:
  struct Bin {
    double confidence = 0, accepted = 0, count = 0;
  };
  std::array<Bin, 10> bins_;
};

}  // namespace deepinfer
