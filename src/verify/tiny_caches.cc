// The rows that the caches hold: quantized, so that a difference of one unit in the last place before packing
// is nothing at all or a code one step off.
#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
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

struct Format {
  int64_t block;
  uint8_t (*scale_code)(float amax);
  float (*scale_value)(uint8_t code);
  float (*round)(float x);
};

float round_e4m3(float x) {
  return e4m3_to_float(float_to_e4m3(x));
}
float round_e2m1(float x) {
  return e2m1_to_float(float_to_e2m1(x));
}

const Format& format_of(RowFormat format) {
  static constexpr Format kFormats[] = {
      {32, [](float amax) { return power_of_two_ceiling(std::max(amax, 1e-4f) * (1.0f / 448.0f)); }, e8m0_to_float,
       round_e4m3},
      {32, [](float amax) { return power_of_two_ceiling(std::max(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f)); },
       e8m0_to_float, round_e2m1},
      {16, [](float amax) { return float_to_e4m3(std::max(amax, 6.0f * 0x1p-9f) / 6.0f); }, e4m3_to_float, round_e2m1}};
  return kFormats[static_cast<int>(format)];
}

enum class Fit { kEqual, kNear, kNone };

// Whether the stored block may come from the values: rounding never goes backwards, so a number between two others has
// its code between theirs.
Fit fit_of(const Format& format, std::span<const float> x, std::span<const float> stored) {
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::fabs(value));
  Fit best = Fit::kNone;
  for (const float factor : {1.0f, 1.0f - kCodeMargin, 1.0f + kCodeMargin}) {  // of the number that sets the scale
    const float scale = format.scale_value(format.scale_code(amax * factor));
    bool equal = factor == 1.0f, near = true;
    for (size_t i = 0; i < x.size(); ++i) {
      const float margin = kCodeMargin * (std::fabs(x[i]) + amax / 4);
      const auto rounded = [&](float value) { return format.round(value / scale) * scale; };
      equal = equal && stored[i] == rounded(x[i]);
      near = near && stored[i] >= rounded(x[i] - margin) && stored[i] <= rounded(x[i] + margin) &&
             format.round(stored[i] / scale) * scale == stored[i];
    }
    if (equal) return Fit::kEqual;
    if (near) best = Fit::kNear;
  }
  return best;
}

}  // namespace

void count_codes(ChoiceCount& count, RowFormat row_format, std::span<const Bf16> values,
                 std::span<const float> stored) {
  const Format& format = format_of(row_format);
  const std::vector<float> x = widen(values);
  Fit worst = Fit::kEqual;
  for (size_t first = 0; first < x.size(); first += static_cast<size_t>(format.block)) {
    const auto part = [&](std::span<const float> all) { return all.subspan(first, static_cast<size_t>(format.block)); };
    worst = std::max(worst, fit_of(format, part(x), part(stored)));
  }
  ++count.rows;
  count.ties += worst == Fit::kNear ? 1 : 0;
  count.mismatches += worst == Fit::kNone ? 1 : 0;
}

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
