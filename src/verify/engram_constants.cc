#include "verify/engram_constants.h"

#include "verify/compare.h"

namespace deepinfer::golden {
namespace {

// One stored table [layers][columns] of 32-bit numbers.
Status compare_columns(const GoldenFile& file, std::string_view item,
                       const std::vector<EngramLayerHash>& hashes,
                       const std::vector<int64_t> EngramLayerHash::*column, const CountMismatches& compare) {
  std::vector<int64_t> found;
  for (const auto& hash : hashes) found.insert(found.end(), (hash.*column).begin(), (hash.*column).end());
  const auto layers = static_cast<int64_t>(hashes.size());
  const Shape shape = {layers, layers == 0 ? 0 : hashes[0].num_columns()};
  ASSIGN_OR_RETURN(const auto stored, file.read<int32_t>(item, shape));
  const std::vector<int64_t> expected(stored.begin(), stored.end());
  compare(item, count_mismatches<int64_t>(expected, found));
  return Status();
}

}  // namespace

Status compare_hash_constants(const GoldenFile& file, const std::vector<EngramLayerHash>& hashes,
                              const CountMismatches& compare) {
  RETURN_IF_ERROR(compare_columns(file, "primes", hashes, &EngramLayerHash::primes, compare));
  RETURN_IF_ERROR(compare_columns(file, "offsets", hashes, &EngramLayerHash::offsets, compare));
  std::vector<int64_t> multipliers;
  for (const auto& hash : hashes) {
    multipliers.insert(multipliers.end(), hash.multipliers.begin(), hash.multipliers.end());
  }
  ASSIGN_OR_RETURN(const auto expected,
                   file.read<int64_t>("multipliers", {static_cast<int64_t>(hashes.size()), kEngramTokens}));
  compare("multipliers", count_mismatches<int64_t>(expected, multipliers));
  return Status();
}

Status compare_token_map(const GoldenFile& file, const std::vector<int32_t>& token_map,
                         const CountMismatches& compare) {
  ASSIGN_OR_RETURN(const auto expected,
                   file.read<int32_t>("token_map", {static_cast<int64_t>(token_map.size())}));
  compare("token_map", count_mismatches<int32_t>(expected, token_map));
  return Status();
}

}  // namespace deepinfer::golden
