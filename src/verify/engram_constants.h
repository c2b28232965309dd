// The stored constants of Engram against ours: token map, primes, offsets, multipliers (docs/spec/model.md 6.1, 6.2).
// The true sizes (ops) and those of the model under test (tiny) have the same form.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "model/engram_hash.h"
#include "verify/golden_file.h"

namespace deepinfer::golden {

// Told item and number of mismatches.
using CountMismatches = std::function<void(std::string_view item, int64_t mismatches)>;

Status compare_hash_constants(const GoldenFile& file, const std::vector<EngramLayerHash>& hashes,
                              const CountMismatches& compare);
Status compare_token_map(const GoldenFile& file, const std::vector<int32_t>& token_map,
                         const CountMismatches& compare);

}  // namespace deepinfer::golden
