// The Engram token compression map of docs/spec/model.md 6.1: tokens that differ only in case, accents, compatibility
// form or surrounding white space share a class.
#include <utf8proc.h>

#include <cstdlib>
#include <unordered_map>

#include "base/status.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode_tables.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

using CodePoints = std::u32string;

// One Unicode normalization form. `text` is well-formed, so utf8proc can only run out of memory.
std::string normalize(const std::string& text, int form) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
  CHECK(size >= 0);
  std::string result(reinterpret_cast<const char*>(mapped), size);
  std::free(mapped);
  return result;
}

bool is_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

CodePoints without_marks_in_lower_case(const std::string& text) {
  CodePoints result;
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = utf8_character(text.data() + position);
    position += part.length;
    if (!is_mark(part.code_point)) result += static_cast<char32_t>(utf8proc_tolower(part.code_point));
  }
  return result;
}

// Each run of space, tab, CR and LF becomes one space.
CodePoints with_single_spaces(const CodePoints& text) {
  CodePoints result;
  for (const char32_t c : text) {
    const bool is_blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!is_blank) {
      result += c;
    } else if (result.empty() || result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

CodePoints stripped(const CodePoints& text) {
  size_t begin = 0, end = text.size();
  while (begin < end && (char_class(text[begin]) & kSpace) != 0) ++begin;
  while (begin < end && (char_class(text[end - 1]) & kSpace) != 0) --end;
  return text.substr(begin, end - begin);
}

std::string class_key(const Tokenizer& tokenizer, TokenId id) {
  const std::string text = tokenizer.decode({&id, 1});
  if (text.find("\xEF\xBF\xBD") != std::string::npos) return std::string(tokenizer.token_spelling(id));
  const std::string compatible = normalize(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  const CodePoints spaced =
      with_single_spaces(without_marks_in_lower_case(normalize(compatible, UTF8PROC_DECOMPOSE)));
  std::string key;
  for (const char32_t c : spaced == U" " ? spaced : stripped(spaced)) append_code_point(c, key);
  return key.empty() ? text : key;
}

}  // namespace

std::vector<int32_t> engram_token_map(const Tokenizer& tokenizer, int64_t num_ids) {
  std::vector<int32_t> map;
  std::unordered_map<std::string, int32_t> classes;
  for (TokenId id = 0; id < num_ids; ++id) {
    map.push_back(classes.try_emplace(class_key(tokenizer, id), classes.size()).first->second);
  }
  return map;
}

}  // namespace deepinfer
