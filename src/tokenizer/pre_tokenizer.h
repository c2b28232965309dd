// Cuts text into the pieces within which byte pairs are merged: the three isolating splits of DeepSeek
// V3/V4.1 (docs/spec/model.md 11.2), each applied to the pieces of the one before.
//
//   1  \p{N}{1,3}
//   2  [一-龥぀-ゟ゠-ヿ]+
//   3  [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ |  ?[\p{P}\p{S}]+[\r\n]* |
//      \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Splits 1 and 2 cut the text into segments of one kind: numbers, CJK, the rest. The kind of a segment
// follows from its first character, so one forward scan does all three: split 3 runs inside the segment and
// sees its end as the end of the text. What split 3 doesn't match is a piece as well.
#pragma once

#include <array>
#include <string_view>

#include "tokenizer/unicode_tables.h"

namespace deepinfer {

// The pattern strings this scanner stands for, in order, as tokenizer.json spells them.
extern const std::array<std::string_view, 3> kSplitPatterns;

// Walks one text, which is well-formed UTF-8 and outlives the scanner.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::string_view text) : text_(text) {}
  // The next piece, never empty before the end; empty at the end. Pieces follow one another without gaps.
  std::string_view next();

 private:
  struct Char {
    uint8_t char_class;  // 0 bits match nothing
    uint8_t length;      // 0 at the end of the segment
  };
  Char any_char_at(size_t position) const;
  Char char_at(size_t position) const;
  size_t run_end(size_t position, uint8_t classes) const;
  size_t match_end(size_t position, Char first) const;
  size_t space_match_end(size_t position) const;
  size_t numbers_end(size_t position) const;

  std::string_view text_;
  size_t position_ = 0;
  uint8_t segment_ = 0;  // kCjk or 0
};

}  // namespace deepinfer
