// Clients' regular expressions, as ECMA-262 writes them: read by recursive descent, what is no regular language refused,
// and written out as an expression of the compiler that means the same at the place where the text will stand.
#include <algorithm>
#include <optional>

#include "grammar/expression.h"
#include "grammar/schema.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

Error refused(std::string_view what, size_t at) {
  return Error(Code::kUnimplemented, "pattern: {} at byte {} can't be enforced", what, at);
}
Error broken(std::string_view what, size_t at) {
  return Error(Code::kInvalidArgument, "pattern: {} at byte {}", what, at);
}

// What an element of a class means: dialects differ beyond ASCII, so a set that all agree on, and one that holds the
// sets of all.
struct Element {
  CharSet sure, possible;
  bool is_wide = false;
  std::optional<uint32_t> single = {};
};

Element single(uint32_t c) {
  const CharSet set = CharSet::of({{c, c}});
  return {set, set, false, c};
}

Element shorthand(char letter) {
  CharSet sure, possible;
  if (letter == 's' || letter == 'S') {
    sure = CharSet::of({{9, 13}, {' ', ' '}});
    possible = CharSet::of({{9, 13}, {0x1c, 0x20}, {0x85, 0x85}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x180e, 0x180e},
                            {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                            {0x3000, 0x3000}, {0xfeff, 0xfeff}});
  } else {
    sure = CharSet::of({{'0', '9'}});
    if (letter == 'w' || letter == 'W') sure.add(CharSet::of({{'A', 'Z'}, {'_', '_'}, {'a', 'z'}}));
    possible = sure;
    possible.add(0x80, 0x10ffff);
  }
  const bool is_inverse = letter < 'a';
  if (!is_inverse) return {sure, possible};
  return {possible.inverse(), sure.inverse(), true};
}

// Reads and writes in one pass. `size` counts characters with repetitions written out.
class PatternReader {
 public:
  PatternReader(std::string_view text, TextPlace place, const SchemaLimits& limits)
      : text_(text), place_(place), limits_(limits) {}

