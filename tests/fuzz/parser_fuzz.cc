// The output parser: the events do not depend on how the text was cut, and a call's arguments are JSON once
// the model stopped; the text of a custom tool does not depend on the cuts of its arguments. The first bytes
// choose options and cuts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "recipe/output_test_support.h"

namespace deepinfer {
namespace {

void require(bool condition) {
  if (!condition) abort();
}

OutputOptions options_from(uint8_t bits, bool json) {
  OutputOptions options;
  options.start = static_cast<OutputStage>(bits % 5);
  options.parse_tool_calls = options.start == OutputStage::kToolCalls || (bits & 8) != 0;
  options.json_output = json;
  options.single_tool_call = (bits & 16) != 0;
  if ((bits & 32) != 0) options.stop_sequences = {"END", "\n\n", "ND", "<"};
  if ((bits & 128) != 0) options.tools = {{"f", {{"code", true}, {"n", false}}}, {"fg", {}}};
  return options;
}

std::vector<std::string> cut(const std::string& text, size_t step) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += step) pieces.push_back(text.substr(at, step));
  return pieces;
}

std::string custom_input(const std::vector<std::string>& pieces) {
  CustomToolInput input;
  std::string out;
  for (const std::string& piece : pieces) input.push(piece, out);
  input.finish(out);
  return out;
}

bool is_utf8(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return parse_json(json).ok();
}

void check(uint8_t bits, uint8_t step_bits, const std::string& text) {
  const OutputOptions options = options_from(bits, (step_bits & 128) != 0);
  const size_t step = (step_bits & 127) + 1u;
  const OutputEnd end = (bits & 64) != 0 ? OutputEnd::kLength : OutputEnd::kStop;
  const ParsedOutput whole = parse_output(options, {text}, end);
  require(parse_output(options, cut(text, step), end) == whole);
  require(whole.reasoning.size() + whole.content.size() <= text.size());
  require(custom_input({text}) == custom_input(cut(text, step)));
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
