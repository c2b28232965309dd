// Regular expressions: anchors off, what the compiler can't do refused, and the size after all repetitions
// bounded.
#include <algorithm>
#include <optional>

#include "grammar/schema.h"

namespace deepinfer {
namespace {

Error refused(std::string_view what, size_t at) {
  return Error(Code::kUnimplemented, "pattern: {} at byte {} can't be enforced", what, at);
}
Error broken(std::string_view what, size_t at) {
  return Error(Code::kInvalidArgument, "pattern: {} at byte {}", what, at);
}

// One pass over the pattern by recursive descent. `size` counts characters with repetitions written out.
class PatternReader {
 public:
  PatternReader(std::string_view text, const SchemaLimits& limits) : text_(text), limits_(limits) {}

  Result<std::string> read() {
    if (std::ssize(text_) > limits_.pattern_bytes) {
      return Error(Code::kInvalidArgument, "pattern: found {} bytes, expected at most {}", text_.size(),
                   limits_.pattern_bytes);
    }
    if (text_.find('\0') != std::string_view::npos) return broken("a NUL character", text_.find('\0'));
    ASSIGN_OR_RETURN(const int64_t size, alternatives(0));
    if (at_ < text_.size()) return broken("a ')' without '('", at_);
    RETURN_IF_ERROR(check(size));
    if (non_ascii_ && wild_) {
      return Error(
          Code::kUnimplemented,
          "pattern: non-ASCII characters together with '.', negated classes or \\S, \\W, \\D can't be enforced");
    }
    return std::move(out_);
  }

 private:
  static constexpr int kMaxGroups = 64;

  Status check(int64_t size) const {
    if (size <= limits_.pattern_states) return {};
    return Error(Code::kInvalidArgument, "pattern: it is longer than {} characters with its repetitions expanded",
                 limits_.pattern_states);
  }
  bool more() const { return at_ < text_.size(); }
  bool is_edge() const { return !more() || text_[at_] == '|' || text_[at_] == ')'; }

  Result<int64_t> alternatives(int depth) {
    if (depth > kMaxGroups) return broken("groups nested too deep", at_);
    int64_t total = 0;
    while (true) {
      ASSIGN_OR_RETURN(const int64_t size, sequence(depth));
      total += size;
      RETURN_IF_ERROR(check(total));
      if (!more() || text_[at_] != '|') return total;
      out_ += text_[at_++];
    }
  }

  Result<int64_t> sequence(int depth) {
    int64_t total = 1;
    while (more() && text_[at_] == '^') ++at_;
    while (!is_edge()) {
      if (text_[at_] == '$') {
        const size_t at = at_++;
        if (!is_edge()) return refused("'$' before the end", at);
        break;
      }
      if (text_[at_] == '^') return refused("'^' after the start", at_);
      const size_t begin = out_.size();
      ASSIGN_OR_RETURN(const int64_t atom_size, atom(depth));
      ASSIGN_OR_RETURN(const int64_t times, repetition(begin));
      total += atom_size * times;
      RETURN_IF_ERROR(check(total));
    }
    return total;
  }

  Result<int64_t> atom(int depth) {
    const size_t at = at_;
    const char c = text_[at_++];
    if (c == '(') return group(depth, at);
    if (c == '[') return char_class(at);
    if (c == '\\') return escape(at);
    if (c == '*' || c == '+' || c == '?') return broken("a repetition without an operand", at);
    if (c == '{') return broken("an unescaped '{'", at);
    if (c == '.') wild_ = true;
    if (static_cast<unsigned char>(c) >= 0x80) non_ascii_ = true;
    out_ += c == '}' || c == ']' ? std::string("\\") + c : std::string(1, c);
    return 1;
  }

  Result<int64_t> group(int depth, size_t at) {
    out_ += '(';
    if (text_.substr(at_).starts_with("?:")) {
      out_ += "?:";
      at_ += 2;
    } else if (more() && text_[at_] == '?') {
      return refused("a look-around, a named group or a flag", at);
    }
    ASSIGN_OR_RETURN(const int64_t size, alternatives(depth + 1));
    if (!more()) return broken("a '(' without ')'", at);
    out_ += text_[at_++];
    return size;
  }

