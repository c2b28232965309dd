// The tensors that a checkpoint of a given config must hold: names, element types and shapes of
// docs/spec/model.md 11.1.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "tensor/tensor.h"

namespace deepinfer {

// The components by which parameters and bytes are counted (docs/spec/model.md 1.2), in the order of that table.
enum class WeightKind {
  kAttention,
  kNorm,
  kHyperConnection,
  kRouter,
  kSharedExpert,
  kRoutedExpert,
  kCompressor,
  kIndexer,
  kEngramTable,
  kEngramProjection,
  kEmbeddingAndHead,
  kDspark,
  kVision,
  kAligner,
};
inline constexpr size_t kNumWeightKinds = 14;
std::string_view weight_kind_name(WeightKind kind);

struct ExpectedTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  WeightKind kind = WeightKind::kAttention;

  uint64_t size_bytes() const;
  // Two for every byte of packed FP4, none for a scale.
  uint64_t num_parameters() const;
};

// Requires ConfigReport::shapes_known. Every size is below 2^63 then.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

struct WeightCount {
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};
struct WeightTotals {
  std::array<WeightCount, kNumWeightKinds> by_kind;
  WeightCount all;
};
WeightTotals count_weights(const std::vector<ExpectedTensor>& tensors);

}  // namespace deepinfer
