#include "tokenizer/byte_alphabet.h"

#include <cstdint>

#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

bool stands_for_itself(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kNumSubstitutes = 68;
constexpr int kNoByte = -1;

using CharacterBytes = std::array<int, kFirstSubstitute + kNumSubstitutes>;  // code point -> byte or kNoByte

CharacterBytes make_character_bytes() {
  CharacterBytes bytes;
  bytes.fill(kNoByte);
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte) bytes[stands_for_itself(byte) ? byte : substitute++] = byte;
  return bytes;
}

const CharacterBytes kCharacterBytes = make_character_bytes();

}  // namespace

std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spellings;
  for (char32_t character = 0; character < kCharacterBytes.size(); ++character) {
    const int byte = kCharacterBytes[character];
    if (byte != kNoByte) append_code_point(character, spellings[byte]);
  }
  return spellings;
}

std::string bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t position = 0; position < spelling.size();) {
    const Utf8Part part = utf8_part(spelling, position);
    const bool known = part.kind == Utf8Part::Kind::kCharacter && part.code_point < kCharacterBytes.size();
    const int byte = known ? kCharacterBytes[part.code_point] : kNoByte;
    if (byte == kNoByte) return std::string(spelling);
    bytes.push_back(static_cast<char>(byte));
    position += part.length;
  }
  return bytes;
}

}  // namespace deepinfer
