#include "planner/trace.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <unordered_set>

#include "base/printable.h"
#include "json/json.h"

namespace deepinfer::planner {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;  // of a request

Result<int64_t> tokens(const JsonRef& field) {
  ASSIGN_OR_RETURN(const int64_t count, field.int64());
  if (count < 0 || count > kMostTokens)
    return Error(Code::kInvalidArgument, "{}: found {}, expected 0 to {} tokens", field.path(), count, kMostTokens);
  return count;
}

Result<TraceRequest> parse_json_line(std::string_view line) {
  ASSIGN_OR_RETURN(const JsonValue document, parse_json(line));
  const JsonRef root(document);
  TraceRequest request;
  ASSIGN_OR_RETURN(const double milliseconds, root["timestamp"].number());
  if (!(milliseconds >= 0 && milliseconds < 1e13))
    return Error(Code::kInvalidArgument, "timestamp: found {}, expected milliseconds from 0", milliseconds);
  request.arrival_s = milliseconds / 1000;
  ASSIGN_OR_RETURN(request.input, tokens(root["input_length"]));
  ASSIGN_OR_RETURN(request.output, tokens(root["output_length"]));
  if (root["hash_ids"].present()) {
    ASSIGN_OR_RETURN(const auto ids, root["hash_ids"].array());
    for (const JsonRef& id : ids) {
      ASSIGN_OR_RETURN(const int64_t block, id.int64());
      request.blocks.push_back(block);
    }
  }
  return request;
}

// "2023-11-16 18:17:03.9799600" in seconds since 2000.
std::optional<double> parse_time(std::string_view text) {
  std::array<int, 5> parts = {};
  constexpr std::string_view kMarks = "--T::";
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts[i]);
    if (error != std::errc() || end == text.data() + text.size()) return std::nullopt;
    if (*end != kMarks[i] && !(kMarks[i] == 'T' && *end == ' ')) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  }
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds, std::chars_format::fixed);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  const std::string_view zone(end, static_cast<size_t>(text.data() + text.size() - end));
  if (!zone.empty() && zone != "Z" && zone != "+00:00") return std::nullopt;
  const auto [year, month, day, hour, minute] = parts;
  if (year < 2000 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
      minute < 0 || minute > 59)
    return std::nullopt;
  // Days of the civil calendar, March first so that the leap day is the last of its year.
  const int y = year - (month <= 2 ? 1 : 0), m = (month + 9) % 12;
  const int days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
  return (days - 730425) * 86400.0 + hour * 3600 + minute * 60 + seconds;
}

Result<TraceRequest> parse_csv_line(std::string_view line) {
  std::array<std::string_view, 3> cells;
  size_t count = 0;
  for (std::string_view rest = line; count < cells.size(); ++count) {
    const size_t comma = std::min(rest.find(','), rest.size());
    cells[count] = rest.substr(0, comma);
    if (comma == rest.size()) {
      ++count;
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  if (count != 3)
    return Error(Code::kInvalidArgument, "found {} cells, expected TIMESTAMP,ContextTokens,GeneratedTokens", count);
  TraceRequest request;
  const auto time = parse_time(cells[0]);
  if (!time)
    return Error(Code::kInvalidArgument, "TIMESTAMP: found '{}', expected a time as 2023-11-16 18:17:03.97",
                 printable(cells[0]));
  request.arrival_s = *time;
  for (const auto& [cell, name, to] : {std::tuple(cells[1], "ContextTokens", &request.input),
                                       std::tuple(cells[2], "GeneratedTokens", &request.output)}) {
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *to);
    if (error != std::errc() || end != cell.data() + cell.size() || *to < 0 || *to > kMostTokens)
      return Error(Code::kInvalidArgument, "{}: found '{}', expected 0 to {} tokens", name, printable(cell),
                   kMostTokens);
  }
  return request;
}

}  // namespace

Result<Trace> parse_trace(std::string_view text, const std::string& name) {
  Trace trace;
  const bool csv = text.starts_with("TIMESTAMP,");
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (csv && line_number == 1)) continue;
    auto request = csv ? parse_csv_line(line) : parse_json_line(line);
    if (!request.ok()) return request.error().in(fmt::format("{} line {}", name, line_number));
    if (request->input == 0) continue;
    trace.requests.push_back(std::move(*request));
  }
  if (trace.requests.empty()) return Error(Code::kInvalidArgument, "{}: found no request, expected one a line", name);
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_s < b.arrival_s; });
  const double first = trace.requests.front().arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file)
    return Error(Code::kNotFound, "{}: can't be opened; expected a trace (JSON lines or CSV, plain or gzip)", path);
  std::string text;
  std::array<char, 1 << 16> part;
  int got = 0;
  while ((got = gzread(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<size_t>(got));
    if (text.size() > (size_t{2} << 30))
      return Error(Code::kResourceExhausted, "{}: found more than 2 GiB, expected a smaller trace", path);
  }
  int code = Z_OK;
  const char* message = gzerror(file.get(), &code);
  if (got < 0 || code != Z_OK) return Error(Code::kDataLoss, "{}: {}", path, message);
  return parse_trace(text, path);
}

TraceSummary summarize(const Trace& trace) {
  TraceSummary summary;
  std::vector<int64_t> inputs;
  std::unordered_set<int64_t> seen;
  int64_t input = 0, output = 0, found = 0;
  for (const TraceRequest& request : trace.requests) {
    inputs.push_back(request.input);
    input += request.input;
    output += request.output;
    summary.has_prefixes |= !request.blocks.empty();
    int64_t hit = 0;
    while (hit < std::ssize(request.blocks) && seen.contains(request.blocks[static_cast<size_t>(hit)])) ++hit;
    found += std::min(hit * trace.block_tokens, request.input - 1);  // one token is always computed
    seen.insert(request.blocks.begin(), request.blocks.end());
  }
  const auto count = static_cast<double>(inputs.size());
  const double seconds = std::max(1.0, trace.requests.back().arrival_s);
  const auto place = inputs.begin() + static_cast<ptrdiff_t>(0.99 * (count - 1));
  std::nth_element(inputs.begin(), place, inputs.end());
  summary.requests_per_s = count / seconds;
  summary.mean_input = static_cast<double>(input) / count;
  summary.mean_output = static_cast<double>(output) / count;
  summary.long_input = static_cast<double>(*place);
  summary.best_hit = static_cast<double>(found) / static_cast<double>(input);
  return summary;
}

}  // namespace deepinfer::planner
