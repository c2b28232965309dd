#include "model/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/status.h"
#include "kernels/elementary.h"

namespace deepinfer {
namespace {

constexpr int kBinBits = 12;  // sign, exponent and three bits of the fraction

// Ascending with the number, so that numbers fall into bins by their upper bits.
uint32_t ordered_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);  // both zeros are one
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// The lowest bin that may hold one of the `count` largest.
uint32_t lowest_bin(std::span<const float> scores, int64_t count) {
  std::array<int32_t, size_t{1} << kBinBits> sizes = {};
  for (const float score : scores) ++sizes[ordered_bits(score) >> (32 - kBinBits)];
  auto bin = static_cast<uint32_t>(sizes.size() - 1);
  for (int64_t above = sizes[bin]; above < count && bin > 0; above += sizes[bin]) --bin;
  return bin;
}

// Puts the indices of the `count` largest scores in front of `order`, in no particular order, and those of
// the rest behind. Of equal scores the lower index counts as larger. Two passes over all scores leave few to
// choose from.
void partition_largest(std::span<const float> scores, int64_t count, std::span<int32_t> order) {
  constexpr int64_t kSmall = 4096;
  const auto size = static_cast<int64_t>(scores.size());
  CHECK(count <= size && size <= static_cast<int64_t>(order.size()));
  int64_t front = 0, back = size;
  if (count < size && size > kSmall) {
    const uint32_t least = lowest_bin(scores, count) << (32 - kBinBits);
    for (int64_t i = 0; i < size; ++i) {
      const bool may_be_large = ordered_bits(scores[i]) >= least;
      order[may_be_large ? front : back - 1] = static_cast<int32_t>(i);
      front += may_be_large ? 1 : 0;
      back -= may_be_large ? 0 : 1;
    }
  } else {
    std::iota(order.begin(), order.begin() + size, 0);
    front = size;
  }
  const auto before = [&](int32_t a, int32_t b) {  // a total order, whatever a broken model computes
    const uint32_t bits_a = ordered_bits(scores[a]), bits_b = ordered_bits(scores[b]);
    return bits_a != bits_b ? bits_a > bits_b : a < b;
  };
  if (count < front) std::nth_element(order.begin(), order.begin() + count, order.begin() + front, before);
}

}  // namespace

void route_experts(std::span<const float> logits, std::span<const float> bias, float scaling, std::span<float> scores,
                   std::span<int32_t> expert_ids, std::span<float> weights) {
  for (size_t e = 0; e < logits.size(); ++e) scores[e] = std::sqrt(softplus_f32(logits[e]));
  float total = 0;
  for (size_t slot = 0; slot < expert_ids.size(); ++slot) {
    const auto chosen = expert_ids.first(slot);
    int32_t best = -1;
    for (size_t e = 0; e < scores.size(); ++e) {
      const auto id = static_cast<int32_t>(e);
      if (std::find(chosen.begin(), chosen.end(), id) != chosen.end()) continue;
      if (best < 0 || scores[e] + bias[e] > scores[best] + bias[best]) best = id;
    }
    expert_ids[slot] = best;
    total += scores[best];
  }
  for (size_t slot = 0; slot < expert_ids.size(); ++slot) {
    weights[slot] = scores[expert_ids[slot]] / (total + 1e-20f) * scaling;
  }
}

void select_top_rows(std::span<const float> scores, int64_t count, std::span<int32_t> order, std::span<int32_t> rows) {
  partition_largest(scores, count, order);
  std::copy_n(order.begin(), count, rows.begin());
  std::sort(rows.begin(), rows.begin() + count);
}

int64_t select_candidate_blocks(std::span<const float> scores, int64_t block_size, int64_t max_blocks,
                                std::span<float> block_scores, std::span<int32_t> order, std::span<int32_t> blocks) {
  const auto rows = static_cast<int64_t>(scores.size());
  const int64_t num_blocks = (rows + block_size - 1) / block_size;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const auto first = scores.begin() + block * block_size;
    block_scores[block] = *std::max_element(first, first + std::min(block_size, rows - block * block_size));
  }
  if (num_blocks > 0) block_scores[num_blocks - 1] = INFINITY;
  const int64_t kept = std::min(max_blocks, num_blocks);
  partition_largest(block_scores.first(num_blocks), kept, order);
  std::copy_n(order.begin(), kept, blocks.begin());
  std::sort(blocks.begin(), blocks.begin() + kept);
  return kept;
}

float selection_margin(std::span<const float> scores, int64_t count, std::span<const int32_t> order) {
  float lowest_chosen = INFINITY, highest_left = -INFINITY;
  for (size_t i = 0; i < scores.size(); ++i) {
    const float score = scores[order[i]];
    if (static_cast<int64_t>(i) < count) {
      lowest_chosen = std::min(lowest_chosen, score);
    } else {
      highest_left = std::max(highest_left, score);
    }
  }
  return lowest_chosen - highest_left;
}

}  // namespace deepinfer