  Result<int64_t> char_class(size_t at) {
    out_ += '[';
    if (more() && text_[at_] == '^') {
      wild_ = true;
      out_ += text_[at_++];
    }
    for (bool first = true; more() && (text_[at_] != ']' || first); first = false) {
      const char c = text_[at_];
      if (c == '[') {
        if (text_.substr(at_).starts_with("[:")) return refused("a POSIX class", at_);
        out_ += "\\[";
        ++at_;
        continue;
      }
      if (c == ']') {  // first of the class
        return broken("an empty class, or an unescaped ']'", at_);
      }
      if (c == '\\') {
        ++at_;
        ASSIGN_OR_RETURN(const int64_t unused, escape(at_ - 1));
        (void)unused;
        continue;
      }
      if (static_cast<unsigned char>(c) >= 0x80) non_ascii_ = true;
      out_ += c;
      ++at_;
    }
    if (!more()) return broken("a '[' without ']'", at);
    out_ += text_[at_++];
    return 1;
  }

  Result<int64_t> escape(size_t at) {
    if (!more()) return broken("a trailing '\\'", at);
    const char c = text_[at_++];
    if (c >= '1' && c <= '9') return refused("a back-reference", at);
    if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z' || c == 'G')
      return refused("an assertion", at);
    if (c == 'p' || c == 'P' || c == 'k' || c == 'c' || c == 'Q' || c == 'E') {
      return refused(fmt::format("\\{}", c), at);
    }
    if (c == 'S' || c == 'W' || c == 'D') wild_ = true;
    const bool known_letter = std::string_view("dDwWsSnrtfvxu0").find(c) != std::string_view::npos;
    const bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (alnum && !known_letter) return broken(fmt::format("an unknown escape \\{}", c), at);
    out_ += '\\';
    out_ += c;
    return 1;
  }

  // How often the atom before counts; the quantifier is copied without its greediness, which changes no
  // language.
  Result<int64_t> repetition(size_t begin) {
    if (!more()) return 1;
    int64_t times = 1;
    const size_t at = at_;
    const char c = text_[at_];
    if (c == '?') {  // written out: the library takes (ab+)? for (ab+|b*)
      out_.insert(begin, "(?:");
      out_ += "|)";
      ++at_;
    } else if (c == '*' || c == '+') {
      out_ += c;
      ++at_;
    } else if (c == '{') {
      ++at_;
      const std::optional<int64_t> low = number();
      std::optional<int64_t> high = low;
      bool open = false;
      if (more() && text_[at_] == ',') {
        ++at_;
        high = number();
        open = !high;
      }
      if (!low || !more() || text_[at_] != '}')
        return broken("a repetition other than {m}, {m,} or {m,n}", at);
      ++at_;
      if (!open && *high < *low) return broken(fmt::format("a repetition from {} to {}", *low, *high), at);
      times = std::max<int64_t>(1, open ? *low : *high);
      RETURN_IF_ERROR(check(times));
      write_count(begin, *low, open ? std::nullopt : high);
    } else {
      return 1;
    }
    if (more() && text_[at_] == '?') ++at_;
    if (more() && (text_[at_] == '+' || text_[at_] == '*' || text_[at_] == '{')) {
      return broken("a repetition of a repetition", at_);
    }
    return times;
  }

  // In parts: a larger count takes a way through the library that forgets what JSON strings may hold, or fails.
  void write_count(size_t begin, int64_t low, std::optional<int64_t> high) {
    constexpr int64_t kMost = 128;
    const std::string atom = out_.substr(begin);
    out_.resize(begin);
    std::string closing;
    for (; low > kMost || (high && *high > kMost); low = std::max<int64_t>(0, low - kMost)) {
      if (low < kMost) {  // one way for each text, or masks would cost a multiple
        out_ += fmt::format("(?:{}{{{},{}}}|", atom, low, kMost - 1);
        closing += ')';
      }
      out_ += fmt::format("{}{{{},{}}}", atom, kMost, kMost);
      if (high) *high -= kMost;
    }
    out_ += fmt::format("{}{{{},{}}}{}", atom, low, high ? std::to_string(*high) : "", closing);
  }

  std::optional<int64_t> number() {
    int64_t value = 0;
    const size_t begin = at_;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<int64_t>(value * 10 + (text_[at_++] - '0'), 1'000'000'000);
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  const std::string_view text_;
  const SchemaLimits& limits_;
  size_t at_ = 0;
  std::string out_;
  bool non_ascii_ = false, wild_ = false;
};

}  // namespace

Result<std::string> prepare_pattern(std::string_view pattern, const SchemaLimits& limits) {
  return PatternReader(pattern, limits).read();
}

}  // namespace deepinfer
