// From a request to the ids that the engine reads. Private to the room.
#pragma once

#include <vector>

#include "api/generation.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

struct PreparedPrompt {
  std::vector<TokenId> ids;
  std::vector<int64_t> cache_points = {};  // positions behind messages that the client marked, ascending
  OutputOptions output;  // how its answers are read; without the request's stop sequences and limits
};

// How prompts are made here.
struct PromptSettings {
  PromptFormat format = {};
  int64_t context_tokens = 0;
};

// A bound from below on the tokens of a request, from the sizes of its texts: for requests that can't fit.
int64_t fewest_tokens(const GenerationRequest& request, size_t longest_token_bytes);
size_t longest_token_bytes(const Tokenizer& tokenizer);

// kUnimplemented: it holds an image, or a task that the profile has no token for. Nothing is fetched to find out.
Status check_servable(const Conversation& conversation, const PromptFormat& format);

// One for the conversation, or one for each raw prompt. A request that drops old turns loses as many as it
// takes to leave room for the answer: max_tokens, at most half of the context, or a quarter of it. kInvalidArgument: an
// id that the tokenizer does not have, or a suffix while it has no tokens to fill in the middle. kUnimplemented: an
// image.
Result<std::vector<PreparedPrompt>> prepare_prompts(const GenerationRequest& request,
                                                    const Tokenizer& tokenizer,
                                                    const PromptSettings& settings);

}  // namespace deepinfer
