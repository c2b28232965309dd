// POST /v1/completions and /beta/completions: the request (docs/spec/recipe.md 10).
#pragma once

#include <string_view>

#include "api/generation.h"

namespace deepinfer {

struct CompletionsRequest : GenerationRequest {  // raw_prompts holds at least one
  bool echo = false;                             // the answer begins with the prompt's text
  bool include_usage = false;                    // every chunk has the field "usage"
  bool usage_always = false;                     // every chunk has the usage so far
};

// Codes as parse_chat_request. A prompt is a string, a list of strings, a list of token ids, or a list of
// such lists; with a suffix the model fills what stands between both.
Result<CompletionsRequest> parse_completions_request(std::string_view body, std::string_view served_model);

}  // namespace deepinfer
