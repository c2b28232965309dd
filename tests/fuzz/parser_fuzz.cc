// The output parser: the events do not depend on how the text was cut, and a call's arguments are JSON once the model
// stopped. The first bytes choose options and cuts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

void require(bool condition) {
  if (!condition) abort();
}

OutputOptions options_from(uint8_t bits) {
  OutputOptions options;
  options.start = static_cast<OutputStage>(bits % 5);
  options.parse_tool_calls = options.start == OutputStage::kToolCalls || (bits & 8) != 0;
  options.single_tool_call = (bits & 16) != 0;
  if ((bits & 32) != 0) options.stop_sequences = {"END", "\n\n", "ND", "<"};
  return options;
}

bool is_utf8(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return parse_json(json).ok();
}

void check(uint8_t bits, uint8_t step, const std::string& text) {
  const OutputOptions options = options_from(bits);
  const OutputEnd end = (bits & 64) != 0 ? OutputEnd::kLength : OutputEnd::kStop;
  const ParsedOutput whole = parse_output(options, {text}, end);
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += step + 1u) pieces.push_back(text.substr(at, step + 1u));
  require(parse_output(options, pieces, end) == whole);
  require(whole.reasoning.size() + whole.content.size() <= text.size());
  if (end == OutputEnd::kLength || !is_utf8(text)) return;
  for (const auto& call : whole.calls) require(parse_json(call.arguments, {.max_depth = 1000}).ok());
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  deepinfer::check(data[0], data[1], std::string(reinterpret_cast<const char*>(data) + 2, size - 2));
  return 0;
}
