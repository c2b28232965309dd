// Recorded traffic: when requests came, how long they were, and which of them began alike. Plain or gzip files of
//   JSON lines  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [id of each 512-token block,
//   prefix included]} CSV         TIMESTAMP,ContextTokens,GeneratedTokens  (2023-11-16 18:17:03.9799600)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepinfer::planner {

struct TraceRequest {
  double arrival_s = 0;  // from the first request on
  int64_t input = 0, output = 0;
  std::vector<int64_t> blocks;  // equal ids: equal block and equal prefix before it
};

struct Trace {
  std::vector<TraceRequest> requests;  // in order of arrival
  int64_t block_tokens = 512;          // of an id in `blocks`
};

// kInvalidArgument names the line, what was found and what was expected; kNotFound, kIo from the file.
Result<Trace> read_trace(const std::string& path);
Result<Trace> parse_trace(std::string_view text, const std::string& name);

struct TraceSummary {
  double requests_per_s = 0, mean_input = 0, mean_output = 0, long_input = 0;  // long: 99th percentile
  bool has_prefixes = false;
  double best_hit = 0;  // share of input tokens in blocks seen before, with a cache without limit
};
TraceSummary summarize(const Trace& trace);

}  // namespace deepinfer::planner
