// Choices among scores: experts, index rows, candidate blocks. Ties go to the lowest index (docs/spec/decisions.md 6).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

// The router (docs/spec/model.md 7). logits z [experts]; s = sqrt(softplus(z)); the k largest of s + bias are chosen,
// in descending order of s + bias; weight = s / (sum of chosen s + 1e-20) * scaling. `scores` is scratch of [experts].
void route_experts(std::span<const float> logits, std::span<const float> bias, float scaling, std::span<float> scores,
                   std::span<int32_t> expert_ids, std::span<float> weights);

// Positions of the `count` largest scores, ascending by position. Requires count <= scores.size().
// `order` is scratch of at least scores.size().
void select_top_rows(std::span<const float> scores, int64_t count, std::span<int32_t> order, std::span<int32_t> rows);

// Candidate blocks of a query that sees scores.size() rows (docs/spec/model.md 5): block score = largest row score, the
// block of the newest row is always kept; the best `max_blocks` blocks, ascending. Returns how many were written.
int64_t select_candidate_blocks(std::span<const float> scores, int64_t block_size, int64_t max_blocks,
                                std::span<float> block_scores, std::span<int32_t> order, std::span<int32_t> blocks);

// By how much the last chosen score exceeds the first one left out; infinite when none is. `order` as a selection of
// `count` among `scores` left it.
float selection_margin(std::span<const float> scores, int64_t count, std::span<const int32_t> order);

}  // namespace deepinfer
