// How long a step takes: a table of decode steps by rows, and seconds for a row of prefill beside them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "planner/planner.h"

namespace deepinfer::simulator {

struct StepTimes {
  std::vector<std::pair<double, double>>
      decode;                // (rows, seconds), rows ascending; straight lines between, flat before
  double prefill_row_s = 0;  // of a row that runs the encoder half; one that runs all layers takes two
  double load_bytes_per_s = 6e9, load_first_s = 0.001;  // from the store

  double decode_seconds(int64_t rows) const;
  double step_seconds(int64_t decode_rows, int64_t encoder_rows, int64_t full_rows) const;
};

// A CPU server ("cpu:...") by the machine model; a card profile by its two rates, where a step of one answer is taken
// to be 70 % of one at the profile's batch.
Result<StepTimes> step_times_of(const std::string& hardware);
// Measured: {"decode": [[rows, seconds], ...], "prefill_row_seconds": s, "load_bytes_per_second": b}.
Result<StepTimes> parse_step_times(std::string_view json);

}  // namespace deepinfer::simulator
