#include "recipe/look_alike.h"

#include <algorithm>
#include <span>

#include "recipe/output_markers.h"

namespace deepinfer {
namespace {

constexpr std::string_view kBlocks[] = {"tool_calls", "function_calls", "calls", "tool_use"};
constexpr std::string_view kInvoke[] = {"invoke"};
constexpr std::string_view kParameter[] = {"parameter"};
using TagNames = std::span<const std::string_view>;

// Reads from the front of a text. Whatever reaches the end of the text before it is decided sets `at_end`.
class TagReader {
 public:
  explicit TagReader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_end_; }
  bool done() const { return at_ == text_.size(); }
  size_t place() const { return at_; }
  void go_to(size_t place) { at_ = place, at_end_ = false; }

  void spaces() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool literal(std::string_view expected) {
    const std::string_view left = text_.substr(at_);
    if (left.starts_with(expected)) return at_ += expected.size(), true;
    at_end_ |= expected.starts_with(left);
    return false;
  }

  // "<" or "</", the control token or one of its look-alikes or nothing, one of `names`.
  std::optional<std::string_view> tag(bool closes, TagNames names) {
    const size_t begin = at_;
    if (literal(closes ? "</" : "<")) {
      spaces();
      if (separators() == 0 || (literal("DSML") && separators() > 0)) {
        for (const std::string_view name : names) {
          if (literal(name)) return name;
        }
      }
    }
    at_end_ |= done();
    at_ = begin;
    return std::nullopt;
  }

  std::optional<std::string_view> until(char last) {
    const size_t end = text_.find(last, at_);
    if (end == std::string_view::npos) return at_end_ = true, std::nullopt;
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  std::string_view rest() const { return text_.substr(at_); }

 private:
  // Bars and spaces between them; the count of bars.
  size_t separators() {
    size_t bars = 0;
    for (spaces(); at_ < text_.size(); spaces()) {
      if (text_[at_] == '|' || text_[at_] == '\\') {
        ++at_;
      } else if (!literal("｜")) {
        break;
      }
      ++bars;
    }
    return bars;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool at_end_ = false;
};

bool is_declared(std::string_view name, const std::vector<ToolSignature>& tools) {
  return std::any_of(tools.begin(), tools.end(),
                     [name](const ToolSignature& tool) { return tool.name == name; });
}

std::optional<std::string_view> named_tag(TagReader& reader, TagNames tag) {
  if (!reader.tag(false, tag)) return std::nullopt;
  reader.spaces();
  if (!reader.literal("name=\"")) return std::nullopt;
  return reader.until('"');
}

// After the name of a parameter: its type, value and closing tag.
bool read_parameter(TagReader& reader, LookAlikeCall::Parameter& parameter) {
  const auto attributes = reader.until('>');
  if (!attributes) return false;
  using Type = LookAlikeCall::Parameter::Type;
  parameter.type = attributes->find("true") != std::string_view::npos    ? Type::kString
                   : attributes->find("false") != std::string_view::npos ? Type::kJson
                                                                         : Type::kUnknown;
  const size_t begin = reader.place();
  const std::string_view from = reader.rest();
  for (size_t at = from.find("</"); at != std::string_view::npos; at = from.find("</", at + 1)) {
    reader.go_to(begin + at);
    if (!reader.tag(true, kParameter) || !reader.literal(">")) continue;
    parameter.value = from.substr(0, at);
    return true;
  }
  return false;
}

// After the name of a call: what it holds, and its closing tag if it has one.
bool read_call(TagReader& reader, LookAlikeCall& call) {
  reader.spaces();
  if (!reader.literal(">")) return false;
  for (;;) {
    reader.spaces();
    const size_t place = reader.place();
    if (const auto name = named_tag(reader, kParameter)) {
      call.parameters.push_back({std::string(*name), "", {}});
      if (!read_parameter(reader, call.parameters.back())) return false;
      continue;
    }
    reader.go_to(place);
    if (call.parameters.empty() && call.body.empty() && reader.rest().starts_with('{')) {
      const size_t end = reader.rest().find("</");
      call.body = reader.rest().substr(0, end);
      reader.go_to(end == std::string_view::npos ? place + call.body.size() : place + end);
      continue;
    }
    if (reader.tag(true, kInvoke) && !reader.literal(">")) return false;
    return true;
  }
}

}  // namespace

std::optional<std::vector<LookAlikeCall>> read_look_alike(std::string_view text,
                                                          const std::vector<ToolSignature>& tools) {
  TagReader reader(text);
  std::vector<LookAlikeCall> calls;
  for (reader.spaces(); !reader.done(); reader.spaces()) {
    // Blocks may be opened, closed or both.
    if ((reader.tag(false, kBlocks) || reader.tag(true, kBlocks)) && reader.literal(">")) continue;
    const auto name = named_tag(reader, kInvoke);
    if (!name || !is_declared(*name, tools)) return std::nullopt;
    calls.push_back({std::string(*name), {}, {}});
    if (!read_call(reader, calls.back())) return std::nullopt;
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

LookAlike judge_look_alike(std::string_view text, const std::vector<ToolSignature>& tools) {
  constexpr size_t kMostUndecided = 300;
  TagReader reader(text.substr(0, kMostUndecided));
  const LookAlike open_end = text.size() > kMostUndecided ? LookAlike::kNo : LookAlike::kUndecided;
  reader.spaces();
  if (reader.tag(false, kBlocks) && !reader.literal(">")) return reader.at_end() ? open_end : LookAlike::kNo;
  reader.spaces();
  const auto name = named_tag(reader, kInvoke);
  if (name) return is_declared(*name, tools) ? LookAlike::kNamed : LookAlike::kNo;
  return reader.at_end() || reader.done() ? open_end : LookAlike::kNo;
}

}  // namespace deepinfer
