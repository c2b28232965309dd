#include "simulator/step_times.h"

#include <algorithm>

#include "json/json.h"

namespace deepinfer::simulator {

double StepTimes::decode_seconds(int64_t rows) const {
  if (rows == 0 || decode.empty()) return 0;
  const auto size = static_cast<double>(rows);
  const auto above = std::find_if(decode.begin(), decode.end(), [&](const auto& knot) { return knot.first >= size; });
  if (above == decode.begin()) return above->second;
  // Beyond the table, its last line goes on.
  const auto end = above == decode.end() ? std::prev(decode.end()) : above;
  if (end == decode.begin()) return end->second * std::max(1.0, size / end->first);
  const auto begin = std::prev(end);
  const double slope = (end->second - begin->second) / (end->first - begin->first);
  return begin->second + slope * (size - begin->first);
}

double StepTimes::step_seconds(int64_t decode_rows, int64_t encoder_rows, int64_t full_rows) const {
  return decode_seconds(decode_rows) + prefill_row_s * static_cast<double>(encoder_rows + 2 * full_rows);
}

Result<StepTimes> step_times_of(const std::string& hardware) {
  StepTimes times;
  if (hardware.find(':') != std::string::npos) {
    const planner::Model& machine = planner::machine_model();
    ASSIGN_OR_RETURN(const auto given, planner::parse_machine(hardware));
    planner::Values inputs = machine.defaults();
    for (const auto& [id, value] : given) inputs[*machine.place(id)] = value;
    for (const double rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
      inputs[*machine.place("answers")] = rows;
      const planner::Values values = machine.compute(inputs);
      times.decode.emplace_back(rows, machine.value(values, "step_time"));
      times.prefill_row_s = 1 / machine.value(values, "miss_rate");
      times.load_bytes_per_s = machine.value(values, "drives") * machine.value(values, "drive_read");
    }
    return times;
  }
  ASSIGN_OR_RETURN(const planner::Hardware profile, planner::find_hardware(hardware, 1));
  const double rate = profile.inputs.at("decode_rate"), speed = profile.inputs.at("speed_at_rate");
  const double rows = std::max(1.0, rate / speed);
  times.decode = {{1, rows > 1 ? 0.7 / speed : 1 / speed}};
  if (rows > 1) times.decode.emplace_back(rows, 1 / speed);
  times.prefill_row_s = 1 / profile.inputs.at("miss_rate");
  times.load_bytes_per_s = 25e9;  // a link of 200 Gbit/s
  return times;
}

Result<StepTimes> parse_step_times(std::string_view json) {
  ASSIGN_OR_RETURN(const JsonValue document, parse_json(json));
  const JsonRef root(document);
  StepTimes times;
  const auto positive = [](const JsonRef& field) -> Result<double> {
    ASSIGN_OR_RETURN(const double value, field.number());
    if (!(value > 0 && value < 1e15))
      return Error(Code::kInvalidArgument, "{}: found {}, expected a number above 0", field.path(), value);
    return value;
  };
  ASSIGN_OR_RETURN(const auto knots, root["decode"].array());
  for (const JsonRef& knot : knots) {
    ASSIGN_OR_RETURN(const double rows, positive(knot[0]));
    ASSIGN_OR_RETURN(const double seconds, positive(knot[1]));
    if (!times.decode.empty() && rows <= times.decode.back().first)
      return Error(Code::kInvalidArgument, "{}: found {} rows behind {}, expected more", knot.path(), rows,
                   times.decode.back().first);
    times.decode.emplace_back(rows, seconds);
  }
  if (times.decode.empty())
    return Error(Code::kInvalidArgument, "decode: found no pair, expected [[rows, seconds], ...]");
  ASSIGN_OR_RETURN(times.prefill_row_s, positive(root["prefill_row_seconds"]));
  if (root["load_bytes_per_second"].present()) {
    ASSIGN_OR_RETURN(times.load_bytes_per_s, positive(root["load_bytes_per_second"]));
  }
  return times;
}

}  // namespace deepinfer::simulator
