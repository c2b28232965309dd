#include "cache/context.h"

#include <algorithm>

namespace deepinfer {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

int64_t first_decoder_row(ContextMode mode, std::span<const int32_t> prompt, const TurnTokens& turns, int64_t tail) {
  if (mode == ContextMode::kExact) return 0;
  const auto n = std::ssize(prompt);
  int64_t first = std::max<int64_t>(0, n - tail);
  if (mode == ContextMode::kBounded) return first;
  // Backwards: the rows of an assistant token a, whose turn ends before `end`, are [a - tail + 1, end).
  int64_t end = n;
  for (int64_t i = n - 1; i >= 0 && end >= first; --i) {
    if (contains(turns.end, prompt[i])) end = i;
    if (!contains(turns.assistant, prompt[i])) continue;
    if (end >= first) first = std::min(first, std::max<int64_t>(0, i - tail + 1));
    end = i;  // one that was cut off by the next assistant token
  }
  return first;
}

}  // namespace deepinfer
