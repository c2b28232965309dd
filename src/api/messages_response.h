// POST /v1/messages: the answer, whole and as a stream (docs/spec/recipe.md 9.2); and count_tokens.
#pragma once

#include <memory>
#include <string>

#include "api/messages_request.h"

namespace deepinfer {

std::unique_ptr<AnswerWriter> make_messages_writer(AnswerIdentity identity, const MessagesRequest& request);

// {"input_tokens": n}
std::string token_count_to_json(int64_t input_tokens);

// Anthropic's clients know an overloaded service by 529 instead of 503 (docs/spec/recipe.md 11).
int messages_http_status(const ApiError& error);

// The error object of Messages with the fields of the OpenAI one in it:
// {"type":"error","error":{"type","message","param","code"},"request_id"}.
std::string to_messages_json(const ApiError& error, std::string_view request_id);

}  // namespace deepinfer
