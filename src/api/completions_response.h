// POST /v1/completions: the answer, whole and as a stream (docs/spec/recipe.md 10).
#pragma once

#include <memory>

#include "api/completions_request.h"

namespace deepinfer {

// Choice p * n + i is answer i of prompt p. For `echo` the text of a prompt is RawPrompt::text.
std::unique_ptr<AnswerWriter> make_completions_writer(AnswerIdentity identity,
                                                      const CompletionsRequest& request);

}  // namespace deepinfer
