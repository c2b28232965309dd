// From a request to the ids that the engine reads. Private to the room.
#pragma once

#include <vector>

#include "api/generation.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct PreparedPrompt {
  std::vector<TokenId> ids;
  OutputOptions output;  // how its answers are read; without the request's stop sequences and limits
};

// One for the conversation, or one for each raw prompt. kInvalidArgument: an id that the tokenizer does not
// have, or a suffix while it has no tokens to fill in the middle.
Result<std::vector<PreparedPrompt>> prepare_prompts(const GenerationRequest& request,
                                                    const Tokenizer& tokenizer);

}  // namespace deepinfer
