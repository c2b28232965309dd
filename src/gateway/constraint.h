// From what a request asks of its answers to what the engine is asked. Private to the room.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "api/generation.h"
#include "grammar/grammar.h"

namespace deepinfer {

// What the answers of one request keep to. Without a spec nothing needs compiling; without either, nothing is
// asked.
struct ConstraintPlan {
  std::optional<GrammarSpec> spec;
  AnswerShape shape;
  bool constrains() const { return spec.has_value() || shape.free_tokens.has_value(); }
};

// The grammar begins behind the thinking, or at once when there is none (docs/structured-outputs.md). The
// errors are those of prepare_*, and kInvalidArgument for requests that ask for two things at a time.
Result<ConstraintPlan> plan_constraint(const GenerationRequest& request, const Tokenizer& tokenizer,
                                       const std::vector<TokenId>& stop_ids, int64_t vocab_size,
                                       const PromptFormat& format);

}  // namespace deepinfer
