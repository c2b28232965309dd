// POST /v1/chat/completions: the answer, whole and as a stream (docs/spec/recipe.md 7.2, 7.3, 5.4, 5.5).
#pragma once

#include <memory>

#include "api/chat_request.h"
#include "api/generation.h"

namespace deepinfer {

std::string_view finish_reason_name(AnswerEnd end);

// One choice for each of request.n answers. The usage stands in the last chunk.
std::unique_ptr<AnswerWriter> make_chat_writer(AnswerIdentity identity, const ChatRequest& request);

// "usage" of Chat Completions and Completions.
void write_chat_usage(JsonWriter& json, const Usage& usage);

}  // namespace deepinfer
