// Ids that a request allows and forbids, with or without a grammar.
#pragma once

#include <optional>
#include <vector>

#include "sampling/constraint.h"

namespace deepinfer {

struct TokenRules {
  std::optional<std::vector<int32_t>> allowed = {};  // only these
  std::vector<int32_t> forbidden = {};               // never these
  std::vector<int32_t> late = {};                    // these not among the first `late_from` ids
  int64_t late_from = 0;

  bool empty() const { return !allowed && forbidden.empty() && (late.empty() || late_from == 0); }
};

// What both `inner` (null: everything) and the rules allow. Where that is nothing, the rules give way: an answer whose
// grammar is at its end may end. Ids outside of the vocabulary are ignored.
std::shared_ptr<const OutputConstraint> restrict_tokens(std::shared_ptr<const OutputConstraint> inner,
                                                        const TokenRules& rules, int64_t vocab_size);

}  // namespace deepinfer
