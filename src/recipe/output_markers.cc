#include "recipe/output_markers.h"

#include <fmt/core.h>

#include "recipe/control_tokens.h"

namespace deepinfer {
namespace {

// What turns text or reasoning into calls. Old and foreign block names are accepted, with and without the
// space, and a line's end in place of the bracket. A marker that opens none of them stays text.
void add_call_openers(std::vector<Marker>& markers) {
  for (const char* space : {" ", ""}) {
    for (const char* block : {"calls", "tool_calls", "function_calls", "tool_use"}) {
      for (const char* end : {">", "\n"}) {
        markers.push_back({std::string(kDsmlOpen) + space + block + end, kOpenCalls, true});
      }
    }
    markers.push_back({std::string(kDsmlOpen) + space + "invoke name=\"", kOpenCall, true});
  }
}

// Spellings that models fall into when they lose the control token.
void add_look_alikes(std::vector<Marker>& markers) {
  for (const char* opener : {"<|DSML|", "<||DSML||", "<｜｜DSML｜｜", "< | DSML |", "< ｜ DSML ｜",
                             "<\\DSML\\", "<invoke name=\"", "<tool_calls>", "<function_calls>"}) {
    markers.push_back({opener, kOpenLookAlike, true});
  }
}

// Closers in text, which close nothing there.
void add_stray_closers(std::vector<Marker>& markers) {
  for (const char* space : {" ", ""}) {
    for (const char* name : {"calls", "tool_calls", "function_calls", "tool_use", "invoke", "parameter"}) {
      markers.push_back({fmt::format("{}{}{}>", kDsmlClose, space, name), kStrayCloser});
    }
  }
  markers.push_back({"</invoke>", kStrayCloser});
}

void add_stops(std::vector<Marker>& markers, const OutputOptions& options) {
  for (const std::string& stop : options.stop_sequences) {
    if (!stop.empty()) markers.push_back({stop, kStopSequence});
  }
}

void add_start(std::vector<Marker>& markers) {
  markers.push_back({"\n", kDropAtStart, false, true});
  markers.push_back({std::string(control::kThinkOpen), kDropAtStart, false, true});
  markers.push_back({std::string(control::kBeginOfSentence), kDropAtStart, false, true});
  for (const std::string_view mark : {control::kBeginOfSentence, control::kEndOfSentence}) {
    markers.push_back({std::string(mark), kSentenceMark});
  }
}

MarkerSet reasoning_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  if (options.parse_tool_calls) add_call_openers(markers);
  add_start(markers);
  markers.push_back({std::string(control::kThinkClose), kCloseReasoning, true});
  return MarkerSet(std::move(markers));
}

MarkerSet text_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  add_stops(markers, options);
  if (options.parse_tool_calls) add_call_openers(markers);
  if (options.verbatim_content) return MarkerSet(std::move(markers));
  if (options.parse_tool_calls) add_stray_closers(markers);
  if (options.parse_tool_calls && options.salvage && !options.tools.empty()) add_look_alikes(markers);
  add_start(markers);
  markers.push_back({std::string(control::kThinkClose), kDropMarker});
  return MarkerSet(std::move(markers));
}

MarkerSet json_search_markers(const OutputOptions& options) {
  std::vector<Marker> markers = {{"{", kOpenJson}, {"[", kOpenJson}};
  if (options.parse_tool_calls) add_call_openers(markers);
  return MarkerSet(std::move(markers));
}

MarkerSet json_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  add_stops(markers, options);
  return MarkerSet(std::move(markers));
}

MarkerSet json_after_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  if (options.parse_tool_calls) add_call_openers(markers);
  return MarkerSet(std::move(markers));
}

// A value ends at its tag, or where the next parameter or call begins a line.
MarkerSet value_markers() {
  const std::string line = "\n" + std::string(kDsmlOpen);
  return MarkerSet({{"</｜DSML｜", kCloseValue},
                    {line + " parameter name=\"", kNextParameter},
                    {line + "parameter name=\"", kNextParameter},
                    {line + " invoke name=\"", kNextCallAfterValue},
                    {line + "invoke name=\"", kNextCallAfterValue}});
}

}  // namespace

OutputMarkers::OutputMarkers(const OutputOptions& options)
    : reasoning_(reasoning_markers(options)),
      text_(text_markers(options)),
      json_search_(json_search_markers(options)),
      json_(json_markers(options)),
      json_after_(json_after_markers(options)) {}

const MarkerSet& OutputMarkers::of(OutputState state) const {
  static const MarkerSet kNone({});
  static const MarkerSet kCalls({{"invoke name=\"", kOpenCall},
                                 {"</｜DSML｜ calls>", kCloseCalls},
                                 {"</｜DSML｜tool_calls>", kCloseCalls}});
  static const MarkerSet kQuote({{"\"", kCallNamed}});
  static const MarkerSet kArguments(
      {{"parameter name=\"", kOpenParameter}, {"invoke name=\"", kNextCall}, {"</｜DSML｜", kCloseCall}});
  static const MarkerSet kNameEnd({{"\"", kParameterNamed}});
  static const MarkerSet kType({{"true\">", kStringType}, {">", kOtherType}});
  static const MarkerSet kValue = value_markers();
  switch (state) {
    case OutputState::kReasoning:
      return reasoning_;
    case OutputState::kText:
      return text_;
    case OutputState::kJsonSearch:
      return json_search_;
    case OutputState::kJson:
      return json_;
    case OutputState::kJsonAfter:
      return json_after_;
    case OutputState::kCalls:
      return kCalls;
    case OutputState::kCallName:
      return kQuote;
    case OutputState::kArguments:
      return kArguments;
    case OutputState::kParameterName:
      return kNameEnd;
    case OutputState::kParameterType:
      return kType;
    case OutputState::kStringValue:
    case OutputState::kRawValue:
    case OutputState::kWrappedValue:
      return kValue;
    case OutputState::kOpening:
    case OutputState::kLookAlike:
    case OutputState::kDone:
      return kNone;
  }
  return kNone;
}

}  // namespace deepinfer
