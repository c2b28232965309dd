// POST /v1/messages and /v1/messages/count_tokens: the request (recipe.md 9.1 with its amendments).
#pragma once

#include <string_view>

#include "api/generation.h"

namespace deepinfer {

// Codes as parse_chat_request. Names that begin with "claude-" mean the served model. A signature is accepted
// and not looked at; thinking blocks may be missing; server tools and their blocks are left out of the
// prompt. A max_tokens above the bound is lowered to it.
Result<GenerationRequest> parse_messages_request(std::string_view body, std::string_view served_model);

}  // namespace deepinfer
