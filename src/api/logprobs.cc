#include "api/logprobs.h"

namespace deepinfer {
namespace {

// Well-formed UTF-8 of whole characters.
bool is_whole_text(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || i + length > bytes.size()) return false;
    uint32_t code = lead & (0xff >> (length == 1 ? 0 : length + 1));
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool too_short = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (too_short || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

void write_entry(JsonWriter& json, const ScoredToken::Entry& entry) {
  json.member("token", token_text(entry.bytes)).key("logprob");
  json.value(static_cast<double>(entry.logprob)).key("bytes").begin_array();
  for (const char byte : entry.bytes) json.value(static_cast<int>(static_cast<unsigned char>(byte)));
  json.end_array();
}

}  // namespace

std::string token_text(std::string_view bytes) {
  if (is_whole_text(bytes)) return std::string(bytes);
  std::string escaped;
  for (const char byte : bytes) escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return escaped;
}

void write_logprobs(JsonWriter& json, const std::vector<ScoredToken>& tokens) {
  json.begin_array();
  for (const ScoredToken& token : tokens) {
    json.begin_object();
    write_entry(json, token.chosen);
    json.key("top_logprobs").begin_array();
    for (const ScoredToken::Entry& entry : token.top) {
      json.begin_object();
      write_entry(json, entry);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace deepinfer
