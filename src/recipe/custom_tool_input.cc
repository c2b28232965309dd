// {"input": "TEXT"} in pieces, to TEXT (docs/spec/recipe.md 5.6). What is held back is at most an unfinished opening or
// escape.
#include <charconv>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
            static_cast<char>(0x80 | (code & 63))};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 63)),
            static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
  }
}

std::optional<uint32_t> hex4(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, value, 16);
  if (error != std::errc() || end != text.data() + 4) return std::nullopt;
  return value;
}

struct Escape {
  size_t size = 0;  // 0: not complete yet
  std::string text;
};

// A `\u` escape at the start of `text`; surrogates come in pairs. An invalid escape stays as written.
Escape read_unicode(std::string_view text) {
  if (text.size() < 6) return {};
  const auto as_written = [text](size_t size) { return Escape{size, std::string(text.substr(0, size))}; };
  const auto high = hex4(text.substr(2));
  if (!high) return as_written(2);
  uint32_t code = *high;
  size_t size = 6;
  if (code >= 0xD800 && code < 0xDC00) {
    for (size_t i = 6; i < 8; ++i) {
      if (text.size() == i) return {};
      if (text[i] != "\\u"[i - 6]) return as_written(6);
    }
    if (text.size() < 12) return {};
    const auto low = hex4(text.substr(8));
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return as_written(6);
    code = 0x10000 + ((code - 0xD800) << 10) + (*low - 0xDC00);
    size = 12;
  } else if (code >= 0xDC00 && code < 0xE000) {
    return as_written(6);
  }
  Escape escape = {size, ""};
  append_utf8(escape.text, code);
  return escape;
}

Escape read_escape(std::string_view text) {
  if (text.size() < 2) return {};
  switch (text[1]) {
    case 'u':
      return read_unicode(text);
    case 'n':
      return {2, "\n"};
    case 't':
      return {2, "\t"};
    case 'r':
      return {2, "\r"};
    case 'b':
      return {2, "\b"};
    case 'f':
      return {2, "\f"};
    case '"':
    case '\\':
    case '/':
      return {2, std::string(1, text[1])};
    default:
      return {2, std::string(text.substr(0, 2))};
  }
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

void CustomToolInput::push(std::string_view arguments, std::string& out) {
  if (state_ == State::kOver) return;
  if (state_ == State::kRaw) {
    out += arguments;
    return;
  }
  held_ += arguments;
  if (state_ == State::kOpening && !read_opening(out)) return;
  if (state_ == State::kText) read_text(out);
}

// Whether the opening is decided.
bool CustomToolInput::read_opening(std::string& out) {
  size_t at = 0;
  for (const std::string_view part : {"{", "\"input\"", ":", "\""}) {
    while (at < held_.size() && is_space(held_[at])) ++at;
    for (const char expected : part) {
      if (at == held_.size()) return false;
      if (held_[at++] == expected) continue;
      state_ = State::kRaw;
      out += held_;
      held_.clear();
      return true;
    }
  }
  state_ = State::kText;
  held_.erase(0, at);
  return true;
}

void CustomToolInput::read_text(std::string& out) {
  size_t at = 0;
  while (at < held_.size()) {
    const size_t special = std::min(held_.find_first_of("\\\"", at), held_.size());
    out.append(held_, at, special - at);
    at = special;
    if (at == held_.size()) break;
    if (held_[at] == '"') {
      state_ = State::kOver;
      break;
    }
    const Escape escape = read_escape(std::string_view(held_).substr(at));
    if (escape.size == 0) break;
    out += escape.text;
    at += escape.size;
  }
  held_.erase(0, state_ == State::kOver ? held_.size() : at);
}

void CustomToolInput::finish(std::string& out) {
  out += held_;
  held_.clear();
  state_ = State::kOver;
}

}  // namespace deepinfer
