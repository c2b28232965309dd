// The rows that the caches hold: quantized, so that a difference of one unit in the last place before packing
// is nothing at all or a code one step off.
#include <algorithm>

#include "verify/compare.h"
#include "verify/tiny_checks.h"

namespace deepinfer::golden {
namespace {

// Relative rms of every row of a stored tensor [rows][dim] against read_row(row).
template <typename ReadRow>
Status compare_cache(const PromptCheck& prompt, const std::string& name, int64_t rows, int64_t dim,
                     ReadRow&& read_row, std::vector<double>& errors) {
  if (!prompt.file.contains(name)) return Status();
  ASSIGN_OR_RETURN(const auto expected, prompt.file.read_bf16(name, {rows, dim}));
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<float> found = read_row(row);
    errors.push_back(relative_rms(std::span(expected).subspan(row * dim, dim), found));
  }
  return Status();
}

}  // namespace

Status compare_compressed_rows(const PromptCheck& prompt, const Sequence& sequence, RowErrors& errors) {
  const Model& model = prompt.model;
  const ModelConfig& config = model.config();
  for (const int64_t layer : config.kv_source_layer_ids) {
    const int64_t rows = prompt.length() / config.compress_ratios[layer];
    RETURN_IF_ERROR(compare_cache(
        prompt, golden_name(fmt::format("ck.{}", layer)), rows, config.head_dim,
        [&](int64_t row) { return model.compressed_row(sequence, layer, row); }, errors["ck"]));
    RETURN_IF_ERROR(compare_cache(
        prompt, golden_name(fmt::format("ik.{}", layer)), rows, config.index_head_dim,
        [&](int64_t row) { return model.index_key(sequence, layer, row); }, errors["ik"]));
  }
  return Status();
}

Status compare_dspark_rings(const PromptCheck& prompt, const Sequence& sequence, RowErrors& errors) {
  const ModelConfig& config = prompt.model.config();
  const int64_t stages = config.num_nextn_predict_layers, window = config.sliding_window,
                dim = config.head_dim;
  const std::string name = golden_name("dspark_ring");
  if (!prompt.file.contains(name)) return Status();
  ASSIGN_OR_RETURN(const auto rings, prompt.file.read_bf16(name, {stages, window, dim}));
  for (int64_t stage = 0; stage < stages; ++stage) {
    for (int64_t p = std::max<int64_t>(0, prompt.length() - window); p < prompt.length(); ++p) {
      const auto expected = std::span(rings).subspan((stage * window + p % window) * dim, dim);
      const auto found = prompt.model.window_row(sequence, config.num_hidden_layers + stage, p);
      errors["dspark_ring"].push_back(relative_rms(expected, found));
    }
  }
  return Status();
}

void compare_window_rows(const PromptCheck& prompt, const Sequence& sequence, std::span<const float> expected,
                         int64_t first, int64_t count, std::vector<double>& errors) {
  const ModelConfig& config = prompt.model.config();
  const int64_t layers = config.num_hidden_layers, dim = config.head_dim;
  for (int64_t p = first; p < first + count; ++p) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const auto row = expected.subspan((p * layers + layer) * dim, dim);
      errors.push_back(relative_rms(row, prompt.model.window_row(sequence, layer, p)));
    }
  }
}

}  // namespace deepinfer::golden
