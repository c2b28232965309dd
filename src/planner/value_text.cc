// Numbers with units, written and read.
#include <fmt/core.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "planner/model.h"

namespace deepinfer::planner {
namespace {

// The digits of |value| with thousands separated.
std::string write_number(double value) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  const double size = std::abs(value) * (1 + 0x1p-51);  // a tie goes up, here and in JavaScript
  if (size != 0 && (size >= 1e15 || size < 1e-4)) return fmt::format("{:.3e}", value);
  int digits = 4;
  if (size >= 1e3) digits = size >= 1e5 ? 6 : size >= 1e4 ? 5 : 4;
  std::string text = fmt::format("{:.{}e}", size, digits - 1);
  const size_t mark = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + mark + (text[mark + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string all = text.substr(0, 1) + text.substr(2, mark - 2);  // the digits, without their point
  std::string whole = exponent < 0 ? "0" : all.substr(0, static_cast<size_t>(exponent) + 1);
  whole.append(exponent >= digits ? static_cast<size_t>(exponent + 1 - digits) : 0, '0');
  std::string rest = exponent < 0            ? std::string(static_cast<size_t>(-exponent - 1), '0') + all
                     : exponent + 1 < digits ? all.substr(static_cast<size_t>(exponent) + 1)
                                             : "";
  rest.erase(rest.find_last_not_of('0') + 1);
  for (int i = static_cast<int>(whole.size()) - 3; i > 0; i -= 3) whole.insert(static_cast<size_t>(i), ",");
  return (value < 0 ? "-" : "") + whole + (rest.empty() ? "" : "." + rest);
}

// Other spellings and sizes of a unit, beside the measure's own text: same kind, base units in one.
struct UnitName {
  std::string_view kind, name;
  double scale;
};
constexpr UnitName kUnitNames[] = {
    {"time", "ms", 1e-3},
    {"time", "s", 1},
    {"time", "min", 60},
    {"time", "h", kHour},
    {"time", "d", kDay},
    {"time", "years", kYear},
    {"size", "B", 1},
    {"size", "KB", 1e3},
    {"size", "MB", 1e6},
    {"size", "GB", 1e9},
    {"size", "TB", 1e12},
    {"size", "PB", 1e15},
    {"size", "EB", 1e18},
    {"size", "KiB", kKi},
    {"size", "MiB", kMi},
    {"size", "GiB", kGi},
    {"size", "TiB", kTi},
    {"size", "PiB", kPi},
    {"flow", "B/s", 1},
    {"flow", "MB/s", 1e6},
    {"flow", "GB/s", 1e9},
    {"flow", "TB/s", 1e12},
    {"flow", "GiB/s", kGi},
    {"flow", "TiB/s", kTi},
    {"flow", "Gbit/s", 1e9 / 8},
    {"bytes a token", "B/token", 1},
    {"bytes a token", "KB/token", 1e3},
    {"bytes a token", "GB/token", 1e9},
    {"tokens", "tokens", 1},
    {"tokens", "million tokens", 1e6},
    {"tokens", "billion tokens", 1e9},
    {"tokens", "trillion tokens", 1e12},
    {"token rate", "tokens/s", 1},
    {"token rate", "billion tokens/day", 1e9 / kDay},
    {"token rate", "trillion tokens/day", 1e12 / kDay},
    {"request rate", "requests/s", 1},
    {"request rate", "requests/min", 1.0 / 60},
    {"request rate", "requests/h", 1 / kHour},
    {"cards", "cards", 1},
    {"cards", "million cards", 1e6},
    {"money", "$", 1},
    {"money", "$ million", 1e6},
    {"fraction", "%", 0.01},
    {"fraction", "points", 0.01},
    {"operations", "GFLOP/s", 1e9},
    {"operations", "TFLOP/s", 1e12},
};

std::string_view kind_of(std::string_view unit) {
  for (const UnitName& one : kUnitNames)
    if (one.name == unit) return one.kind;
  return "";
}

std::string accepted_units(const Input& input) {
  const std::string_view kind = kind_of(input.unit);
  if (kind.empty()) return std::string(input.unit);
  std::string names;
  for (const UnitName& one : kUnitNames)
    if (one.kind == kind) names += (names.empty() ? "" : ", ") + std::string(one.name);
  return names;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// Base units in one `unit`; nullopt when the input can't be given in it.
std::optional<double> scale_of(std::string_view unit, const Input& input) {
  if (unit == input.unit) return input.scale;
  const std::string_view kind = kind_of(input.unit);
  for (const UnitName& one : kUnitNames)
    if (!kind.empty() && one.kind == kind && one.name == unit) return one.scale;
  return std::nullopt;
}

}  // namespace

std::string write_value(double base_value, std::string_view unit, double scale) {
  std::string number = write_number(base_value / scale);
  if (unit.empty()) return number;
  if (unit.front() != '$') return fmt::format("{} {}", number, unit);
  if (number.size() >= 2 && number[number.size() - 2] == '.') number += '0';  // cents
  return number.front() == '-' ? fmt::format("-${}{}", number.substr(1), unit.substr(1))
                               : fmt::format("${}{}", number, unit.substr(1));
}

Result<double> parse_value(std::string_view text, const Input& input) {
  const std::string_view given = trimmed(text);
  const auto refuse = [&](std::string_view what) {
    return Error(Code::kInvalidArgument, "{} ({}): found '{}'{}, expected a number{} as in '{}'", input.id, input.label,
                 given, what, input.unit.empty() ? "" : fmt::format(" with a unit of: {};", accepted_units(input)),
                 write_value(input.value, input.unit, input.scale));
  };
  std::string_view rest = given;
  const bool dollars = !rest.empty() && rest.front() == '$';
  if (dollars) rest = trimmed(rest.substr(1));
  std::string digits;
  size_t used = 0;
  const auto is_digit = [&](size_t i) { return i < rest.size() && rest[i] >= '0' && rest[i] <= '9'; };
  for (; used < rest.size(); ++used) {
    const char c = rest[used];
    const bool exponent = (c == 'e' || c == 'E') && (is_digit(used + 1) || is_digit(used + 2));  // not that of "3EB"
    if (!is_digit(used) && !exponent && std::string_view(".,+-").find(c) == std::string_view::npos) break;
    if (c != ',') digits += c;
  }
  double number = 0;
  const auto [end, error] =
      std::from_chars(digits.data() + (digits.starts_with('+') ? 1 : 0), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(number))
    return refuse("");
  std::string unit(trimmed(rest.substr(used)));
  if (dollars) unit = unit.empty() ? "$" : "$ " + unit;
  if (unit.empty() && !input.unit.empty()) {
    if (input.bound == Bound::kFraction && input.unit == "%") return number;  // 0.96 is 96 %
    return refuse(", which has no unit");
  }
  const auto scale = scale_of(unit, input);
  if (!scale) return refuse(fmt::format(" in '{}'", unit));
  return number * *scale;
}

}  // namespace deepinfer::planner
