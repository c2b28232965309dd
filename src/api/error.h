// What a client is told when a request fails: HTTP status and the OpenAI error object (docs/spec/recipe.md 11).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace deepinfer {

struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type;
  std::string code;
};

// The one table from our codes to HTTP.
ApiError to_api_error(const Error& error);
// The prompt, or prompt and answer together, do not fit.
ApiError context_length_error(std::string message);
// A failure of HTTP itself: 404 for an unknown route, 405, 408, 413, 431, ...
ApiError http_error(int status, std::string message);

// {"error":{"message":...,"type":...,"param":null,"code":...}}
std::string to_json(const ApiError& error);

}  // namespace deepinfer
