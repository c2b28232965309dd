// Where the key that clients must send comes from.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"

namespace deepinfer {

struct ApiKeyFlags {
  std::string key, file;
  CLI::Option* key_option = nullptr;   // owned by the parser
  CLI::Option* file_option = nullptr;  // the same
};
// --api-key and --api-key-file.
void add_api_key_options(CLI::App& parser, ApiKeyFlags& flags);
// The key, without white space at its end; "" when none of the options and not DEEPINFER_API_KEY names one.
// kInvalidArgument: a key that is empty or can't be sent, or two of them. kIo: the file can't be read.
Result<std::string> read_api_key(const ApiKeyFlags& flags);

}  // namespace deepinfer
