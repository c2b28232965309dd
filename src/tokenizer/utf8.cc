#include "tokenizer/utf8.h"

#include <cstring>

namespace deepinfer {
namespace {

using Kind = Utf8Part::Kind;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct LeadByte {
  uint32_t length;                 // of the character; 0 when no character starts so
  uint8_t second_min, second_max;  // excludes overlong forms, surrogates and code points above U+10FFFF
};

LeadByte lead_byte(uint8_t lead) {
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The length of the run of ASCII bytes at `position`, eight at a time.
size_t ascii_run(std::string_view bytes, size_t position) {
  const size_t start = position;
  for (; position + 8 <= bytes.size(); position += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + position, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (position < bytes.size() && static_cast<uint8_t>(bytes[position]) < 0x80) ++position;
  return position - start;
}

}  // namespace

Utf8Part utf8_part(std::string_view bytes, size_t position) {
  const auto byte = [&](uint32_t i) { return static_cast<uint8_t>(bytes[position + i]); };
  if (byte(0) < 0x80) return {Kind::kCharacter, 1, byte(0)};
  const LeadByte lead = lead_byte(byte(0));
  if (lead.length == 0) return {Kind::kIllFormed, 1, 0};
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (position + i == bytes.size()) return {Kind::kIncomplete, i, 0};
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {Kind::kIllFormed, i, 0};
  }
  return utf8_character(bytes.data() + position);
}

bool is_well_formed_utf8(std::string_view bytes) {
  for (size_t position = ascii_run(bytes, 0); position < bytes.size();
       position += ascii_run(bytes, position)) {
    const Utf8Part part = utf8_part(bytes, position);
    if (part.kind != Kind::kCharacter) return false;
    position += part.length;
  }
  return true;
}

size_t append_complete(std::string_view bytes, std::string& out) {
  size_t copied = 0;  // bytes before this are in `out`
  for (size_t position = ascii_run(bytes, 0); position < bytes.size();
       position += ascii_run(bytes, position)) {
    const Utf8Part part = utf8_part(bytes, position);
    if (part.kind != Kind::kCharacter) out.append(bytes.substr(copied, position - copied));
    if (part.kind == Kind::kIncomplete) return part.length;
    position += part.length;
    if (part.kind == Kind::kIllFormed) {
      out.append(kReplacement);
      copied = position;
    }
  }
  out.append(bytes.substr(copied));
  return 0;
}

void append_replacing(std::string_view bytes, std::string& out) {
  if (append_complete(bytes, out) > 0) out.append(kReplacement);
}

void append_code_point(char32_t code_point, std::string& out) {
  const auto append = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
    append(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    append(0xE0 | code_point >> 12);
    append(0x80 | (code_point >> 6 & 0x3F));
    append(0x80 | (code_point & 0x3F));
  } else {
    append(0xF0 | code_point >> 18);
    append(0x80 | (code_point >> 12 & 0x3F));
    append(0x80 | (code_point >> 6 & 0x3F));
    append(0x80 | (code_point & 0x3F));
  }
}

}  // namespace deepinfer
