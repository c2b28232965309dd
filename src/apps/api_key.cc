#include "apps/api_key.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/read_file.h"

namespace deepinfer {
namespace {

constexpr uint64_t kMostKeyBytes = 16 << 10;
constexpr char kVariable[] = "DEEPINFER_API_KEY";

// What stands in a header, after `Bearer `.
Result<std::string> checked_key(std::string_view text, std::string_view source) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty()) return Error(Code::kInvalidArgument, "{}: found an empty key, expected one, or nothing there", source);
  const bool can_be_sent = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!can_be_sent) {
    return Error(Code::kInvalidArgument, "{}: found a key with white space or bytes beyond ASCII, expected neither",
                 source);
  }
  return std::string(text);
}

}  // namespace

void add_api_key_options(CLI::App& parser, ApiKeyFlags& flags) {
  flags.key_option = parser.add_option("--api-key", flags.key,
                                       "the key that clients must send, for all to see in the list of processes; "
                                       "better DEEPINFER_API_KEY or a file");
  flags.file_option = parser.add_option("--api-key-file", flags.file, "file that holds the key");
}

Result<std::string> read_api_key(const ApiKeyFlags& flags) {
  const bool has_key = flags.key_option->count() > 0, has_file = flags.file_option->count() > 0;
  if (has_key && has_file) {
    return Error(Code::kInvalidArgument, "found --api-key and --api-key-file, expected one of them");
  }
  if (has_key) return checked_key(flags.key, "--api-key");
  if (has_file) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(flags.file, kMostKeyBytes));
    return checked_key(text, "--api-key-file");
  }
  const char* variable = std::getenv(kVariable);
  return variable == nullptr ? Result<std::string>(std::string()) : checked_key(variable, kVariable);
}

}  // namespace deepinfer
