#include "grammar/expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

constexpr uint32_t kLast = 0x10ffff;
constexpr uint32_t kBar = 0xff5c;  // "｜"
// Characters with an escape of one letter in JSON.
constexpr std::array<std::pair<uint32_t, char>, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'}, {'\r', 'r'}}};

bool is_alnum(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
std::string written(uint32_t c) {
  return is_alnum(c) ? std::string(1, static_cast<char>(c)) : fmt::format("\\u{{{:x}}}", c);
}
std::string class_of(const CharSet& set) {
  const auto& ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].first == ranges[0].second) return written(ranges[0].first);
  std::string out = "[";
  for (const auto& [low, high] : ranges)
    out += low == high ? written(low) : fmt::format("{}-{}", written(low), written(high));
  return out + "]";
}

std::string one_of(const std::vector<std::string>& ways) {
  if (ways.size() == 1) return ways.front();
  std::string out = "(?:";
  for (size_t i = 0; i < ways.size(); ++i) out += (i == 0 ? "" : "|") + ways[i];
  return out + ")";
}

std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  while (!text.empty()) {
    const Utf8Part c = utf8_character(text.data());
    out.push_back(c.code_point);
    text.remove_prefix(c.length);
  }
  return out;
}

}  // namespace

// ---- Characters ----

CharSet CharSet::all() { return of({{0, 0xd7ff}, {0xe000, kLast}}); }
CharSet CharSet::of(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges) {
  CharSet out;
  for (const auto& [low, high] : ranges) out.add(low, high);
  return out;
}
void CharSet::add(uint32_t low, uint32_t high) {
  ranges_.emplace_back(low, high);
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<uint32_t, uint32_t>> merged;
  for (const auto& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}
void CharSet::add(const CharSet& other) {
  for (const auto& [low, high] : other.ranges_) add(low, high);
}
CharSet CharSet::joined_with(CharSet other) const {
  other.add(*this);
  return other;
}
CharSet CharSet::inverse() const {
  CharSet out;
  uint32_t next = 0;
  const auto add_up_to = [&out](uint32_t low, uint32_t end) {  // without surrogates
    if (low < std::min<uint32_t>(end, 0xd800)) out.ranges_.emplace_back(low, std::min<uint32_t>(end, 0xd800) - 1);
    if (std::max<uint32_t>(low, 0xe000) < end) out.ranges_.emplace_back(std::max<uint32_t>(low, 0xe000), end - 1);
  };
  for (const auto& [low, high] : ranges_) {
    add_up_to(next, low);
    next = high + 1;
  }
  add_up_to(next, kLast + 1);
  return out;
}
bool CharSet::has(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [c](const auto& r) { return r.first <= c && c <= r.second; });
}

std::string expression_of(const CharSet& set, TextPlace place, bool is_wide) {
  const CharSet allowed = place.in_call ? set.without(CharSet::of({{kBar, kBar}})) : set;
  if (!place.in_json) return allowed.empty() ? "" : class_of(allowed);
  std::vector<std::string> ways;
  const CharSet plain = allowed.without(CharSet::of({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}));
  if (!plain.empty()) ways.push_back(class_of(plain));
  CharSet letters, others;
  for (uint32_t c = 0; c <= '\\'; ++c) {
    if (!allowed.has(c) || plain.has(c)) continue;
    const auto found =
        std::find_if(kShortEscapes.begin(), kShortEscapes.end(), [c](const auto& one) { return one.first == c; });
    if (found == kShortEscapes.end()) {
      others.add(c, c);
    } else {
      letters.add(static_cast<unsigned char>(found->second), static_cast<unsigned char>(found->second));
    }
  }
  if (!letters.empty()) ways.push_back(written('\\') + class_of(letters));
  for (const auto& [low, high] : others.ranges()) {
    for (uint32_t c = low; c <= high && (!is_wide || ways.empty()); ++c)
      ways.push_back(literal(fmt::format("\\u{:04x}", c)));
  }
  if (place.in_call && set.has(kBar) && (!is_wide || ways.empty())) ways.push_back(literal("\\uff5c"));
  if (ways.size() == 1 && plain.empty()) return "(?:" + ways.front() + ")";  // one atom for what repeats it
  return ways.empty() ? "" : one_of(ways);
}

std::string any_text(int64_t shortest, std::optional<int64_t> longest, TextPlace place) {
  return repeated(expression_of(CharSet::all(), place, true), shortest, longest);
}

