#include "checkpoint/config_reader.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Positive, and neither infinite nor zero where the model computes with it.
bool fits_fp32(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

}  // namespace

ConfigReader::ConfigReader(JsonRef object, ConfigReport& report)
    : object_(std::move(object)), report_(&report) {}

void ConfigReader::shape_fault(std::string message) {
  report_->shapes_known = false;
  fault(std::move(message));
}

JsonRef ConfigReader::get(std::string_view key) {
  known_.emplace_back(key);
  return object_[key];
}

bool ConfigReader::given(std::string_view key) {
  const JsonRef value = get(key);
  return value.present() && !value.is_null();
}

void ConfigReader::integer(std::string_view key, int64_t& field, int64_t least, int64_t most) {
  const JsonRef place = get(key);
  const auto value = place.int64();
  if (!value.ok()) {
    shape_fault(value.error().message());
  } else if (*value < least || *value > most) {
    shape_fault(fmt::format("{}: found {}, expected {} to {}", place.path(), *value, least, most));
  } else {
    field = *value;
  }
}

void ConfigReader::token_id(std::string_view key, int32_t& field) {
  int64_t value = field;
  integer(key, value, 0, std::numeric_limits<int32_t>::max());
  field = static_cast<int32_t>(value);
}

void ConfigReader::positive(std::string_view key, double& field) {
  real(key, field, false);
}
void ConfigReader::not_negative(std::string_view key, double& field) {
  real(key, field, true);
}

void ConfigReader::real(std::string_view key, double& field, bool zero_allowed) {
  const JsonRef place = get(key);
  const auto value = place.number();
  if (!value.ok()) {
    fault(value.error().message());
  } else if (!fits_fp32(*value) && !(*value == 0 && zero_allowed)) {
    fault(fmt::format("{}: found {}, expected a number {} 0 in the range of fp32", place.path(), *value,
                      zero_allowed ? ">=" : ">"));
  } else {
    field = *value;
  }
}

void ConfigReader::integers(std::string_view key, std::vector<int64_t>& field, int64_t least, int64_t most) {
  const auto elements = get(key).array();
  if (!elements.ok()) return shape_fault(elements.error().message());
  std::vector<int64_t> values;
  for (const JsonRef& element : *elements) {
    const auto value = element.int64();
    if (!value.ok()) return shape_fault(value.error().message());
    if (*value < least || *value > most) {
      return shape_fault(fmt::format("{}: found {}, expected {} to {}", element.path(), *value, least, most));
    }
    values.push_back(*value);
  }
  field = std::move(values);
}

void ConfigReader::fixed(std::string_view key, const JsonValue& expected) {
  const JsonRef found = get(key);
  // Numbers are compared as numbers: 0 and 0.0 mean the same to a reader of this file.
  const bool same_number =
      found.present() && expected.number() && found.value()->number() == expected.number();
  if (found.present() && (*found.value() == expected || same_number)) return;
  fault(fmt::format("{}: found {}, expected {}", found.path(),
                    found.present() ? to_json(*found.value()).substr(0, 80) : "nothing", to_json(expected)));
}

std::optional<ConfigReader> ConfigReader::object(std::string_view key) {
  const JsonRef child = get(key);
  if (const auto found = child.object(); !found.ok()) {
    shape_fault(found.error().message());
    return std::nullopt;
  }
  return ConfigReader(child, *report_);
}

void ConfigReader::note_unknown_keys() const {
  const auto members = object_.object();
  if (!members.ok()) return;
  for (const JsonMember& member : **members) {
    if (std::find(known_.begin(), known_.end(), member.key) == known_.end()) {
      report_->config.unknown_keys.push_back(object_[member.key].path());
    }
  }
}

}  // namespace deepinfer
