// Regular expressions as the compiler takes them: only classes of code points, groups, alternatives and repetitions,
// in ASCII, over the bytes that are written. Private to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace deepinfer {

// Where a text will stand, and so how its characters are written.
struct TextPlace {
  bool in_json = false;  // between the quotes of a JSON string: what must be escaped is, each character in one way
  bool in_call = false;  // in the markup of a call: without U+FF5C, which every tag has
};

// Code points, without surrogates.
class CharSet {
 public:
  static CharSet all();
  static CharSet of(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges);
  void add(uint32_t low, uint32_t high);
  void add(const CharSet& other);
  CharSet inverse() const;
  CharSet without(const CharSet& other) const { return other.joined_with(inverse()).inverse(); }
  bool has(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  CharSet joined_with(CharSet other) const;
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;  // sorted, apart
};

// One of the characters. `is_wide`: many are meant, and control characters without an escape of their own may be
// missing. Empty: none can be written there.
std::string expression_of(const CharSet& set, TextPlace place, bool is_wide);
// Any characters, so many.
std::string any_text(int64_t shortest, std::optional<int64_t> longest, TextPlace place);
// `atom` so many times. The compiler counts up to 128 cheaply.
std::string repeated(std::string_view atom, int64_t low, std::optional<int64_t> high);
// These bytes, which are UTF-8.
std::string literal(std::string_view text);
// Texts of `place` in JSON that are none of `names`, without escapes.
std::string other_than(const std::vector<std::string>& names, TextPlace place);

// The numbers of JSON, without exponents, between the bounds; the digits of a fraction are limited where more could
// round onto an open bound. Empty: none. Bounds have at most 15 digits in front of the point.
struct NumberRange {
  std::optional<double> low, high;
  bool low_open = false, high_open = false;
  bool whole = false;
};
std::string numbers_in(const NumberRange& range);
// Whether numbers_in() can hold to the bound: an open one must leave a digit of its precision.
bool is_enforceable_bound(double bound, bool open);

// The grammar of an expression, in the compiler's own notation.
std::string grammar_of(std::string_view expression);

}  // namespace deepinfer