// In parts: a larger count would be counted while masks are made, each of which then takes a thousand times as long.
std::string repeated(std::string_view atom, int64_t low, std::optional<int64_t> high) {
  constexpr int64_t kMost = 128;
  std::string out, closing;
  for (; low > kMost || (high && *high > kMost); low = std::max<int64_t>(0, low - kMost)) {
    if (low < kMost) {  // one way for each text, or masks would cost a multiple
      out += fmt::format("(?:{}{{{},{}}}|", atom, low, kMost - 1);
      closing += ')';
    }
    out += fmt::format("{}{{{},{}}}", atom, kMost, kMost);
    if (high) *high -= kMost;
  }
  if (high) return out + fmt::format("{}{{{},{}}}{}", atom, low, *high, closing);
  // Not as {n,}, which the compiler takes for more where the atom is a choice that repeats.
  return out + (low > 0 ? fmt::format("{}{{{},{}}}", atom, low, low) : "") + fmt::format("{}*", atom);
}

std::string literal(std::string_view text) {
  std::string out;
  for (const uint32_t c : code_points(text)) out += written(c);
  return out;
}

// ---- Names ----

namespace {

struct NameTree {
  bool ends = false;
  std::map<uint32_t, NameTree> next;
};

// The rest of a name behind a node.
std::string other_rest(const NameTree& node, const CharSet& plain, const std::string& anything) {
  CharSet taken;
  std::string out = "(?:";
  for (const auto& [c, child] : node.next) {
    taken.add(c, c);
    out += written(c) + other_rest(child, plain, anything) + "|";
  }
  out += class_of(plain.without(taken)) + anything;
  if (!node.ends) out += "|";
  return out + ")";
}

}  // namespace

std::string other_than(const std::vector<std::string>& names, TextPlace place) {
  const CharSet unfit = CharSet::of({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  CharSet plain = unfit.inverse();
  if (place.in_call) plain = plain.without(CharSet::of({{kBar, kBar}}));
  NameTree root;
  for (const std::string& name : names) {
    const std::vector<uint32_t> points = code_points(name);
    if (std::any_of(points.begin(), points.end(), [&](uint32_t c) { return !plain.has(c); })) continue;
    NameTree* node = &root;
    for (const uint32_t c : points) node = &node->next[c];
    node->ends = true;
  }
  return other_rest(root, plain, class_of(plain) + "*");
}

// ---- Numbers ----

namespace {

constexpr int kDigits = 15;  // of a decimal number that a double keeps apart from its neighbours

// A number of digits: "12.5" is {"12", "5"}.
struct Decimal {
  std::string whole, fraction;
};

Decimal decimal(double value) {  // without its sign
  std::array<char, 400> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value), std::chars_format::fixed).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t point = std::min(text.find('.'), text.size());
  Decimal out = {std::string(text.substr(0, point)), std::string(text.substr(std::min(point + 1, text.size())))};
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  return out;
}

// Numbers from 0 between two decimals, digit by digit. While a number reads like a bound so far, that bound still
// counts.
class RangeWriter {
 public:
  RangeWriter(Decimal low, bool low_open, std::optional<Decimal> high, bool high_open, bool whole)
      : low_(std::move(low)), high_(std::move(high)), low_open_(low_open), high_open_(high_open) {
    const size_t in_front = std::max(low_.whole.size(), high_ ? high_->whole.size() : 0);
    most_ = kDigits - std::min<size_t>(in_front, kDigits);
    if (!low_open && !high_open)
      most_ = std::max({most_, low_.fraction.size(), high_ ? high_->fraction.size() : 0});
    if (whole) most_ = 0;
  }

  std::vector<std::string> write() const {
    std::vector<std::string> ways;
    const size_t longest = high_ ? high_->whole.size() : low_.whole.size();
    for (size_t size = low_.whole.size(); size <= longest; ++size) {
      const bool low = size == low_.whole.size(), high = high_ && size == high_->whole.size();
      if (auto one = digits(0, size, low, high)) ways.push_back(std::move(*one));
    }
    if (!high_) ways.push_back(fmt::format("[1-9]{}{}", repeated("[0-9]", static_cast<int64_t>(longest), {}), free_tail()));
    return ways;
  }

 private:
  std::string free_tail() const {
    return most_ == 0 ? "" : fmt::format("(?:|\\u{{2e}}{})", repeated("[0-9]", 1, static_cast<int64_t>(most_)));
  }

  // Of digits [from, to), the class; nothing when there are none.
  static std::string digit_class(int from, int to) {
    if (from >= to) return "";
    return from + 1 == to ? std::string(1, static_cast<char>('0' + from))
                          : fmt::format("[{}-{}]", from, to - 1);
  }

  // What follows `i` digits of a whole part of `size`.
  std::optional<std::string> digits(size_t i, size_t size, bool low, bool high) const {
    if (i == size) return behind_whole(low, high);
    if (!low && !high) {
      const bool leads = i == 0 && size > 1;
      const auto left = static_cast<int64_t>(size - i - (leads ? 1 : 0));
      return (leads ? "[1-9]" : "") + repeated("[0-9]", left, left) + free_tail();
    }
    const int first = low ? low_.whole[i] - '0' : (i == 0 && size > 1 ? 1 : 0);
    const int last = high ? high_->whole[i] - '0' : 9;
    return branch(first, last, low, high, [&](bool l, bool h) { return digits(i + 1, size, l, h); });
  }

  // Each digit from `first` to `last`, and what follows it; those at the edges are still bound.
  template <typename Next>
  static std::optional<std::string> branch(int first, int last, bool low, bool high, const Next& next) {
    if (first > last) return std::nullopt;
    std::vector<std::string> ways;
    const auto add = [&](int from, int to, bool l, bool h) {
      const std::string digit = digit_class(from, to);
      if (digit.empty()) return;
      if (auto rest = next(l, h)) ways.push_back(digit + *rest);
    };
    if (first == last) {
      add(first, first + 1, low, high);
    } else {
      if (low) add(first, first + 1, true, false);
      add(first + (low ? 1 : 0), last + (high ? 0 : 1), false, false);
      if (high) add(last, last + 1, false, true);
    }
    if (ways.empty()) return std::nullopt;
    return one_of(ways);
  }

  // Whether the number may end after `j` digits of its fraction.
  bool may_end(size_t j, bool low, bool high) const {
    if (low && (j < low_.fraction.size() || low_open_)) return false;
    return !high || j < high_->fraction.size() || !high_open_;
  }

  std::optional<std::string> behind_whole(bool low, bool high) const {
    std::vector<std::string> ways;
    if (may_end(0, low, high)) ways.emplace_back();
    if (most_ > 0) {
      if (auto rest = fraction_digit(0, low, high)) ways.push_back("\\u{2e}" + *rest);
    }
    if (ways.empty()) return std::nullopt;
    return one_of(ways);
  }

  std::optional<std::string> fraction_digit(size_t j, bool low, bool high) const {
    if (j == most_) return std::nullopt;
    if (!low && !high) return repeated("[0-9]", 1, static_cast<int64_t>(most_ - j));
    const auto digit_of = [j](const Decimal& bound) {
      return j < bound.fraction.size() ? bound.fraction[j] - '0' : 0;
    };
    return branch(low ? digit_of(low_) : 0, high ? digit_of(*high_) : 9, low, high,
                  [&](bool l, bool h) { return fraction_rest(j + 1, l, h); });
  }

  std::optional<std::string> fraction_rest(size_t j, bool low, bool high) const {
    if (!low && !high) return j == most_ ? "" : repeated("[0-9]", 0, static_cast<int64_t>(most_ - j));
    const std::optional<std::string> more = fraction_digit(j, low, high);
    if (!may_end(j, low, high)) return more;
    return more ? fmt::format("(?:|{})", *more) : "";
  }

  const Decimal low_;
  const std::optional<Decimal> high_;
  const bool low_open_, high_open_;
  size_t most_ = 0;
};

}  // namespace

