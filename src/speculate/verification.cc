#include "speculate/verification.h"

namespace deepinfer {
namespace {

using Wide = unsigned __int128;

// max(p_i Q - q_i P, 0) for every id of the target, ascending; `q` walks along.
template <typename Use>
void for_each_residual(const Masses& target, const Masses& drafted, Use&& use) {
  auto q = drafted.entries.begin();
  for (const auto& [id, mass] : target.entries) {
    while (q != drafted.entries.end() && q->id < id) ++q;
    const uint64_t own = mass * drafted.total;
    const uint64_t other = q != drafted.entries.end() && q->id == id ? q->mass * target.total : 0;
    if (own > other && !use(id, own - other)) return;
  }
}

}  // namespace

// Masses are below 2^31 + 1 and totals at most 2^31, so products of two fit 62 bits and those with a word
// 126.
Verdict verify_by_rejection(const Masses& target, const Masses* drafted, int32_t draft, uint64_t accept_word,
                            uint64_t residual_word) {
  const Masses certain{{{draft, 1}}, 1};
  const Masses& q = drafted != nullptr ? *drafted : certain;
  const Wide wanted = Wide{accept_word} * (q.of(draft) * target.total);
  if (wanted < Wide{target.of(draft) * q.total} << 64) return {true, draft};

  uint64_t total = 0;
  for_each_residual(target, q, [&](int32_t, uint64_t mass) {
    total += mass;
    return true;
  });
  // Without a residual the distributions are the same, and nothing could have been rejected.
  if (total == 0) return {false, target.draw(residual_word)};
  const auto aim = static_cast<uint64_t>(Wide{residual_word} * total >> 64);
  uint64_t mass = 0;
  int32_t token = draft;
  for_each_residual(target, q, [&](int32_t id, uint64_t own) {
    mass += own;
    token = id;
    return mass <= aim;
  });
  return {false, token};
}

}  // namespace deepinfer
