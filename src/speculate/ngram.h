// Continuation by copying: the last tokens are looked for earlier in the text, and what followed there is
// proposed.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

struct NgramMatch {
  int64_t length = 0;                          // tokens that agree; 0: none
  std::span<const int32_t> continuation = {};  // part of `tokens`
};

// The longest suffix of `tokens`, of min_length to max_length tokens, that stands earlier in them, at its
// latest place; and at most max_count tokens that follow it there. Linear in the text.
NgramMatch find_ngram(std::span<const int32_t> tokens, int64_t min_length, int64_t max_length,
                      int64_t max_count);

}  // namespace deepinfer
