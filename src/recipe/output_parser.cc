// The output state machine (docs/spec/recipe.md 5.2) with the changes of 5.3: names are escaped as JSON (1), raw values
// that are not JSON become strings (2), only a marker that opens a known block starts calls (3), a missing
// string attribute (4), a JSON object as call body (5), a value or call that the next one ends (6), a block
// without a call comes back as text (7), a second <think> (10), JSON that ends at its bracket (11), calls
// without their control token (12), arguments in a wrapper (13); a call left open by the model is closed
// (5.7), and control tokens written out at the end are not part of the answer (5.1).
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "recipe/json_extent.h"
#include "recipe/look_alike.h"
#include "recipe/output_markers.h"

namespace deepinfer {
namespace {

using State = OutputState;

constexpr int kMostLookAlikes = 8;  // tried at the end of an answer; bounds the time

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

const ToolSignature* signature_of(const std::vector<ToolSignature>& tools, std::string_view name) {
  for (const ToolSignature& tool : tools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

const ToolSignature::Parameter* parameter_of(const ToolSignature* tool, std::string_view name) {
  if (tool == nullptr) return nullptr;
  for (const auto& parameter : tool->parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

// A name under which models put all arguments of a tool that has no such parameter.
bool may_wrap(const ToolSignature* tool, std::string_view name) {
  return (name == "arguments" || name == "input") && tool != nullptr && parameter_of(tool, name) == nullptr;
}

enum class Opening { kNo, kUndecided, kCall };

// Whether what is left of `text` is one of these, or may become one.
Opening begins_with(std::string_view text, std::initializer_list<std::string_view> expected) {
  Opening best = Opening::kNo;
  for (const std::string_view one : expected) {
    if (text.starts_with(one)) return Opening::kCall;
    if (one.starts_with(text)) best = Opening::kUndecided;
  }
  return best;
}

std::string_view without_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Whether a call opens at `text`, which begins with an opener in full spelling, or is only spoken of: a name in quotes
// and a tag's end or a line's must follow, and behind them an argument, an object or a closer.
Opening judge_opening(std::string_view text) {
  constexpr size_t kMostUndecided = 1024;
  constexpr std::string_view kInvoke = "invoke name=\"";
  if (text.size() > kMostUndecided) return Opening::kNo;
  text = without_space(text);
  if (text.starts_with(kDsmlOpen)) text.remove_prefix(kDsmlOpen.size());
  text = without_space(text);
  if (!text.starts_with(kInvoke)) {  // a block: its first call decides, or that it has a line of its own
    const size_t end = text.find_first_of(">\n");
    const std::string_view behind = text.substr(end + 1);
    const std::string_view next = without_space(behind);
    const Opening call = begins_with(next, {"<｜DSML｜ invoke name=\"", "<｜DSML｜invoke name=\"", kInvoke});
    if (call == Opening::kCall) return judge_opening(next);
    if (call == Opening::kUndecided) return call;
    return text[end] == '\n' || behind.starts_with('\n') ? Opening::kCall : Opening::kNo;
  }
  text.remove_prefix(kInvoke.size());
  for (const std::string_view end_of_part : {"\"", ">\n"}) {  // the name, then the tag
    const size_t end = text.find_first_of("\"<>\n`");
    if (end == std::string_view::npos) return Opening::kUndecided;
    if (end_of_part.find(text[end]) == std::string_view::npos) return Opening::kNo;
    text.remove_prefix(end + 1);
  }
  return begins_with(without_space(text), {kDsmlOpen, kDsmlClose, "{", "parameter name=\"", kInvoke});
}

// How far "<invoke" is matched once `text` has followed.
size_t match_plain_opener(size_t matched, std::string_view text) {
  constexpr std::string_view kOpener = "<invoke";
  for (const char c : text) {
    if (matched == kOpener.size()) break;
    matched = c == kOpener[matched] ? matched + 1 : c == '<' ? 1 : 0;
  }
  return matched;
}
constexpr size_t kPlainOpenerSeen = 7;

bool are_arguments_of(const ToolSignature* tool, const JsonValue& value) {
  return value.object() != nullptr &&
         std::all_of(value.object()->begin(), value.object()->end(),
                     [tool](const JsonMember& member) { return parameter_of(tool, member.key) != nullptr; });
}

}  // namespace

class OutputParser::Machine {
 public:
  explicit Machine(OutputOptions options) : options_(std::move(options)), markers_(options_) {
    enter_start();
  }

  void push(std::string_view piece, const OutputSink& sink) {
    if (state_ == State::kDone) return;
    if (scanner_.empty()) {
      // Most pieces of text hold nothing of interest and are passed on without being copied.
      const size_t plain = state_ == State::kJson ? 0 : set_->plain_prefix(piece);
      release(piece.substr(0, plain), sink);
      piece.remove_prefix(plain);
      if (piece.empty()) return;
    }
    scanner_.append(piece);
    read(sink);
    scanner_.compact();
  }

  void finish(OutputEnd end, const OutputSink& sink) {
    settle_look_alikes(sink);
    while (state_ == State::kOpening) {
      const bool is_cut = end == OutputEnd::kLength && !opening_has_line_;
      if (is_cut) scanner_.skip(scanner_.rest().size());  // cut markup never reaches the reader
      settle_opening(opening_has_line_, sink);
      read(sink);
      settle_look_alikes(sink);
    }
    if (state_ == State::kDone) return;
    const bool in_text = state_ == State::kReasoning || state_ == State::kText;
    // The beginning of a call block never reaches the reader, whatever cut it off.
    const bool cut_opener =
        in_text && options_.parse_tool_calls && scanner_.unfinished().starts_with(kDsmlOpen);
    if (!cut_opener) release(scanner_.rest(), sink);
    if (state_ == State::kJsonSearch || (withholds_ && end == OutputEnd::kStop)) give_back(sink);
    if (call_open_ && end == OutputEnd::kStop) close_cut_call(sink);
    if (call_open_) release_cut_value(sink);
    state_ = State::kDone;
  }

  bool in_reasoning() const { return state_ == State::kReasoning; }
  bool done() const { return state_ == State::kDone; }
  int64_t num_tool_calls() const { return num_tool_calls_; }
  const std::optional<std::string>& matched_stop_sequence() const { return matched_stop_; }

 private:
  // ---- States ----

  void enter_start() {
    switch (options_.start) {
      case OutputStage::kReasoning:
        return enter(State::kReasoning, true);
      case OutputStage::kReasoningContinuation:
        return enter(State::kReasoning, false);
      case OutputStage::kContent:
        return enter_text(true);
      case OutputStage::kContentContinuation:
        return enter_text(false);
      case OutputStage::kToolCalls:
        withholds_ = true;
        return enter(State::kCalls);
    }
  }

  void enter(State state, bool leading = false) {
    state_ = state;
    sentence_marks_.clear();
    leading_ = leading;
    set_ = &markers_.of(state);
  }
  void enter_text(bool leading) {
    last_read_ = '\n';
    enter(options_.json_output ? State::kJsonSearch : State::kText, leading && !options_.verbatim_content);
  }
  void collect(State state) {
    text_.clear();
    enter(state);
  }

  void read(const OutputSink& sink) {
    while (state_ != State::kDone) {
      if (state_ == State::kLookAlike) {
        if (may_be_look_alike()) return;
        refuse_look_alike(sink);
        continue;
      }
      if (state_ == State::kOpening) {
        const Opening judged = judge_opening(scanner_.rest());
        if (judged == Opening::kUndecided) return;
        settle_opening(judged == Opening::kCall, sink);
        continue;
      }
      const MarkerScanner::Found found = scanner_.next(*set_, leading_);
      if (state_ == State::kJson) {
        const size_t inside = json_.read(found.before);
        if (json_.ended()) {
          const std::string_view value = found.before.substr(0, inside);
          scanner_.rewind_to(value.data() + value.size());
          release(value, sink);
          enter(State::kJsonAfter);
          continue;
        }
      }
      release(found.before, sink);
      if (found.marker == nullptr) return;
      act(found, sink);
    }
  }

  // Text in front of a marker goes where the state says.
  void release(std::string_view text, const OutputSink& sink) {
    if (text.empty()) return;
    leading_ = false;
    if (!sentence_marks_.empty()) release(std::exchange(sentence_marks_, {}), sink);  // not at the end
    last_read_ = text.back();
    if (state_ == State::kText) plain_opener_ = match_plain_opener(plain_opener_, text);
    switch (state_) {
      case State::kReasoning:
        return sink({OutputEvent::Kind::kReasoning, text});
      case State::kText:
      case State::kJson:
        return sink({OutputEvent::Kind::kContent, text});
      case State::kStringValue:
        return emit_arguments(escaped(text), sink);
      case State::kJsonSearch:
      case State::kCalls:
        if (withholds_ || state_ == State::kJsonSearch) withheld_ += text;
        return;
      case State::kCallName:
        if (withholds_) withheld_ += text;
        [[fallthrough]];
      case State::kArguments:  // kept for a call whose body is a JSON object
      case State::kParameterName:
      case State::kParameterType:
      case State::kRawValue:
      case State::kWrappedValue:
        text_ += text;
        return;
      case State::kOpening:
      case State::kLookAlike:
      case State::kJsonAfter:
      case State::kDone:
        return;
    }
  }

  void act(const MarkerScanner::Found& found, const OutputSink& sink) {
    switch (static_cast<OutputAction>(found.marker->action)) {
      case kDropAtStart:
        return;
      case kStopSequence:
        matched_stop_ = found.marker->text;
        return enter(State::kDone);
      case kCloseReasoning:
        return enter_text(true);
      case kDropMarker:
        return enter(State::kText);
      case kSentenceMark:
        leading_ = false;
        sentence_marks_ += found.matched;
        return;
      case kOpenJson:
        withheld_.clear();
        json_.reset();
        scanner_.rewind_to(found.matched.data());
        return enter(State::kJson);
      case kOpenLookAlike:
        if (look_alikes_over_) return release(found.matched, sink);
        look_alike_size_ = found.matched.size();
        look_alike_named_ = false;
        look_alike_seen_ = 0;
        scanner_.rewind_to(found.matched.data());
        return enter(State::kLookAlike);
      case kStrayCloser: {
        const bool is_meant = last_read_ == '`' || (found.matched == "</invoke>" && plain_opener_ == kPlainOpenerSeen);
        if (is_meant) release(found.matched, sink);
        return;
      }
      case kOpenCalls:
        if (is_in_question(found.matched)) return;
        withhold(found.matched);
        return enter(State::kCalls);
      case kOpenCall:
        if (is_in_question(found.matched)) return;
        withhold(found.matched);
        return collect(State::kCallName);
      case kCallNamed:
        return open_call(sink);
      case kNextCallAfterValue:
        close_value(sink);
        [[fallthrough]];
      case kNextCall:
        close_call(sink);
        return options_.single_tool_call ? enter(State::kDone) : collect(State::kCallName);
      case kCloseCall:
        close_call(sink);
        return enter(options_.single_tool_call ? State::kDone : State::kCalls);
      case kCloseCalls:
        if (!withholds_) return enter(State::kDone);
        withheld_ += found.matched;
        give_back(sink);
        return enter(options_.start == OutputStage::kToolCalls ? State::kDone : State::kText);
      case kOpenParameter:
        return collect(State::kParameterName);
      case kParameterNamed:
        return open_parameter(sink);
      case kStringType:
        return open_value(ValueType::kString, sink);
      case kOtherType:
        return open_value(type_from_attributes(), sink);
      case kCloseValue:
        close_value(sink);
        return collect(State::kArguments);
      case kNextParameter:
        close_value(sink);
        return collect(State::kParameterName);
    }
  }

  // ---- Text that is held until it is clear what it is ----

  // From the opener of the first block on, until a call has its name.
  void withhold(std::string_view text) {
    if (num_tool_calls_ > 0) return;
    if (!withholds_) withheld_.clear();
    withholds_ = true;
    withheld_ += text;
  }

  // Nothing came of it: the reader gets it as it was written.
  void give_back(const OutputSink& sink) {
    withholds_ = false;
    const bool is_search = state_ == State::kJsonSearch;
    const std::string_view text = is_search ? trimmed(withheld_) : std::string_view(withheld_);
    if (!trimmed(text).empty()) sink({OutputEvent::Kind::kContent, text});
  }

  // The opener of the first call is read again once it is clear that it is one.
  bool is_in_question(std::string_view opener) {
    if (std::exchange(opening_settled_, false) || num_tool_calls_ > 0 || options_.start == OutputStage::kToolCalls)
      return false;
    scanner_.rewind_to(opener.data());
    opening_has_line_ = opener.starts_with('\n') || last_read_ == '\n' || state_ == State::kCalls;
    opening_state_ = state_;
    state_ = State::kOpening;
    return true;
  }

  void settle_opening(bool is_call, const OutputSink& sink) {
    state_ = opening_state_;
    const std::string_view text = scanner_.rest();
    if (text.empty()) return;
    opening_settled_ = is_call;
    if (is_call) return;
    const size_t size = text.find_first_not_of('\n') + 1;  // its first byte; the next opener is its own
    release(text.substr(0, size), sink);
    scanner_.skip(size);
  }

  // Looks at each byte once when the text grows.
  bool may_be_look_alike() {
    const std::string_view text = scanner_.rest();
    if (!look_alike_named_) {
      const LookAlike judgement = judge_look_alike(text, options_.tools);
      if (judgement != LookAlike::kNamed) return judgement == LookAlike::kUndecided;
      look_alike_named_ = true;
    }
    const size_t from = std::max(look_alike_seen_, kDsmlOpen.size()) - kDsmlOpen.size();
    look_alike_seen_ = text.size();
    return text.find(kDsmlOpen, from) == std::string_view::npos;  // a call in full spelling ends it
  }

  void refuse_look_alike(const OutputSink& sink) {
    enter(State::kText);
    release(scanner_.rest().substr(0, look_alike_size_), sink);
    scanner_.skip(look_alike_size_);
  }

  // The answer is over: what looks like calls to its end is calls.
  void settle_look_alikes(const OutputSink& sink) {
    for (int tried = 1; state_ == State::kLookAlike; ++tried) {
      look_alikes_over_ = tried == kMostLookAlikes;
      if (const auto calls = read_look_alike(scanner_.rest(), options_.tools)) {
        for (const LookAlikeCall& call : *calls) {
          replay(call, sink);
          if (options_.single_tool_call) break;
        }
        return enter(State::kDone);
      }
      refuse_look_alike(sink);
      read(sink);
    }
  }

  void replay(const LookAlikeCall& call, const OutputSink& sink) {
    text_ = call.name;
    open_call(sink);
    for (const auto& parameter : call.parameters) {
      text_ = parameter.name;
      open_parameter(sink);
      using Type = LookAlikeCall::Parameter::Type;
      open_value(parameter.type == Type::kString ? ValueType::kString
                 : parameter.type == Type::kJson ? ValueType::kJson
                                                 : unknown_type(),
                 sink);
      release(parameter.value, sink);
      close_value(sink);
      collect(State::kArguments);
    }
    text_ = ">" + call.body;
    close_call(sink);
  }

  // ---- Calls ----

  enum class ValueType { kString, kJson };

  void open_call(const OutputSink& sink) {
    withholds_ = false;
    ++num_tool_calls_;
    call_open_ = true;
    has_parameters_ = false;
    tool_ = signature_of(options_.tools, text_);
    sink({OutputEvent::Kind::kToolCall, text_});
    collect(State::kArguments);
  }

  void open_parameter(const OutputSink& sink) {
    parameter_ = parameter_of(tool_, text_);
    wraps_ = !has_parameters_ && may_wrap(tool_, text_);
    scratch_ = has_parameters_ ? ", " : "{";
    append_json_string(scratch_, text_);
    scratch_ += ": ";
    if (wraps_) {
      wrapper_opening_ = scratch_;  // told when it turns out to be none
    } else {
      has_parameters_ = true;
      emit_arguments(scratch_, sink);
    }
    collect(State::kParameterType);
  }

  ValueType unknown_type() const {
    return parameter_ != nullptr && parameter_->is_string ? ValueType::kString : ValueType::kJson;
  }
  // What stands between the name and ">" where it is not string="true".
  ValueType type_from_attributes() const {
    if (text_.find("rue") != std::string::npos) return ValueType::kString;
    if (text_.find("alse") != std::string::npos) return ValueType::kJson;
    return unknown_type();
  }

  void open_value(ValueType type, const OutputSink& sink) {
    if (wraps_) {
      wrapper_type_ = type;
      return collect(State::kWrappedValue);
    }
    if (type == ValueType::kJson) return collect(State::kRawValue);
    emit_arguments("\"", sink);
    enter(State::kStringValue);
  }

  void close_value(const OutputSink& sink) {
    if (state_ == State::kStringValue) return emit_arguments("\"", sink);
    if (state_ == State::kWrappedValue) return close_wrapper(sink);
    emit_json_or_string(text_, sink);
  }

  void emit_json_or_string(std::string_view text, const OutputSink& sink) {
    if (parse_json(text).ok()) return emit_arguments(text, sink);
    scratch_.clear();
    append_json_string(scratch_, text);
    emit_arguments(scratch_, sink);
  }

  void close_wrapper(const OutputSink& sink) {
    const Result<JsonValue> value = parse_json(text_);
    if (value.ok() && are_arguments_of(tool_, *value)) {
      if (value->object()->empty()) return;
      has_parameters_ = true;
      std::string_view object = trimmed(text_);
      object.remove_suffix(1);  // more parameters may follow
      return emit_arguments(object, sink);
    }
    has_parameters_ = true;
    emit_arguments(wrapper_opening_, sink);
    if (wrapper_type_ == ValueType::kJson) return emit_json_or_string(text_, sink);
    scratch_.clear();
    append_json_string(scratch_, text_);
    emit_arguments(scratch_, sink);
  }

  void close_call(const OutputSink& sink) {
    call_open_ = false;
    if (has_parameters_) return emit_arguments("}", sink);
    const std::string_view body = body_object();
    if (body.empty()) return emit_arguments("{}", sink);
    const JsonValue value = *parse_json(body);
    const JsonValue::Object& object = *value.object();
    if (object.size() == 1 && may_wrap(tool_, object[0].key) && are_arguments_of(tool_, object[0].value)) {
      return emit_arguments(to_json(object[0].value, JsonStyle::kPython), sink);
    }
    emit_arguments(body, sink);
  }

  // Some models write the arguments as one JSON object instead of parameters: `">\n{...}\n`. Empty: none.
  std::string_view body_object() const {
    const size_t tag_end = text_.find('>');
    if (state_ != State::kArguments || tag_end == std::string::npos) return {};
    const std::string_view body = trimmed(std::string_view(text_).substr(tag_end + 1));
    return body.starts_with('{') && parse_json(body).ok() ? body : std::string_view();
  }

  // The model ended inside a call: what is there becomes valid JSON (docs/spec/recipe.md 5.7).
  void close_cut_call(const OutputSink& sink) {
    if (state_ == State::kParameterType && !wraps_) emit_arguments("null", sink);
    if (state_ == State::kStringValue || state_ == State::kRawValue || state_ == State::kWrappedValue) {
      close_value(sink);
    }
    close_call(sink);
  }

  // The token limit ended the call: it stays cut.
  void release_cut_value(const OutputSink& sink) {
    if (state_ == State::kWrappedValue) {
      emit_arguments(wrapper_opening_, sink);
      if (wrapper_type_ == ValueType::kString) {
        emit_arguments("\"", sink);
        return emit_arguments(escaped(text_), sink);
      }
    }
    if (state_ == State::kRawValue || state_ == State::kWrappedValue) emit_arguments(text_, sink);
  }

  std::string_view escaped(std::string_view text) {
    scratch_.clear();
    append_json_string(scratch_, text);
    return std::string_view(scratch_).substr(1, scratch_.size() - 2);
  }

  static void emit_arguments(std::string_view text, const OutputSink& sink) {
    if (!text.empty()) sink({OutputEvent::Kind::kToolArguments, text});
  }

  const OutputOptions options_;
  const OutputMarkers markers_;
  MarkerScanner scanner_;
  State state_ = State::kText;
  const MarkerSet* set_ = nullptr;  // of state_
  bool leading_ = false;            // nothing was read since the state began, and what leads it is dropped
  std::string text_;                // collected name, raw value or call body
  std::string scratch_;
  bool withholds_ = false;      // a block began and no call yet
  State opening_state_ = State::kText;  // where an opener in question was read
  bool opening_has_line_ = false;       // and whether its line begins with it
  bool opening_settled_ = false;        // the next opener opens
  char last_read_ = '\n';
  size_t plain_opener_ = 0;  // bytes of "<invoke" that the text ends with; all of them: it was in the text
  std::string sentence_marks_;  // in text or reasoning, with nothing after them so far
  std::string withheld_;        // that block, or what stands before JSON
  size_t look_alike_size_ = 0;  // of its opener
  size_t look_alike_seen_ = 0;
  bool look_alike_named_ = false;
  bool look_alikes_over_ = false;
  JsonExtent json_;
  bool call_open_ = false;
  bool has_parameters_ = false;          // of the open call
  const ToolSignature* tool_ = nullptr;  // of the open call, null when it is not declared
  const ToolSignature::Parameter* parameter_ = nullptr;
  bool wraps_ = false;  // the open parameter may hold all arguments
  std::string wrapper_opening_;
  ValueType wrapper_type_ = ValueType::kJson;
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
