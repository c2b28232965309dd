// Log probabilities as Chat and Responses print them. Private to the room.
#pragma once

#include <vector>

#include "api/generation.h"
#include "json/json.h"

namespace deepinfer {

// [{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}]. A token that holds no complete
// characters is printed as \xNN escapes of all its bytes.
void write_logprobs(JsonWriter& json, const std::vector<ScoredToken>& tokens);

// The text of a token as above.
std::string token_text(std::string_view bytes);

}  // namespace deepinfer
