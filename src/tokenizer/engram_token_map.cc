// The Engram token compression map (model-v41 6.1): ids whose texts differ only in case, accents, width or white space
// share a class. Unicode work by utf8proc.
#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <unordered_map>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string normalize(std::string_view text, utf8proc_option_t options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const utf8proc_ssize_t length = utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
  if (length < 0) return std::string(text);  // not reached for well-formed text
  std::string result(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return result;
}

bool is_mark(char32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::u32string without_marks_lower(std::string_view text) {
  std::u32string out;
  for (size_t position = 0; position < text.size();) {
    const Utf8Part part = utf8_part(text, position);
    position += part.length;
    if (is_mark(part.code_point)) continue;
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(part.code_point))));
  }
  return out;
}

std::u32string collapse_blanks(const std::u32string& text) {
  std::u32string out;
  bool in_run = false;
  for (const char32_t c : text) {
    const bool blank = c == U' ' || c == U'\t' || c == U'\r' || c == U'\n';
    if (!blank) out.push_back(c);
    if (blank && !in_run) out.push_back(U' ');
    in_run = blank;
  }
  return out;
}

// The key of a text without U+FFFD.
std::string class_key(const std::string& text) {
  constexpr auto kNfkc = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  constexpr auto kNfd = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  std::u32string key = collapse_blanks(without_marks_lower(normalize(normalize(text, kNfkc), kNfd)));
  if (key != U" ") {
    while (!key.empty() && is_white_space(key.back())) key.pop_back();
    size_t first = 0;
    while (first < key.size() && is_white_space(key[first])) ++first;
    key.erase(0, first);
  }
  if (key.empty()) return text;
  std::string bytes;
  for (const char32_t c : key) append_code_point(c, bytes);
  return bytes;
}

}  // namespace

std::vector<int32_t> engram_token_map(const Tokenizer& tokenizer, int64_t num_ids) {
  std::vector<int32_t> map;
  map.reserve(static_cast<size_t>(num_ids));
  std::unordered_map<std::string, int32_t> classes;
  for (TokenId id = 0; id < num_ids; ++id) {
    const std::string text = tokenizer.decode({&id, 1});
    const std::string key =
        text.find(kReplacement) != std::string::npos ? std::string(tokenizer.token_spelling(id)) : class_key(text);
    map.push_back(classes.emplace(key, static_cast<int32_t>(classes.size())).first->second);
  }
  return map;
}

}  // namespace deepinfer
