#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/utf8.h"

namespace deepinfer {

const std::array<std::string_view, 3> kSplitPatterns = {
    R"(\p{N}{1,3})",
    R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

namespace {

constexpr uint8_t kSegmentBits = kNumber | kCjk;

bool is_ascii_letter(char byte) {
  return static_cast<uint8_t>((byte | 0x20) - 'a') < 26;
}

}  // namespace

PreTokenizer::Char PreTokenizer::any_char_at(size_t position) const {
  if (position == text_.size()) return {0, 0};
  const auto byte = static_cast<uint8_t>(text_[position]);
  if (byte < 0x80) return {kCharClassBlocks[byte], 1};  // the table's first block is ASCII
  const Utf8Part part = utf8_character(text_.data() + position);
  return {char_class(part.code_point), static_cast<uint8_t>(part.length)};
}

// The character at `position` if it belongs to the segment.
PreTokenizer::Char PreTokenizer::char_at(size_t position) const {
  const Char c = any_char_at(position);
  return (c.char_class & kSegmentBits) == segment_ ? c : Char{0, 0};
}

size_t PreTokenizer::run_end(size_t position, uint8_t classes) const {
  Char c = char_at(position);
  while ((c.char_class & classes) != 0) {
    position += c.length;
    c = char_at(position);
  }
  return position;
}

size_t PreTokenizer::numbers_end(size_t position) const {
  Char c = any_char_at(position);
  for (int count = 0; count < 3 && (c.char_class & kNumber) != 0; ++count) {
    position += c.length;
    c = any_char_at(position);
  }
  return position;
}

// The last three alternatives: white space up to its last newline; else without the space in front of a word;
// else all.
size_t PreTokenizer::space_match_end(size_t position) const {
  size_t end = position, last_start = position, after_newline = 0;
  Char c = char_at(position);
  while ((c.char_class & kSpace) != 0) {
    last_start = end;
    end += c.length;
    if ((c.char_class & kNewline) != 0) after_newline = end;
    c = char_at(end);
  }
  if (after_newline > 0) return after_newline;
  const bool followed = c.length > 0;
  return followed && last_start > position ? last_start : end;
}

// Where split 3's match at `position` ends; `position` itself when nothing matches. `first` is
// char_at(position).
size_t PreTokenizer::match_end(size_t position, Char first) const {
  const size_t second = position + first.length;
  if ((first.char_class & (kLetter | kMark)) != 0) return run_end(second, kLetter | kMark);
  if ((first.char_class & kPunctuationSymbol) != 0) {
    if (first.length == 1 && second < text_.size() && is_ascii_letter(text_[second])) {
      size_t end = second + 1;
      while (end < text_.size() && is_ascii_letter(text_[end])) ++end;
      return end;
    }
    return run_end(run_end(second, kPunctuationSymbol), kNewline);
  }
  if ((first.char_class & kNewline) == 0) {
    const Char next = char_at(second);
    if ((next.char_class & (kLetter | kMark)) != 0) return run_end(second + next.length, kLetter | kMark);
    if ((next.char_class & kPunctuationSymbol) != 0 && text_[position] == ' ') {
      return run_end(run_end(second, kPunctuationSymbol), kNewline);
    }
  }
  return (first.char_class & kSpace) != 0 ? space_match_end(position) : position;
}

std::string_view PreTokenizer::next() {
  const size_t start = position_;
  const Char first = any_char_at(start);
  if (first.length == 0) return {};
  if ((first.char_class & kNumber) != 0) {
    position_ = numbers_end(start);
    return text_.substr(start, position_ - start);
  }
  segment_ = first.char_class & kCjk;
  position_ = match_end(start, first);
  if (position_ == start) {  // nothing matches here: the piece reaches to the next match or the segment's end
    Char c = first;
    do {
      position_ += c.length;
      c = char_at(position_);
    } while (c.length > 0 && match_end(position_, c) == position_);
  }
  return text_.substr(start, position_ - start);
}

}  // namespace deepinfer
