// Tight checks: attention and experts of each layer with golden inputs, so that no difference of one part
// reaches the next.
//
// The prompt runs in chunks of the sliding window, because only so many window rows stay readable; the model
// promises the same bits for any chunking. A row is the vector of one position and layer.
#include <algorithm>
#include <set>

#include "verify/compare.h"
#include "verify/tiny_checks.h"

namespace deepinfer::golden {
namespace {

// One stored tensor with a vector for each position and slot: [positions][slots][...].
struct Stored {
  std::vector<float> values;
  int64_t slots = 1;
  int64_t width = 0;
  std::span<const float> row(int64_t position, int64_t slot) const {
    return std::span(values).subspan((position * slots + slot) * width, width);
  }
};

// What the observer compares of one prompt: tensors that the file has.
struct GoldenLayers {
  std::map<std::string, Stored, std::less<>> values;  // by the observer's names
  std::vector<Bf16> h_out, attn_out;  // as stored; the inputs of the layers and of their experts
  std::vector<int32_t> engram_rows, route_idx, topk;
  std::vector<float> route_margin, topk_margin;
  std::vector<uint8_t> candidates;                   // [positions][rows of the candidate source]
  std::map<int64_t, std::vector<float>> compressed, index_keys;  // by source layer: [rows][dim]
  std::vector<float> window;                                     // [positions][layers][head_dim]
  std::vector<float> rings;                                      // [stages][sliding_window][head_dim]
  std::vector<float> logits;                                     // [positions][vocab]
  int64_t num_positions = 0;

