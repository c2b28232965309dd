#include "speculate/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/read_file.h"
#include "json/json.h"

namespace deepinfer {

float calibrated(float raw, float temperature) {
  const float z = std::clamp(raw / temperature, -60.0f, 60.0f);
  return 1.0f / (1.0f + std::exp(-z));
}

Result<std::vector<float>> parse_calibration(std::string_view json) {
  ASSIGN_OR_RETURN(const JsonValue document, parse_json(json));
  ASSIGN_OR_RETURN(const auto list, JsonRef(document)["temperatures"].array());
  std::vector<float> temperatures;
  for (const JsonRef& entry : list) {
    ASSIGN_OR_RETURN(const double value, entry.number());
    if (!(value >= 1e-3 && value <= 1e3)) {
      return Error(Code::kInvalidArgument, "{}: found {}, expected a number from 0.001 to 1000", entry.path(),
                   value);
    }
    temperatures.push_back(static_cast<float>(value));
  }
  return temperatures;
}

Result<std::vector<float>> load_calibration(const std::string& directory) {
  const std::string path = directory + "/" + kCalibrationFile;
  const auto text = ReadFile::read_text(path, 1 << 20);
  if (!text.ok()) {
    if (text.error().code() == Code::kNotFound) return std::vector<float>{};
    return text.error();
  }
  auto temperatures = parse_calibration(*text);
  if (!temperatures.ok()) return temperatures.error().in(path);
  return temperatures;
}

double log_loss(std::span<const Tested> tested, float temperature) {
  double loss = 0;
  for (const auto& [raw, accepted] : tested) {
    const double z = std::clamp(raw / temperature, -60.0f, 60.0f);
    loss += std::log1p(std::exp(accepted ? -z : z));
  }
  return tested.empty() ? 0 : loss / static_cast<double>(tested.size());
}

float fit_temperature(std::span<const Tested> tested) {
  if (tested.empty()) return 1;
  const auto loss = [&](double log_t) { return log_loss(tested, static_cast<float>(std::exp(log_t))); };
  constexpr double kGolden = 0.6180339887498949;
  double low = -std::log(16.0), high = std::log(16.0);
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double loss_a = loss(a), loss_b = loss(b);
  for (int i = 0; i < 40; ++i) {
    if (loss_a < loss_b) {
      high = b, b = a, loss_b = loss_a;
      a = high - kGolden * (high - low), loss_a = loss(a);
    } else {
      low = a, a = b, loss_a = loss_b;
      b = low + kGolden * (high - low), loss_b = loss(b);
    }
  }
  return static_cast<float>(std::exp((low + high) / 2));
}

void CalibrationError::add(float confidence, bool accepted) {
  Bin& bin = bins_[std::min<size_t>(static_cast<size_t>(confidence * 10), bins_.size() - 1)];
  bin.confidence += confidence;
  bin.accepted += accepted ? 1 : 0;
  ++bin.count;
}

double CalibrationError::value() const {
  double error = 0, total = 0;
  for (const Bin& bin : bins_) {
    error += std::abs(bin.confidence - bin.accepted);
    total += bin.count;
  }
  return total == 0 ? 0 : error / total;
}

}  // namespace deepinfer