  Result<std::string> read() {
    if (std::ssize(text_) > limits_.pattern_bytes) {
      return Error(Code::kInvalidArgument, "pattern: found {} bytes, expected at most {}", text_.size(),
                   limits_.pattern_bytes);
    }
    if (text_.find('\0') != std::string_view::npos) return broken("a NUL character", text_.find('\0'));
    if (!is_well_formed_utf8(text_)) return broken("invalid UTF-8", 0);
    ASSIGN_OR_RETURN(const int64_t size, alternatives(0));
    if (at_ < text_.size()) return broken("a ')' without '('", at_);
    RETURN_IF_ERROR(check(size));
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
    const size_t begin = out_.size();
    int64_t total = 0;
    bool several = false;
    while (true) {
      ASSIGN_OR_RETURN(const int64_t size, sequence(depth));
      total += size;
      RETURN_IF_ERROR(check(total));
      if (!more() || text_[at_] != '|') break;
      several = true;
      out_ += text_[at_++];
    }
    if (several || depth > 0) {
      out_.insert(begin, "(?:");
      out_ += ')';
    }
    return total;
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
    const char c = text_[at_];
    if (c == '(') return group(depth);
    if (c == '[') return char_class();
    if (c == '*' || c == '+' || c == '?') return broken("a repetition without an operand", at);
    if (c == '{') return broken("an unescaped '{'", at);
    if (c == '.') {
      ++at_;
      return write(CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).inverse(), true, at);
    }
    ASSIGN_OR_RETURN(const Element one, c == '\\' ? escape(false) : Result<Element>(single(character())));
    return write(one.sure, one.is_wide, at);
  }

  Result<int64_t> write(const CharSet& set, bool is_wide, size_t at) {
    const std::string expression = expression_of(set, place_, is_wide);
    if (expression.empty())
      return set.empty() ? Result<int64_t>(broken("a class without a character", at))
                         : Result<int64_t>(refused("a '｜' in an argument of a call", at));
    out_ += expression;
    return 1;
  }

  uint32_t character() {
    const Utf8Part part = utf8_character(text_.data() + at_);
    at_ += part.length;
    return part.code_point;
  }

  Result<int64_t> group(int depth) {
    const size_t at = at_++;
    if (text_.substr(at_).starts_with("?:")) {
      at_ += 2;
    } else if (more() && text_[at_] == '?') {
      return refused("a look-around, a named group or a flag", at);
    }
    ASSIGN_OR_RETURN(const int64_t size, alternatives(depth + 1));
    if (!more()) return broken("a '(' without ')'", at);
    ++at_;
    return size;
  }

  Result<int64_t> char_class() {
    const size_t at = at_++;
    const bool negated = more() && text_[at_] == '^';
    if (negated) ++at_;
    if (more() && text_[at_] == ']') return broken("an empty class, or an unescaped ']'", at_);
    Element all;
    while (more() && text_[at_] != ']') {
      if (text_.substr(at_).starts_with("[:")) return refused("a POSIX class", at_);
      const size_t begin = at_;
      ASSIGN_OR_RETURN(Element one, element());
      const bool is_range = one.single && more() && text_[at_] == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        ASSIGN_OR_RETURN(const Element last, element());
        if (!last.single) return broken("a range to a class", begin);
        if (*last.single < *one.single) return broken("a range that goes backwards", begin);
        one.sure.add(*one.single, *last.single);
        one.sure = one.sure.inverse().inverse();  // without surrogates
        one.possible = one.sure;
      }
      all.sure.add(one.sure);
      all.possible.add(one.possible);
      all.is_wide = all.is_wide || one.is_wide;
    }
    if (!more()) return broken("a '[' without ']'", at);
    ++at_;
    return negated ? write(all.possible.inverse(), true, at) : write(all.sure, all.is_wide, at);
  }

  Result<Element> element() {
    if (text_[at_] == '\\') return escape(true);
    return single(character());
  }

  std::optional<uint32_t> hex(size_t digits) {
    if (at_ + digits > text_.size()) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = text_[at_ + i];
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
      value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    at_ += digits;
    return value;
  }

  Result<Element> escape(bool in_class) {
    const size_t at = at_++;
    if (!more()) return broken("a trailing '\\'", at);
    if (static_cast<unsigned char>(text_[at_]) >= 0x80) return single(character());
    const char c = text_[at_++];
    if (c >= '1' && c <= '9') return refused("a back-reference", at);
    if (c == 'b' && in_class) return single('\b');
    if (std::string_view("bBAZzG").find(c) != std::string_view::npos) return refused("an assertion", at);
    if (std::string_view("dDwWsS").find(c) != std::string_view::npos) return shorthand(c);
    constexpr std::pair<char, uint32_t> kLetters[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                      {'f', '\f'}, {'v', '\v'}, {'0', 0}};
    for (const auto& [letter, value] : kLetters) {
      if (c == letter) return single(value);
    }
    if (c == 'x') {
      const auto value = hex(2);
      if (!value) return broken("a \\x without two hexadecimal digits", at);
      return single(*value);
    }
    if (c == 'u') return unicode_escape(at);
    if (c == 'c' && more() && std::isalpha(static_cast<unsigned char>(text_[at_])) != 0)
      return single(static_cast<uint32_t>(text_[at_++]) & 0x1f);
    if (std::string_view("pPkcQE").find(c) != std::string_view::npos) return refused(fmt::format("\\{}", c), at);
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) return broken(fmt::format("an unknown escape \\{}", c), at);
    return single(static_cast<unsigned char>(c));
  }

  Result<Element> unicode_escape(size_t at) {
    if (more() && text_[at_] == '{') {
      const size_t end = text_.find('}', at_);
      ++at_;
      const auto value = end == std::string_view::npos || end <= at_ || end - at_ > 6 ? std::nullopt : hex(end - at_);
      if (!value || *value > 0x10ffff || (*value >= 0xd800 && *value < 0xe000))
        return broken("a \\u{} without a code point", at);
      ++at_;
      return single(*value);
    }
    std::optional<uint32_t> value = hex(4);
    if (!value) return broken("a \\u without four hexadecimal digits", at);
    if (*value >= 0xd800 && *value < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const auto low = hex(4);
      if (low && *low >= 0xdc00 && *low < 0xe000) return single(0x10000 + ((*value - 0xd800) << 10) + (*low - 0xdc00));
    }
    if (*value >= 0xd800 && *value < 0xe000) return refused("half of a surrogate pair", at);
    return single(*value);
  }

  // How often the atom before counts; greediness changes no language.
  Result<int64_t> repetition(size_t begin) {
    if (!more()) return 1;
    int64_t times = 1;
    const size_t at = at_;
    const char c = text_[at_];
    if (c == '?') {
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
      const std::string atom = out_.substr(begin);
      out_.resize(begin);
      out_ += repeated(atom, *low, open ? std::nullopt : high);
    } else {
      return 1;
    }
    if (more() && text_[at_] == '?') ++at_;
    if (more() && (text_[at_] == '+' || text_[at_] == '*' || text_[at_] == '{')) {
      return broken("a repetition of a repetition", at_);
    }
    return times;
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
  const TextPlace place_;
  const SchemaLimits& limits_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> prepare_pattern(std::string_view pattern, TextPlace place, const SchemaLimits& limits) {
  return PatternReader(pattern, place, limits).read();
}

}  // namespace deepinfer