  const Stored* find(std::string_view name) const {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : &found->second;
  }
};

// Position of `layer` in a list of layers; they are there by construction of the model.
int64_t slot_of(const std::vector<int64_t>& layers, int64_t layer) {
  const auto found = std::find(layers.begin(), layers.end(), layer);
  CHECK(found != layers.end());
  return found - layers.begin();
}

// Reads a tensor with `slots` vectors a position when the file has it.
Status read_values(const PromptCheck& prompt, std::string_view item, int64_t slots, DType dtype,
                   const Shape& shape, GoldenLayers& golden) {
  const std::string name = golden_name(item);
  if (!prompt.file.contains(name)) return Status();
  Stored stored;
  if (dtype == DType::kBF16) {
    ASSIGN_OR_RETURN(stored.values, prompt.file.read_bf16(name, shape));
  } else {
    ASSIGN_OR_RETURN(stored.values, prompt.file.read<float>(name, shape));
  }
  stored.slots = slots;
  stored.width = std::ssize(stored.values) / (prompt.length() * slots);
  golden.values.emplace(item, std::move(stored));
  return Status();
}

template <typename T>
Status read_optional(const PromptCheck& prompt, const std::string& name, const Shape& shape,
                     std::vector<T>& out) {
  if (!prompt.file.contains(name)) return Status();
  ASSIGN_OR_RETURN(out, prompt.file.read<T>(name, shape));
  return Status();
}

Result<GoldenLayers> read_layers(const PromptCheck& prompt) {
  const ModelConfig& config = prompt.model.config();
  const int64_t n = prompt.length(), layers = config.num_hidden_layers, hidden = config.hidden_size;
  const int64_t chosen = config.num_experts_per_tok, engram_layers = std::ssize(config.engram_layer_ids);
  const int64_t columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads;
  const int64_t index_sources = std::ssize(config.index_source_layer_ids);
  const int64_t targets = std::ssize(config.dspark_target_layer_ids);
  GoldenLayers golden;
  golden.num_positions = n;
  for (const char* item : {"attn_in", "attn_out", "ffn_in", "ffn_out"}) {
    RETURN_IF_ERROR(read_values(prompt, item, layers, DType::kBF16, {n, layers, hidden}, golden));
  }
  RETURN_IF_ERROR(read_values(prompt, "h_out", layers, DType::kBF16, {n, layers, 4, hidden}, golden));
  RETURN_IF_ERROR(read_optional<Bf16>(prompt, golden_name("h_out"), {n, layers, 4, hidden}, golden.h_out));
  RETURN_IF_ERROR(read_optional<Bf16>(prompt, golden_name("attn_out"), {n, layers, hidden}, golden.attn_out));
  RETURN_IF_ERROR(read_values(prompt, "pre_out", layers, DType::kF32, {n, layers, 4}, golden));
  RETURN_IF_ERROR(
      read_values(prompt, "engram_out", engram_layers, DType::kBF16, {n, engram_layers, 4, hidden}, golden));
  RETURN_IF_ERROR(read_values(prompt, "route_w", layers, DType::kF32, {n, layers, chosen}, golden));
  RETURN_IF_ERROR(read_values(prompt, "main_hidden", 1, DType::kBF16, {n, targets * hidden}, golden));
  RETURN_IF_ERROR(read_optional(prompt, "engram_rows", {n, engram_layers, columns}, golden.engram_rows));
  RETURN_IF_ERROR(read_optional(prompt, golden_name("route_idx"), {n, layers, chosen}, golden.route_idx));
  RETURN_IF_ERROR(read_optional(prompt, golden_name("route_margin"), {n, layers}, golden.route_margin));
  RETURN_IF_ERROR(
      read_optional(prompt, golden_name("topk"), {n, index_sources, config.index_topk}, golden.topk));
  RETURN_IF_ERROR(read_optional(prompt, golden_name("topk_margin"), {n, index_sources}, golden.topk_margin));
  for (const int64_t layer : config.kv_source_layer_ids) {
    const int64_t rows = n / config.compress_ratios[layer];
    const auto read = [&](std::string_view item, int64_t dim, auto& stored) -> Status {
      const std::string name = golden_name(fmt::format("{}.{}", item, layer));
      if (!prompt.file.contains(name)) return Status();
      ASSIGN_OR_RETURN(stored[layer], prompt.file.read_bf16(name, {rows, dim}));
      return Status();
    };
    RETURN_IF_ERROR(read("ck", config.head_dim, golden.compressed));
    RETURN_IF_ERROR(read("ik", config.index_head_dim, golden.index_keys));
  }
  if (prompt.file.contains(golden_name("win"))) {
    ASSIGN_OR_RETURN(golden.window, prompt.file.read_bf16(golden_name("win"), {n, layers, config.head_dim}));
  }
  if (prompt.file.contains(golden_name("dspark_ring"))) {
    ASSIGN_OR_RETURN(golden.rings,
                     prompt.file.read_bf16(golden_name("dspark_ring"),
                                           {config.num_nextn_predict_layers, config.sliding_window, config.head_dim}));
  }
  RETURN_IF_ERROR(read_optional(prompt, golden_name("logits"), {n, config.vocab_size}, golden.logits));
  if (prompt.file.contains(golden_name("cand"))) {
    ASSIGN_OR_RETURN(golden.candidates, prompt.file.read_codes(golden_name("cand"), {n, -1}));
  }
  return golden;
}

// Replaces each layer's input by the golden one and compares what the parts make of it.
class LayerObserver final : public ForwardObserver {
 public:
  // Borrowed: all outlive the observer.
  LayerObserver(const Model& model, const Sequence& sequence, const GoldenLayers& golden, RowErrors& errors)
      : model_(model), sequence_(sequence), config_(model.config()), golden_(golden), errors_(errors) {}

  void begin_call(int64_t first_position, int64_t num_rows) {
    first_ = first_position;
    num_rows_ = num_rows;
    list_differs_.assign(num_rows, false);
    candidates_differ_.assign(num_rows, false);
    experts_differ_.assign(num_rows, false);
  }
  const std::map<std::string, ChoiceCount>& choices() const { return choices_; }
  // The compressor inputs of the newest row, by layer.
  const std::map<int64_t, std::vector<float>>& newest_value() const { return newest_value_; }
  const std::map<int64_t, std::vector<float>>& newest_gate() const { return newest_gate_; }

  bool replaces() const override { return true; }
  void layer_input(int64_t layer, std::span<Bf16> h, std::span<float> pre) override;
  void attention_output(int64_t layer, std::span<Bf16> y) override;
  void values(std::string_view name, int64_t layer, std::span<const Bf16> rows) override {
    if (name == "attn_out") attention_counts_ = true;
    if (name == "window_row" || name == "compressed_row" || name == "index_key")
      return compare_codes(name, layer, rows);
    compare_rows(name, layer, widen(rows));
  }
  void values(std::string_view name, int64_t layer, std::span<const float> rows) override;
  void indices(std::string_view name, int64_t layer, std::span<const int64_t> rows) override;

