#include "sampling/constraint.h"

#include <algorithm>
#include <limits>

namespace deepinfer {

void apply_mask(std::span<const uint32_t> mask, std::span<float> logits) {
  CHECK(std::ssize(mask) >= mask_words(std::ssize(logits)));
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  for (size_t first = 0; first < logits.size(); first += 32) {
    const uint32_t word = mask[first / 32];
    if (word == ~uint32_t{0}) continue;
    const size_t count = std::min<size_t>(32, logits.size() - first);
    for (size_t bit = 0; bit < count; ++bit) {
      if ((word >> bit & 1) == 0) logits[first + bit] = kForbidden;
    }
  }
}

}  // namespace deepinfer
