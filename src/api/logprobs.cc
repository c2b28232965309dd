#include "api/logprobs.h"

namespace deepinfer {
namespace {

void write_entry(JsonWriter& json, const ScoredToken::Entry& entry) {
  json.member("token", token_text(entry.bytes)).key("logprob");
  json.value(static_cast<double>(entry.logprob)).key("bytes").begin_array();
  for (const char byte : entry.bytes) json.value(static_cast<int>(static_cast<unsigned char>(byte)));
  json.end_array();
}

}  // namespace

std::string token_text(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
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