 private:
  void compare_rows(std::string_view name, int64_t layer, std::span<const float> rows);
  void compare_codes(std::string_view name, int64_t layer, std::span<const Bf16> rows);
  void compare_engram_rows(int64_t layer, std::span<const int64_t> rows);
  void compare_route(int64_t layer, std::span<const int64_t> rows);
  void compare_route_weights(int64_t layer, std::span<const float> rows);
  void compare_topk(int64_t layer, std::span<const int64_t> rows);
  void compare_candidates(int64_t layer, std::span<const int64_t> blocks, std::span<const float> margins);
  int64_t slot(std::string_view name, int64_t layer) const;
  // A row of this call whose result may differ: a choice before it fell the other way at a tie, or it reads a
  // compressed row with a code one step off.
  bool excused(int64_t row, int64_t layer) const {
    const bool reads_list = layer < config_.num_hidden_layers && config_.compress_ratios[layer] > 0;
    return (attention_counts_ && reads_list && list_differs_[row]) || experts_differ_[row];
  }
  // Compressed rows of a source, below `count`, that are not the golden ones.
  std::set<int64_t> different_rows(int64_t source, int64_t count) const;

  const Model& model_;
  const Sequence& sequence_;
  const ModelConfig& config_;
  const GoldenLayers& golden_;
  RowErrors& errors_;
  std::map<std::string, ChoiceCount> choices_;
  std::map<int64_t, std::vector<float>> newest_value_, newest_gate_;
  std::vector<int64_t> route_;       // [rows][experts] of the running layer
  std::vector<int64_t> candidates_;  // [rows][blocks] of the candidate source
  int64_t first_ = 0;
  int64_t num_rows_ = 0;
  std::vector<bool> list_differs_, candidates_differ_, experts_differ_;
  bool attention_counts_ = false;  // what follows depends on the layer's own attention
};

void LayerObserver::layer_input(int64_t layer, std::span<Bf16> h, std::span<float> pre) {
  experts_differ_.assign(num_rows_, false);
  attention_counts_ = false;
  const Stored* pre_out = golden_.find("pre_out");
  if (layer == 0 || golden_.h_out.empty() || pre_out == nullptr) return;
  const int64_t width = 4 * config_.hidden_size, layers = config_.num_hidden_layers;
  for (int64_t i = 0; i < num_rows_; ++i) {
    std::copy_n(golden_.h_out.begin() + ((first_ + i) * layers + layer - 1) * width, width,
                h.begin() + i * width);
    const auto weights = pre_out->row(first_ + i, layer - 1);
    std::copy(weights.begin(), weights.end(), pre.begin() + i * 4);
  }
}

void LayerObserver::attention_output(int64_t layer, std::span<Bf16> y) {
  if (golden_.attn_out.empty()) return;
  attention_counts_ = false;
  const int64_t width = config_.hidden_size, layers = config_.num_hidden_layers;
  for (int64_t i = 0; i < num_rows_; ++i) {
    std::copy_n(golden_.attn_out.begin() + ((first_ + i) * layers + layer) * width, width,
                y.begin() + i * width);
  }
}

void LayerObserver::values(std::string_view name, int64_t layer, std::span<const float> rows) {
  if (name == "route_w") return compare_route_weights(layer, rows);
  if (name == "candidate_margin") return compare_candidates(layer, candidates_, rows);
  const auto newest = rows.last(rows.size() / static_cast<size_t>(num_rows_));
  if (name == "compressor_value") newest_value_[layer].assign(newest.begin(), newest.end());
  if (name == "compressor_gate") newest_gate_[layer].assign(newest.begin(), newest.end());
  compare_rows(name, layer, rows);
}

void LayerObserver::indices(std::string_view name, int64_t layer, std::span<const int64_t> rows) {
  if (name == "engram_rows") compare_engram_rows(layer, rows);
  if (name == "route_idx") compare_route(layer, rows);
  if (name == "topk") compare_topk(layer, rows);
  if (name == "candidates") candidates_.assign(rows.begin(), rows.end());
}

int64_t LayerObserver::slot(std::string_view name, int64_t layer) const {
  if (name == "engram_out") return slot_of(config_.engram_layer_ids, layer);
  return name == "main_hidden" ? 0 : layer;
}

void LayerObserver::compare_rows(std::string_view name, int64_t layer, std::span<const float> rows) {
  const Stored* stored = golden_.find(name);
  if (stored == nullptr) return;
  CHECK(static_cast<int64_t>(rows.size()) == num_rows_ * stored->width);
  std::vector<double>& errors = errors_[std::string(name)];
  for (int64_t i = 0; i < num_rows_; ++i) {
    if (excused(i, layer)) continue;
    const auto expected = stored->row(first_ + i, slot(name, layer));
    errors.push_back(relative_rms(expected, rows.subspan(i * stored->width, stored->width)));
  }
}

// Cached rows by their codes: each stored one is a rounding of what the engine packs, or it is wrong.
void LayerObserver::compare_codes(std::string_view name, int64_t layer, std::span<const Bf16> rows) {
  if (name == "window_row") {
    const int64_t dim = config_.head_dim, layers = config_.num_hidden_layers, ring = config_.sliding_window;
    const bool draft_stage = layer >= layers;
    if (draft_stage ? golden_.rings.empty() : golden_.window.empty()) return;
    for (int64_t i = 0; i < num_rows_; ++i) {
      const int64_t p = first_ + i;
      if (draft_stage && p < golden_.num_positions - ring) continue;  // overwritten since
      const auto stored = draft_stage
                              ? std::span(golden_.rings).subspan(((layer - layers) * ring + p % ring) * dim, dim)
                              : std::span(golden_.window).subspan((p * layers + layer) * dim, dim);
      count_codes(choices_[draft_stage ? "dspark_ring codes" : "win codes"], RowFormat::kQ8, rows.subspan(i * dim, dim),
                  stored);
    }
    return;
  }
  const bool keys = name == "index_key";
  const auto& stored = keys ? golden_.index_keys : golden_.compressed;
  const auto source = stored.find(layer);
  if (source == stored.end()) return;
  const int64_t dim = keys ? config_.index_head_dim : config_.head_dim;
  const int64_t first_row = first_ / config_.compress_ratios[layer], count = std::ssize(rows) / dim;
  CHECK((first_row + count) * dim <= std::ssize(source->second));
  for (int64_t i = 0; i < count; ++i) {
    count_codes(choices_[keys ? "ik codes" : "ck codes"], keys ? RowFormat::kQ4i : RowFormat::kQ4k,
                rows.subspan(i * dim, dim), std::span(source->second).subspan((first_row + i) * dim, dim));
  }
}

void LayerObserver::compare_engram_rows(int64_t layer, std::span<const int64_t> rows) {
  if (golden_.engram_rows.empty()) return;
  const int64_t columns = static_cast<int64_t>(rows.size()) / num_rows_,
                slots = std::ssize(config_.engram_layer_ids);
  ChoiceCount& count = choices_["engram_rows"];
  for (int64_t i = 0; i < num_rows_; ++i) {
    const int64_t at = ((first_ + i) * slots + slot_of(config_.engram_layer_ids, layer)) * columns;
    const bool same = std::equal(rows.begin() + i * columns, rows.begin() + (i + 1) * columns,
                                 golden_.engram_rows.begin() + at);
    ++count.rows;
    count.mismatches += same ? 0 : 1;
  }
}

void LayerObserver::compare_route(int64_t layer, std::span<const int64_t> rows) {
  route_.assign(rows.begin(), rows.end());
  if (golden_.route_idx.empty()) return;
  const int64_t chosen = config_.num_experts_per_tok, layers = config_.num_hidden_layers;
  ChoiceCount& count = choices_["route_idx"];
  for (int64_t i = 0; i < num_rows_; ++i) {
    if (excused(i, layer)) continue;
    const int64_t at = (first_ + i) * layers + layer;
    ++count.rows;
    if (std::is_permutation(rows.begin() + i * chosen, rows.begin() + (i + 1) * chosen,
                            golden_.route_idx.begin() + at * chosen)) {
      continue;
    }
    experts_differ_[i] = !golden_.route_margin.empty() && golden_.route_margin[at] < kTieMargin;
    ++(experts_differ_[i] ? count.ties : count.mismatches);
  }
}

// By expert: two experts of nearly equal score may have changed places.
void LayerObserver::compare_route_weights(int64_t layer, std::span<const float> rows) {
  const Stored* stored = golden_.find("route_w");
  if (stored == nullptr || golden_.route_idx.empty()) return;
  const int64_t chosen = config_.num_experts_per_tok, layers = config_.num_hidden_layers;
  for (int64_t i = 0; i < num_rows_; ++i) {
    if (excused(i, layer)) continue;
    const auto expected = stored->row(first_ + i, layer);
    const auto expected_ids =
        std::span(golden_.route_idx).subspan(((first_ + i) * layers + layer) * chosen, chosen);
    std::vector<float> found(chosen);
    for (int64_t k = 0; k < chosen; ++k) {
      for (int64_t j = 0; j < chosen; ++j) {
        if (route_[i * chosen + j] == expected_ids[k]) found[k] = rows[i * chosen + j];
      }
    }
    errors_["route_w"].push_back(relative_rms(expected, found));
  }
}

std::set<int64_t> LayerObserver::different_rows(int64_t source, int64_t count) const {
  std::set<int64_t> different;
  const auto golden = golden_.compressed.find(source);
  if (golden == golden_.compressed.end()) return different;
  for (int64_t row = 0; row < count; ++row) {
    const auto expected = std::span(golden->second).subspan(row * config_.head_dim, config_.head_dim);
    if (count_mismatches(expected, model_.compressed_row(sequence_, source, row)) > 0) different.insert(row);
  }
  return different;
}

void LayerObserver::compare_topk(int64_t layer, std::span<const int64_t> rows) {
  const int64_t width = config_.index_topk, slots = std::ssize(config_.index_source_layer_ids);
  const int64_t source = *ModelConfig::source_of(config_.kv_source_layer_ids, layer);
  const auto different = different_rows(source, (first_ + num_rows_) / config_.compress_ratios[source]);
  for (int64_t i = 0; i < num_rows_; ++i) {
    list_differs_[i] = std::any_of(rows.begin() + i * width, rows.begin() + (i + 1) * width,
                                   [&](int64_t row) { return different.contains(row); });
  }
  if (golden_.topk.empty()) return;
  ChoiceCount& count = choices_["topk"];
  for (int64_t i = 0; i < num_rows_; ++i) {
    const int64_t at = (first_ + i) * slots + slot_of(config_.index_source_layer_ids, layer);
    ++count.rows;
    if (std::equal(rows.begin() + i * width, rows.begin() + (i + 1) * width,
                   golden_.topk.begin() + at * width)) {
      continue;
    }
    const bool tie = !golden_.topk_margin.empty() && golden_.topk_margin[at] < kTieMargin;
    ++(tie || candidates_differ_[i] ? count.ties : count.mismatches);
    list_differs_[i] = list_differs_[i] || tie || candidates_differ_[i];
  }
}

// Rows of kept blocks, for queries that had to choose. The data has no margins for blocks; ours say what is a
// tie.
void LayerObserver::compare_candidates(int64_t layer, std::span<const int64_t> blocks,
                                       std::span<const float> margins) {
  if (golden_.candidates.empty()) return;
  const int64_t width = config_.candidate_topk_blocks, block_size = config_.candidate_block_size;
  const int64_t stored_rows = std::ssize(golden_.candidates) / golden_.num_positions;
  ChoiceCount& count = choices_["cand"];
  for (int64_t i = 0; i < num_rows_; ++i) {
    const int64_t visible = (first_ + i + 1) / config_.compress_ratios[layer];
    if (visible <= config_.index_topk || visible > stored_rows) continue;
    std::vector<uint8_t> kept(visible);
    for (int64_t k = 0; k < width; ++k) {
      const int64_t first = blocks[i * width + k] * block_size;
      if (first < 0) continue;
      std::fill(kept.begin() + first, kept.begin() + std::min(first + block_size, visible), uint8_t{1});
    }
    ++count.rows;
    const auto expected = golden_.candidates.begin() + (first_ + i) * stored_rows;
    if (std::equal(kept.begin(), kept.end(), expected)) continue;
    candidates_differ_[i] = margins[i] < kTieMargin;
    ++(candidates_differ_[i] ? count.ties : count.mismatches);
  }
}

// The unpaired last token of the ratio-2 sources when the length is odd.
Status compare_pending(const PromptCheck& prompt, const std::string& item,
                       const std::map<int64_t, std::vector<float>>& newest) {
  const std::string name = golden_name(item);
  if (!prompt.file.contains(name) || prompt.length() % 2 == 0) return Status();
  const int64_t dim = prompt.model.config().head_dim;
  ASSIGN_OR_RETURN(const auto expected,
                   prompt.file.read<float>(name, {static_cast<int64_t>(newest.size()), dim}));
  std::vector<float> found;  // sources ascending, as the map is
  for (const auto& [layer, values] : newest) found.insert(found.end(), values.begin(), values.end());
  const auto rows = row_relative_rms(expected, found, dim);
  prompt.compare(item, "row rms", *std::max_element(rows.begin(), rows.end()), kWorstRow);
  return Status();
}

// Logits of the stored state behind the last layer.
void compare_head(const GoldenLayers& golden, int64_t first, std::span<const float> found, int64_t vocab,
                  std::vector<double>& errors) {
  const auto expected = std::span(golden.logits).subspan(first * vocab, found.size());
  const auto rows = row_relative_rms(expected, found, vocab);
  errors.insert(errors.end(), rows.begin(), rows.end());
}

void report(const PromptCheck& prompt, const RowErrors& errors, const LayerObserver& observer) {
  for (const auto& [item, count] : observer.choices()) {
    prompt.compare(item, kMismatches, static_cast<double>(count.mismatches), 0,
                   fmt::format("{} rows{}", count.rows,
                               count.ties > 0 ? fmt::format(", {} differ at ties", count.ties) : ""));
  }
  for (const auto& [item, rows] : errors) {
    if (rows.empty()) continue;
    prompt.compare(item, "row rms", *std::max_element(rows.begin(), rows.end()),
                   worst_row(item, prompt.model.config().hidden_size, prompt.numerics()),
                   fmt::format("{} rows, {} equal", rows.size(), std::count(rows.begin(), rows.end(), 0.0)));
  }
}

}  // namespace

Status check_layers(PromptCheck& prompt, RowErrors& all_errors) {
  const ModelConfig& config = prompt.model.config();
  ASSIGN_OR_RETURN(const GoldenLayers golden, read_layers(prompt));
  RowErrors errors;
  ASSIGN_OR_RETURN(const auto sequence, prompt.model.make_sequence());
  LayerObserver observer(prompt.model, *sequence, golden, errors);
  const int64_t chunk = std::min(config.sliding_window, prompt.model.options().max_batch_tokens);
  for (int64_t first = 0; first < prompt.length(); first += chunk) {
    const int64_t count = std::min(chunk, prompt.length() - first);
    observer.begin_call(first, count);
    const SequenceSpan span{sequence.get(), first, std::span(prompt.ids).subspan(first, count),
                            golden.logits.empty() ? LogitsRows::kNone : LogitsRows::kAll};
    ASSIGN_OR_RETURN(const auto logits, prompt.model.forward({&span, 1}, &observer));
    if (!golden.logits.empty()) compare_head(golden, first, logits, config.vocab_size, errors["logits"]);
    if (!golden.window.empty()) compare_window_rows(prompt, *sequence, golden.window, first, count, errors["win"]);
  }
  RETURN_IF_ERROR(compare_compressed_rows(prompt, *sequence, errors));
  RETURN_IF_ERROR(compare_dspark_rings(prompt, *sequence, errors));
  report(prompt, errors, observer);
  RETURN_IF_ERROR(compare_pending(prompt, "pend_kv", observer.newest_value()));
  RETURN_IF_ERROR(compare_pending(prompt, "pend_gate", observer.newest_gate()));
  for (auto& [item, rows] : errors) all_errors[item].insert(all_errors[item].end(), rows.begin(), rows.end());
  return Status();
}

}  // namespace deepinfer::golden
