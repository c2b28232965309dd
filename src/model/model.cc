// The forward pass from end to end (model-v41 0.4): embed, layers, final fold and norm, head.
#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "model/model_impl.h"

namespace deepinfer {

// ---- operands of the parts -------------------------------------------------------------------------------------------

ActivationRows ForwardPass::pair(const Bf16* x, int64_t count, int64_t cols) {
  ops.pair_rows(kernel, x, count, cols, ws.paired.data());
  return {.values = ws.paired.data(), .count = count, .stride = (cols + 1) / 2 * 2};
}

ActivationRows ForwardPass::quantize(const Bf16* x, int64_t count, int64_t cols) {
  ops.quantize_rows(kernel, x, count, cols, ws.quantized.data());
  return {.values = ws.quantized.data(), .count = count, .stride = cols};
}

void ForwardPass::linear(const Matrix& weights, const ActivationRows& x, Bf16* y) {
  ops.linear(kernel, weights.view(), x, {.bf16 = y, .stride = weights.view().rows});
}

void ForwardPass::rms_norm(const Bf16* x, const std::vector<Bf16>& weight, int64_t count, Bf16* out) {
  ops.rms_norm(kernel, x, weight.data(), count, std::ssize(weight), static_cast<float>(config.rms_norm_eps), out);
}

void ForwardPass::set_cos_sin(RopeKind kind) {
  for (int64_t i = 0; i < num_rows(); ++i) ws.cos_sin[i] = rope(kind).row(rows[i].position);
}

// ---- loading ---------------------------------------------------------------------------------------------------------

namespace {

Status check_options(const ModelConfig& config, const ModelOptions& options) {
  const int64_t least_rows = std::max<int64_t>(1, config.dspark_block_size + 1);
  if (options.max_batch_tokens < least_rows) {
    return Error(Code::kInvalidArgument, "max_batch_tokens: found {}, expected at least {}", options.max_batch_tokens,
                 least_rows);
  }
  if (options.max_context_tokens < 1 || options.max_context_tokens > config.max_position_embeddings) {
    return Error(Code::kInvalidArgument, "max_context_tokens: found {}, expected 1 to {} (max_position_embeddings)",
                 options.max_context_tokens, config.max_position_embeddings);
  }
  if (options.num_threads < 1 || options.max_sequences < 1) {
    return Error(Code::kInvalidArgument, "num_threads and max_sequences: found {} and {}, expected at least 1",
                 options.num_threads, options.max_sequences);
  }
  return {};
}

Status check_token_map(const ModelConfig& config, const std::vector<int32_t>& map) {
  if (config.engram_layer_ids.empty()) return {};
  if (std::ssize(map) != config.vocab_size) {
    return Error(Code::kInvalidArgument, "Engram token map: found {} entries, expected vocab_size {}", map.size(),
                 config.vocab_size);
  }
  const int64_t classes = *std::max_element(map.begin(), map.end()) + 1;
  if (classes != config.engram_compressed_vocab_size) {
    return Error(Code::kInvalidArgument,
                 "Engram token map of this tokenizer.json has {} classes, config.json expects {} "
                 "(engram_compressed_vocab_size): the tokenizer does not belong to this checkpoint",
                 classes, config.engram_compressed_vocab_size);
  }
  return {};
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, std::vector<int32_t> engram_token_map,
                                           const ModelOptions& options, const ProgressFunction& progress) {
  const ModelConfig& config = checkpoint.config();
  RETURN_IF_ERROR(check_options(config, options));
  RETURN_IF_ERROR(check_token_map(config, engram_token_map));
  ASSIGN_OR_RETURN(const Ops* ops, select_ops(options.isa));
  ASSIGN_OR_RETURN(auto layers, make_layer_plan(config));
  ASSIGN_OR_RETURN(auto hashes, make_engram_hashes(config));

  auto layout = std::make_unique<KvLayout>(config);
  const int64_t blocks = options.max_sequences * static_cast<int64_t>(ceil_div(options.max_context_tokens, kBlockTokens));
  ASSIGN_OR_RETURN(KvArena arena, KvArena::make(*layout, blocks));
  auto impl = std::make_unique<Impl>(std::move(arena));
  impl->config = config;
  impl->options = options;
  impl->ops = ops;
  impl->layers = std::move(layers);
  impl->engram_hashes = std::move(hashes);
  if (!config.engram_layer_ids.empty()) impl->engram_pad_class = engram_token_map[config.engram_pad_token_id];
  impl->engram_token_map = std::move(engram_token_map);
  impl->layout = std::move(layout);
  ASSIGN_OR_RETURN(impl->workspace, Workspace::make(config, *impl->layout, options.max_batch_tokens,
                                                    options.max_context_tokens, options.num_threads));
  const int64_t rotary = config.qk_rope_head_dim;
  ASSIGN_OR_RETURN(impl->plain_rope, RopeTable::make(plain_frequencies(config.rope_theta, rotary),
                                                     options.max_context_tokens));
  ASSIGN_OR_RETURN(impl->compress_rope,
                   RopeTable::make(yarn_frequencies(config.compress_rope_theta, rotary, config.rope_scaling),
                                   options.max_context_tokens));
  ASSIGN_OR_RETURN(impl->weights, load_weights(checkpoint, impl->layers, progress));
  impl->pool = std::make_unique<ThreadPool>(options.num_threads, ThreadPool::Pinning::kOneCorePerThread);
  impl->kernel = {impl->pool.get(), impl->workspace.kernel_scratch.data(), impl->workspace.kernel_scratch_bytes};
  impl->rows.reserve(static_cast<size_t>(options.max_batch_tokens));
  impl->plan = {.weight_bytes = impl->weights.size_bytes,
                .kv_block_bytes = static_cast<uint64_t>(impl->layout->block_bytes),
                .kv_blocks = static_cast<uint64_t>(blocks),
                .sequence_state_bytes = static_cast<uint64_t>(impl->layout->sequence_state_bytes()),
                .workspace_bytes = impl->workspace.size_bytes()};
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const { return impl_->config; }
const ModelOptions& Model::options() const { return impl_->options; }
const MemoryPlan& Model::memory_plan() const { return impl_->plan; }
std::string_view Model::isa() const { return impl_->ops->name; }
int64_t Model::max_step_back() const { return impl_->layout->max_step_back; }

// ---- sequences -------------------------------------------------------------------------------------------------------

Result<Model::SequencePtr> Model::make_sequence() {
  if (impl_->num_sequences == impl_->options.max_sequences) {
    return Error(Code::kResourceExhausted, "all {} sequences are in use", impl_->options.max_sequences);
  }
  ASSIGN_OR_RETURN(Sequence sequence, Sequence::make(*impl_->layout, impl_->options.max_context_tokens));
  ++impl_->num_sequences;
  return SequencePtr(new Sequence(std::move(sequence)), SequenceDeleter{this});
}

void Model::SequenceDeleter::operator()(Sequence* sequence) const {
  model->impl_->arena.release(*sequence);
  --model->impl_->num_sequences;
  delete sequence;
}

int64_t Model::length(const Sequence& sequence) { return sequence.length; }

// ---- one call --------------------------------------------------------------------------------------------------------

ForwardPass Model::Impl::begin(ForwardObserver* observer) {
  return {config, *layout, arena, *ops, kernel, workspace, plain_rope, compress_rope, observer, rows};
}

Status Model::Impl::check(std::span<const SequenceSpan> spans) const {
  int64_t total = 0;
  for (const SequenceSpan& span : spans) {
    const auto count = std::ssize(span.ids);
    total += count;
    if (count == 0) return Error(Code::kInvalidArgument, "forward: a span has no ids");
    const Sequence& sequence = *span.sequence;
    if (span.first_position > sequence.length || sequence.high_water - span.first_position > layout->max_step_back) {
      return Error(Code::kInvalidArgument, "forward: first position {}, expected {} to {}", span.first_position,
                   std::max<int64_t>(0, sequence.high_water - layout->max_step_back), sequence.length);
    }
    if (span.first_position + count > options.max_context_tokens) {
      return Error(Code::kInvalidArgument, "forward: positions up to {}, the context ends at {}",
                   span.first_position + count, options.max_context_tokens);
    }
    for (const int32_t id : span.ids) {
      if (id < 0 || id >= config.vocab_size) {
        return Error(Code::kInvalidArgument, "forward: found id {}, expected 0 to {}", id, config.vocab_size - 1);
      }
    }
  }
  if (total > options.max_batch_tokens) {
    return Error(Code::kInvalidArgument, "forward: found {} rows, expected at most {} (max_batch_tokens)", total,
                 options.max_batch_tokens);
  }
  return {};
}

Status Model::Impl::admit(std::span<const SequenceSpan> spans) {
  for (const SequenceSpan& span : spans) {
    RETURN_IF_ERROR(arena.extend(*span.sequence, span.first_position + std::ssize(span.ids)));
  }
  rows.clear();
  for (const SequenceSpan& span : spans) {
    Sequence& sequence = *span.sequence;
    const auto first_row = std::ssize(rows);
    const auto count = std::ssize(span.ids);
    sequence.engram_ids.resize(static_cast<size_t>(span.first_position + count));
    for (int64_t i = 0; i < count; ++i) {
      const int32_t id = span.ids[i];
      sequence.engram_ids[span.first_position + i] = engram_token_map.empty() ? 0 : engram_token_map[id];
      rows.push_back({&sequence, span.first_position + i, first_row, span.first_position});
    }
    sequence.length = span.first_position + count;
    sequence.high_water = std::max(sequence.high_water, sequence.length);
  }
  return {};
}

void Model::Impl::embed(ForwardPass& pass, std::span<const int32_t> ids) {
  const int64_t hidden = config.hidden_size;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Bf16* embedding = weights.embed.as<Bf16>() + ids[i] * hidden;
    for (int stream = 0; stream < 4; ++stream) {
      std::copy_n(embedding, hidden, pass.ws.h.data() + (static_cast<int64_t>(i) * 4 + stream) * hidden);
      pass.ws.pre[static_cast<int64_t>(i) * 4 + stream] = stream == 0 ? 1.0f : 0.0f;
    }
  }
}

void Model::Impl::run_layers(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  const int64_t count = pass.num_rows() * config.hidden_size;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerPlan& row = layers[layer];
    const BlockWeights& block = weights.layers[layer];
    if (pass.observer != nullptr) {
      pass.observer->layer_input(layer, {ws.h.data(), static_cast<size_t>(4 * count)},
                                 {ws.pre.data(), static_cast<size_t>(4 * pass.num_rows())});
    }
    if (row.engram) engram(pass, *block.engram, engram_hashes[*row.engram], engram_pad_class, layer);
    if (row.dspark_target) capture_target(pass, *row.dspark_target);

    hc_enter(pass, block.hc_attn, block.attn_norm);
    pass.observe("attn_in", layer, ws.x.data(), count);
    attention(pass, block, row, layer);
    pass.observe("attn_out", layer, ws.y.data(), count);
    if (pass.observer != nullptr) {
      pass.observer->attention_output(layer, {ws.y.data(), static_cast<size_t>(count)});
    }
    hc_leave(pass);

    hc_enter(pass, block.hc_ffn, block.ffn_norm);
    pass.observe("ffn_in", layer, ws.x.data(), count);
    experts(pass, block.moe, layer);
    pass.observe("ffn_out", layer, ws.y.data(), count);
    hc_leave(pass);
    pass.observe("h_out", layer, ws.h.data(), 4 * count);
    pass.observe("pre_out", layer, ws.pre.data(), 4 * pass.num_rows());
  }
}

Result<std::span<const float>> Model::Impl::compute_logits(ForwardPass& pass, std::span<const SequenceSpan> spans) {
  Workspace& ws = pass.ws;
  const int64_t hidden = config.hidden_size, vocab = config.vocab_size;
  pass.ops.hc_fold(pass.kernel, ws.h.data(), ws.pre.data(), 4, pass.num_rows(), hidden, ws.x.data());
  // Rows whose logits are wanted, moved together.
  int64_t wanted = 0, row = 0;
  std::vector<int64_t>& positions = logit_positions;
  positions.clear();
  for (const SequenceSpan& span : spans) {
    for (int64_t i = 0; i < std::ssize(span.ids); ++i, ++row) {
      const bool last = i + 1 == std::ssize(span.ids);
      if (span.logits == LogitsRows::kNone || (span.logits == LogitsRows::kLast && !last)) continue;
      std::copy_n(ws.x.data() + row * hidden, hidden, ws.x.data() + wanted * hidden);
      positions.push_back(rows[row].position);
      ++wanted;
    }
  }
  if (wanted == 0) return std::span<const float>();
  pass.rms_norm(ws.x.data(), weights.norm, wanted, ws.x.data());
  pass.ops.linear(pass.kernel, weights.head.view(), pass.pair(ws.x.data(), wanted, hidden),
                  {.f32 = ws.logits.data(), .stride = vocab});
  for (int64_t i = 0; i < wanted * vocab; ++i) {
    if (!std::isfinite(ws.logits[i])) {
      return Error(Code::kInternal, "forward: the logit of id {} at position {} is not finite", i % vocab,
                   positions[i / vocab]);
    }
  }
  return std::span<const float>(ws.logits.data(), static_cast<size_t>(wanted * vocab));
}

Result<std::span<const float>> Model::forward(std::span<const SequenceSpan> spans, ForwardObserver* observer) {
  RETURN_IF_ERROR(impl_->check(spans));
  RETURN_IF_ERROR(impl_->admit(spans));
  ForwardPass pass = impl_->begin(observer);
  std::vector<int32_t>& ids = impl_->ids;
  ids.clear();
  for (const SequenceSpan& span : spans) ids.insert(ids.end(), span.ids.begin(), span.ids.end());
  impl_->embed(pass, ids);
  impl_->run_layers(pass);
  if (impl_->weights.dspark) write_dspark_rows(pass, *impl_->weights.dspark);
  return impl_->compute_logits(pass, spans);
}

// ---- rows of the caches ----------------------------------------------------------------------------------------------

namespace {

int64_t group_of(const ModelConfig& config, int64_t layer) {
  const auto& sources = config.kv_source_layer_ids;
  const auto found = std::find(sources.begin(), sources.end(), layer);
  CHECK(found != sources.end());
  return found - sources.begin();
}

}  // namespace

std::vector<float> Model::compressed_row(const Sequence& sequence, int64_t layer, int64_t row) const {
  const auto address = impl_->arena.row(*impl_->layout, sequence, group_of(impl_->config, layer), row);
  std::vector<float> values(static_cast<size_t>(impl_->config.head_dim));
  unpack_compressed_row(address.compressed, impl_->config.head_dim, values.data());
  return values;
}

std::vector<float> Model::index_key(const Sequence& sequence, int64_t layer, int64_t row) const {
  const auto address = impl_->arena.row(*impl_->layout, sequence, group_of(impl_->config, layer), row);
  std::vector<float> values(static_cast<size_t>(impl_->config.index_head_dim));
  unpack_index_row(address.index_codes, address.index_scales, impl_->config.index_head_dim, values.data());
  return values;
}

std::vector<float> Model::window_row(const Sequence& sequence, int64_t layer, int64_t position) const {
  std::vector<float> values(static_cast<size_t>(impl_->config.head_dim));
  unpack_window_row(sequence.window_row(layer, position), impl_->config.head_dim, values.data());
  return values;
}

}  // namespace deepinfer
