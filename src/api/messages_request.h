// POST /v1/messages and /v1/messages/count_tokens: the request (docs/spec/recipe.md 9.1).
#pragma once

#include <string_view>

#include "api/generation.h"

namespace deepinfer {

struct MessagesRequest : GenerationRequest {
  bool hides_thinking = false;  // thinking blocks come without their text
};

// Codes as parse_chat_request. Names that begin with "claude-" mean the served model. A signature is accepted
// and not looked at; thinking blocks may be missing; server tools and their blocks are left out of the
// prompt. A max_tokens above the bound is lowered to it.
Result<MessagesRequest> parse_messages_request(std::string_view body, std::string_view served_model);

// Answers a request that wants its conversation kept here (`thread`). To ignore that would lose the history;
// SDKs that know this refusal by its details send the whole history instead.
inline constexpr std::string_view kNoThreads =
    "thread: conversations are not kept between requests; send the whole history in `messages`";

}  // namespace deepinfer
