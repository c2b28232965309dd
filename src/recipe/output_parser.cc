// The output state machine (recipe.md 5.2), with these changes of 5.3: names are escaped as JSON (1), raw
// values that are no JSON become strings (2), only a marker that opens a known block starts calls (3), a
// missing string attribute (4), a JSON object as call body (5); and a call left open by the model is closed
// (5.7).
#include <map>

#include "recipe/control_tokens.h"
#include "recipe/marker_scanner.h"
#include "recipe/recipe.h"

namespace deepinfer {
namespace {

enum class State {
  kReasoning,
  kText,
  kCalls,  // between calls
  kCallName,
  kArguments,  // between parameters
  kParameterName,
  kParameterType,
  kStringValue,
  kRawValue,
  kDone,
};

enum Action {
  kDropNewline,
  kStopSequence,
  kCloseReasoning,
  kDropMarker,
  kOpenCalls,
  kOpenCall,
  kCallNamed,
  kNextCall,  // the call before was not closed
  kCloseCall,
  kCloseCalls,
  kOpenParameter,
  kParameterNamed,
  kStringType,
  kRawType,
  kCloseValue,
};

constexpr std::string_view kMarker = "<｜DSML｜";

// What turns text or reasoning into calls. Old and foreign block names are accepted, with and without the
// space.
void add_call_openers(std::vector<Marker>& markers) {
  for (const char* space : {" ", ""}) {
    for (const char* block : {"calls>", "tool_calls>", "function_calls>", "tool_use>"}) {
      markers.push_back({std::string(kMarker) + space + block, kOpenCalls, true});
    }
    markers.push_back({std::string(kMarker) + space + "invoke name=\"", kOpenCall, true});
  }
}

MarkerSet reasoning_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  if (options.parse_tool_calls) add_call_openers(markers);
  markers.push_back({"\n", kDropNewline, false, true});
  markers.push_back({std::string(control::kThinkClose), kCloseReasoning, true});
  return MarkerSet(std::move(markers));
}

MarkerSet text_markers(const OutputOptions& options) {
  std::vector<Marker> markers;
  for (const std::string& stop : options.stop_sequences) {
    if (!stop.empty()) markers.push_back({stop, kStopSequence});
  }
  if (options.parse_tool_calls) add_call_openers(markers);
  markers.push_back({"\n", kDropNewline, false, true});
  markers.push_back({std::string(control::kThinkClose), kDropMarker});
  return MarkerSet(std::move(markers));
}

// The sets of the states inside a call block, which depend on no option.
const MarkerSet& call_markers(State state) {
  static const std::map<State, MarkerSet> kSets = {
      {State::kCalls, MarkerSet({{"invoke name=\"", kOpenCall},
                                 {"</｜DSML｜ calls>", kCloseCalls},
                                 {"</｜DSML｜tool_calls>", kCloseCalls}})},
      {State::kCallName, MarkerSet({{"\"", kCallNamed}})},
      {State::kArguments, MarkerSet({{"parameter name=\"", kOpenParameter},
                                     {"invoke name=\"", kNextCall},
                                     {"</｜DSML｜", kCloseCall}})},
      {State::kParameterName, MarkerSet({{"\"", kParameterNamed}})},
      {State::kParameterType, MarkerSet({{"true\">", kStringType}, {">", kRawType}})},
      {State::kStringValue, MarkerSet({{"</｜DSML｜", kCloseValue}})},
      {State::kRawValue, MarkerSet({{"</｜DSML｜", kCloseValue}})},
  };
  return kSets.at(state);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

class OutputParser::Machine {
 public:
  explicit Machine(OutputOptions options)
      : reasoning_markers_(reasoning_markers(options)),
        text_markers_(text_markers(options)),
        parse_tool_calls_(options.parse_tool_calls),
        single_tool_call_(options.single_tool_call) {
    enter_start(options.start);
  }

  void push(std::string_view piece, const OutputSink& sink) {
    if (state_ == State::kDone) return;
    scanner_.append(piece);
    while (state_ != State::kDone) {
      const MarkerScanner::Found found = scanner_.next(markers(), leading_);
      release(found.before, sink);
      if (found.marker == nullptr) break;
      act(*found.marker, sink);
    }
    scanner_.compact();
  }

  void finish(OutputEnd end, const OutputSink& sink) {
    if (state_ == State::kDone) return;
    const bool in_text = state_ == State::kReasoning || state_ == State::kText;
    // The beginning of a call block never reaches the reader, whatever cut it off.
    const bool cut_opener = in_text && parse_tool_calls_ && scanner_.unfinished().starts_with(kMarker);
    if (!cut_opener) release(scanner_.rest(), sink);
    if (call_open_ && end == OutputEnd::kStop) close_cut_call(sink);
    if (call_open_ && state_ == State::kRawValue) emit_arguments(text_, sink);
    state_ = State::kDone;
  }

  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool done() const { return state_ == State::kDone; }
  int64_t num_tool_calls() const { return num_tool_calls_; }
  const std::optional<std::string>& matched_stop_sequence() const { return matched_stop_; }

 private:
  void enter_start(OutputStage start) {
    switch (start) {
      case OutputStage::kReasoning:
        return enter(State::kReasoning, true);
      case OutputStage::kReasoningContinuation:
        return enter(State::kReasoning, false);
      case OutputStage::kContent:
        return enter(State::kText, true);
      case OutputStage::kContentContinuation:
        return enter(State::kText, false);
      case OutputStage::kToolCalls:
        return enter(State::kCalls, false);
    }
  }

  const MarkerSet& markers() const {
    if (state_ == State::kReasoning) return reasoning_markers_;
    if (state_ == State::kText) return text_markers_;
    return call_markers(state_);
  }

  void enter(State state, bool leading = false) {
    state_ = state;
    leading_ = leading;
  }

  // Text in front of a marker goes where the state says.
  void release(std::string_view text, const OutputSink& sink) {
    if (text.empty()) return;
    leading_ = false;
    switch (state_) {
      case State::kReasoning:
        return sink({OutputEvent::Kind::kReasoning, text});
      case State::kText:
        return sink({OutputEvent::Kind::kContent, text});
      case State::kStringValue:
        return emit_arguments(escaped(text), sink);
      case State::kCallName:
      case State::kArguments:  // kept for a call whose body is a JSON object
      case State::kParameterName:
      case State::kRawValue:
        text_ += text;
        return;
      case State::kCalls:
      case State::kParameterType:
      case State::kDone:
        return;
    }
  }

  void act(const Marker& marker, const OutputSink& sink) {
    switch (static_cast<Action>(marker.action)) {
      case kDropNewline:
        return;
      case kStopSequence:
        matched_stop_ = marker.text;
        return enter(State::kDone);
      case kCloseReasoning:
        return enter(State::kText, true);
      case kDropMarker:
        return enter(State::kText, false);
      case kOpenCalls:
        return enter(State::kCalls);
      case kOpenCall:
        return collect(State::kCallName);
      case kCallNamed:
        return open_call(sink);
      case kNextCall:
        close_call(sink);
        return single_tool_call_ ? enter(State::kDone) : collect(State::kCallName);
      case kCloseCall:
        close_call(sink);
        return enter(single_tool_call_ ? State::kDone : State::kCalls);
      case kCloseCalls:
        return enter(State::kDone);
      case kOpenParameter:
        return collect(State::kParameterName);
      case kParameterNamed:
        return open_parameter(sink);
      case kStringType:
        emit_arguments("\"", sink);
        return enter(State::kStringValue);
      case kRawType:
        return collect(State::kRawValue);
      case kCloseValue:
        close_value(sink);
        return collect(State::kArguments);
    }
  }

  void collect(State state) {
    text_.clear();
    enter(state);
  }

  void open_call(const OutputSink& sink) {
    ++num_tool_calls_;
    call_open_ = true;
    has_parameters_ = false;
    sink({OutputEvent::Kind::kToolCall, text_});
    collect(State::kArguments);
  }

  void open_parameter(const OutputSink& sink) {
    scratch_ = has_parameters_ ? ", " : "{";
    append_json_string(scratch_, text_);
    scratch_ += ": ";
    has_parameters_ = true;
    emit_arguments(scratch_, sink);
    enter(State::kParameterType);
  }

  void close_value(const OutputSink& sink) {
    if (state_ == State::kStringValue) return emit_arguments("\"", sink);
    if (parse_json(text_).ok()) return emit_arguments(text_, sink);
    scratch_.clear();
    append_json_string(scratch_, text_);
    emit_arguments(scratch_, sink);
  }

  void close_call(const OutputSink& sink) {
    call_open_ = false;
    if (has_parameters_) return emit_arguments("}", sink);
    emit_arguments(body_object().value_or("{}"), sink);
  }

  // Some models write the arguments as one JSON object instead of parameters: `">\n{...}\n`.
  std::optional<std::string_view> body_object() const {
    const size_t tag_end = text_.find('>');
    if (state_ != State::kArguments || tag_end == std::string::npos) return std::nullopt;
    const std::string_view body = trimmed(std::string_view(text_).substr(tag_end + 1));
    if (!body.starts_with('{') || !parse_json(body).ok()) return std::nullopt;
    return body;
  }

  // The model ended inside a call: what is there becomes valid JSON (recipe.md 5.7).
  void close_cut_call(const OutputSink& sink) {
    if (state_ == State::kParameterType) emit_arguments("null", sink);
    if (state_ == State::kStringValue || state_ == State::kRawValue) close_value(sink);
    close_call(sink);
  }

  std::string_view escaped(std::string_view text) {
    scratch_.clear();
    append_json_string(scratch_, text);
    return std::string_view(scratch_).substr(1, scratch_.size() - 2);
  }

  static void emit_arguments(std::string_view text, const OutputSink& sink) {
    if (!text.empty()) sink({OutputEvent::Kind::kToolArguments, text});
  }

  const MarkerSet reasoning_markers_;
  const MarkerSet text_markers_;
  const bool parse_tool_calls_;
  const bool single_tool_call_;
  MarkerScanner scanner_;
  State state_ = State::kText;
  bool leading_ = false;  // nothing was read since the state began, and its leading newlines are dropped
  std::string text_;      // collected name, raw value or call body
  std::string scratch_;
  bool call_open_ = false;
  bool has_parameters_ = false;  // of the open call
  int64_t num_tool_calls_ = 0;
  std::optional<std::string> matched_stop_;
};

OutputParser::OutputParser(OutputOptions options) : machine_(std::make_unique<Machine>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;

void OutputParser::push(std::string_view piece, const OutputSink& sink) {
  machine_->push(piece, sink);
}
void OutputParser::finish(OutputEnd end, const OutputSink& sink) {
  machine_->finish(end, sink);
}
bool OutputParser::in_reasoning() const {
  return machine_->in_reasoning();
}
int64_t OutputParser::num_tool_calls() const {
  return machine_->num_tool_calls();
}
bool OutputParser::done() const {
  return machine_->done();
}
std::optional<std::string> OutputParser::matched_stop_sequence() const {
  return machine_->matched_stop_sequence();
}

}  // namespace deepinfer
