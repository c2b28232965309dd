// UTF-8 in parts: characters, ill-formed parts, and an end that may still become a character.
//
// Parts are cut as Unicode recommends (one U+FFFD for each maximal subpart of an ill-formed sequence), which
// is also what Python's and Rust's replacing decoders do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

struct Utf8Part {
  enum class Kind { kCharacter, kIllFormed, kIncomplete };  // kIncomplete: well-formed so far, cut by the end
  Kind kind;
  uint32_t length;      // bytes, at least 1
  char32_t code_point;  // of a kCharacter
};

// The part that starts at `position`, which is inside `bytes`.
Utf8Part utf8_part(std::string_view bytes, size_t position);

// The code point at `text`, which is the start of a character of well-formed UTF-8.
inline Utf8Part utf8_character(const char* text) {
  const auto byte = [text](int i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {Utf8Part::Kind::kCharacter, 1, lead};
  if (lead < 0xE0) return {Utf8Part::Kind::kCharacter, 2, (lead & 0x1F) << 6 | (byte(1) & 0x3F)};
  const char32_t tail = (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (lead < 0xF0) return {Utf8Part::Kind::kCharacter, 3, (lead & 0x0F) << 12 | tail};
  return {Utf8Part::Kind::kCharacter, 4, (lead & 0x07) << 18 | tail << 6 | (byte(3) & 0x3F)};
}

bool is_well_formed_utf8(std::string_view bytes);

// Appends `bytes` with each ill-formed part and a cut end replaced by U+FFFD.
void append_replacing(std::string_view bytes, std::string& out);
// The same, but leaves out a cut end and returns how many bytes it has (0 to 3).
size_t append_complete(std::string_view bytes, std::string& out);

void append_code_point(char32_t code_point, std::string& out);

}  // namespace deepinfer