std::string numbers_in(const NumberRange& range) {
  std::vector<std::string> ways;
  const auto add = [&](std::string_view sign, double low, bool low_open, std::optional<double> high, bool high_open) {
    std::optional<Decimal> top;
    if (high) top = decimal(*high);
    for (std::string& one : RangeWriter(decimal(low), low_open, std::move(top), high_open, range.whole).write())
      ways.push_back(std::string(sign) + std::move(one));
  };
  if (!range.high || *range.high >= 0) {
    const bool from_low = range.low && *range.low >= 0;
    add("", from_low ? *range.low : 0.0, from_low && range.low_open, range.high, range.high_open);
  }
  if (!range.low || *range.low < 0) {  // the magnitude, from the other end; "-0" is 0
    const bool to_high = range.high && *range.high <= 0;
    std::optional<double> top;
    if (range.low) top = -*range.low;
    add("\\u{2d}", to_high ? -*range.high : 0.0, to_high && range.high_open, top, range.low_open);
  }
  return ways.empty() ? "" : one_of(ways);
}

bool is_enforceable_bound(double bound, bool open) {
  if (std::abs(bound) >= 1e15) return false;
  const Decimal digits = decimal(bound);
  if (digits.fraction.size() > 40) return false;
  return !open || digits.fraction.size() + digits.whole.size() <= kDigits;
}

std::string grammar_of(std::string_view expression) {
  std::string out = "root ::= Regex(\"";
  for (const char c : expression) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + "\")";
}

}  // namespace deepinfer
