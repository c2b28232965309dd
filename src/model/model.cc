// The forward pass from end to end (docs/spec/model.md 0.2): embed, layers, final fold and norm, head.
#include "model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/quantize.h"
#include "model/model_impl.h"

namespace deepinfer {

// ---- operands of the parts -------------------------------------------------------------------------------------------

ActivationRows ForwardPass::x_quantized(int64_t count) const {
  ActivationRows x = {.values = ws.x_quantized.data(), .count = count, .stride = config.hidden_size};
  if (numerics == Numerics::kFast) x.int8 = ws.x_int8.data();
  return x;
}

void ForwardPass::make_operands(int64_t begin, int64_t end) const {
  const int64_t hidden = config.hidden_size, place = begin * hidden;
  ops.pair_rows(ws.x.data() + place, end - begin, hidden, ws.x_paired.data() + place);
  ops.quantize_rows(ws.x.data() + place, end - begin, hidden, ws.x_quantized.data() + place);
  if (numerics == Numerics::kExact) return;
  ops.encode_int8(ws.x_quantized.data() + place, end - begin, hidden, ws.x_int8.data() + place / kSumBlock);
}

void ForwardPass::linear_quantized(const Matrix& weights, const Bf16* x, Bf16* y) {
  const int64_t cols = weights.view().cols;
  const Phase operand = add_rows(num_rows(), cols, {}, [this, x, cols](int64_t begin, int64_t end, int) {
    ops.quantize_rows(x + begin * cols, end - begin, cols, ws.quantized.data() + begin * cols);
  });
  add_linear({operand}, {LinearTask{weights.view(), {.values = ws.quantized.data(), .count = num_rows(), .stride = cols},
                                    {.bf16 = y, .stride = weights.view().rows}}});
  run_region();
}

void ForwardPass::linear_paired(const Matrix& weights, const Bf16* x, int64_t count, const OutputRows& y) {
  const int64_t cols = weights.view().cols, stride = (cols + 1) / 2 * 2;
  const Phase operand = add_rows(count, cols, {}, [this, x, cols, stride](int64_t begin, int64_t end, int) {
    ops.pair_rows(x + begin * cols, end - begin, cols, ws.paired.data() + begin * stride);
  });
  add_linear({operand},
             {LinearTask{weights.view(), {.values = ws.paired.data(), .count = count, .stride = stride}, y}});
  run_region();
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
  if (options.num_threads < 1 || options.num_threads > ThreadPool::kMostThreads) {
    return Error(Code::kInvalidArgument, "num_threads: found {}, expected 1 to {}", options.num_threads,
                 ThreadPool::kMostThreads);
  }
  if (options.max_sequences < 1) {
    return Error(Code::kInvalidArgument, "max_sequences: found {}, expected at least 1", options.max_sequences);
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
                                           const ModelOptions& options, const ProgressFunction& progress,
                                           const WeightsCache* cache) {
  const ModelConfig& config = checkpoint.config();
  RETURN_IF_ERROR(check_options(config, options));
  RETURN_IF_ERROR(check_token_map(config, engram_token_map));
  ASSIGN_OR_RETURN(const Ops* ops, select_ops(options.isa));
  ASSIGN_OR_RETURN(auto layers, make_layer_plan(config));
  ASSIGN_OR_RETURN(auto hashes, make_engram_hashes(config));

  auto layout = std::make_unique<KvLayout>(config);
  const int64_t context_blocks = static_cast<int64_t>(ceil_div(options.max_context_tokens, kBlockTokens));
  const int64_t blocks = options.num_blocks > 0 ? options.num_blocks : options.max_sequences * context_blocks;
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
  ASSIGN_OR_RETURN(impl->workspace,
                   Workspace::make(config, *impl->layout, options.max_batch_tokens,
                                   options.max_context_tokens, options.num_threads, options.numerics));
  const int64_t rotary = config.qk_rope_head_dim;
  const int64_t plain_positions =
      options.max_context_tokens + config.dspark_block_size;  // drafts look past the end
  ASSIGN_OR_RETURN(impl->plain_rope,
                   RopeTable::make(plain_frequencies(config.rope_theta, rotary), plain_positions));
  ASSIGN_OR_RETURN(impl->compress_rope,
                   RopeTable::make(yarn_frequencies(config.compress_rope_theta, rotary, config.rope_scaling),
                                   options.max_context_tokens));
  ASSIGN_OR_RETURN(impl->weights, load_weights(checkpoint, impl->layers, options.num_threads, progress, cache));
  impl->pool = std::make_unique<ThreadPool>(options.num_threads, ThreadPool::Pinning::kOneCorePerThread);
  impl->kernel = {impl->pool.get(), impl->workspace.kernel_scratch.data(), impl->workspace.kernel_scratch_bytes};
  impl->rows.reserve(static_cast<size_t>(options.max_batch_tokens));
  impl->decoder_rows.reserve(static_cast<size_t>(options.max_batch_tokens));
  for (int64_t i = 0; i < options.max_sequences; ++i) {
    ASSIGN_OR_RETURN(Sequence state, Sequence::make(*impl->layout, options.max_context_tokens));
    impl->states.push_back(std::make_unique<Sequence>(std::move(state)));
  }
  for (auto state = impl->states.rbegin(); state != impl->states.rend(); ++state) {
    impl->free_states.push_back(state->get());
  }
  impl->plan = {.weight_bytes = impl->weights.size_bytes,
                .kv_block_bytes = static_cast<uint64_t>(impl->layout->block_bytes),
                .kv_blocks = static_cast<uint64_t>(blocks),
                .sequence_state_bytes = static_cast<uint64_t>(impl->layout->sequence_state_bytes()),
                .sequence_states = static_cast<uint64_t>(options.max_sequences),
                .workspace_bytes = impl->workspace.size_bytes(),
                .rope_bytes = static_cast<uint64_t>((plain_positions + options.max_context_tokens) * rotary) *
                              sizeof(float)};
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const { return impl_->config; }
const ModelOptions& Model::options() const { return impl_->options; }
const MemoryPlan& Model::memory_plan() const { return impl_->plan; }
bool Model::weights_from_cache() const { return impl_->weights.from_cache; }
std::string_view Model::isa() const { return impl_->ops->name; }
std::string_view Model::summation_order() const {
  return deepinfer::summation_order(impl_->options.numerics);
}
uint64_t Model::num_regions() const { return impl_->pool->num_regions(); }
uint64_t Model::num_waits() const { return impl_->pool->num_waits(); }
const WindowGeometry& Model::windows() const { return impl_->layout->windows; }
int64_t Model::max_step_back() const { return impl_->layout->max_step_back; }

// ---- sequences -------------------------------------------------------------------------------------------------------

Result<Model::SequencePtr> Model::make_sequence() {
  if (impl_->free_states.empty()) {
    return Error(Code::kResourceExhausted, "all {} sequences are in use", impl_->options.max_sequences);
  }
  Sequence* sequence = impl_->free_states.back();
  impl_->free_states.pop_back();
  sequence->start(0, {}, {});
  return SequencePtr(sequence, SequenceDeleter{this});
}

void Model::SequenceDeleter::operator()(Sequence* sequence) const {
  model->impl_->arena.release(*sequence);
  model->impl_->free_states.push_back(sequence);
}

Sequence& Model::state(int64_t i) { return *impl_->states[i]; }

void Model::start(Sequence& sequence, int64_t position, std::span<const int32_t> ids_before, const SequenceCut& cut) {
  CHECK(std::ssize(ids_before) >= std::min<int64_t>(position, kEngramTokens - 1) && std::ssize(ids_before) <= position);
  std::array<int32_t, kEngramTokens - 1> classes = {};
  const auto last = ids_before.last(std::min(ids_before.size(), classes.size()));
  for (size_t i = 0; i < last.size(); ++i) {
    classes[i] = impl_->engram_token_map.empty() ? 0 : impl_->engram_token_map[last[i]];
  }
  sequence.start(position, std::span(classes).first(last.size()), cut);
}

Result<Sequence> Model::make_detached_state() const { return Sequence::make(*impl_->layout, 0); }

void Model::copy_block(BlockId from, BlockId to) {
  std::memcpy(impl_->arena.block(to), impl_->arena.block(from), static_cast<size_t>(impl_->layout->block_bytes));
}

std::span<std::byte> Model::block_bytes(BlockId block) {
  return {impl_->arena.block(block), static_cast<size_t>(impl_->layout->block_bytes)};
}

int64_t Model::length(const Sequence& sequence) { return sequence.length; }

// ---- one call --------------------------------------------------------------------------------------------------------

ForwardPass Model::Impl::begin(ForwardObserver* observer) {
  return {config, *layout, arena, *ops, kernel, workspace, plain_rope, compress_rope, options.numerics, observer,
          region, rows};
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
    const auto last_block = static_cast<int64_t>(ceil_div(span.first_position + count, kBlockTokens));
    const int64_t table = span.new_blocks.empty() ? std::ssize(sequence.blocks)
                                                  : span.first_block + std::ssize(span.new_blocks);
    if (span.first_block < 0 || span.first_block > std::ssize(sequence.blocks) ||
        (table < last_block && !sequence.owns_blocks && table > 0)) {
      return Error(Code::kInvalidArgument, "forward: a block table of {} entries from {} on, expected {} for position {}",
                   table, span.first_block, last_block, span.first_position + count - 1);
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
    Sequence& sequence = *span.sequence;
    if (!span.new_blocks.empty()) {
      sequence.blocks.resize(static_cast<size_t>(span.first_block));
      sequence.blocks.insert(sequence.blocks.end(), span.new_blocks.begin(), span.new_blocks.end());
    }
    const int64_t length = span.first_position + std::ssize(span.ids);
    if (length > std::ssize(sequence.blocks) * kBlockTokens) RETURN_IF_ERROR(arena.extend(sequence, length));
  }
  rows.clear();
  for (size_t s = 0; s < spans.size(); ++s) {
    const SequenceSpan& span = spans[s];
    Sequence& sequence = *span.sequence;
    const auto first_row = std::ssize(rows);
    const auto count = std::ssize(span.ids);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = span.first_position + i;
      const bool last = i + 1 == count;
      Row& row = rows.emplace_back(Row{.sequence = &sequence,
                                       .position = position,
                                       .first_row = first_row,
                                       .first_position = span.first_position,
                                       .span = static_cast<int32_t>(s),
                                       .wants_logits = span.logits == LogitsRows::kAll ||
                                                       (span.logits == LogitsRows::kLast && last)});
      sequence.engram_id(position) = engram_token_map.empty() ? 0 : engram_token_map[span.ids[i]];
      for (int64_t back = 0; back < std::min<int64_t>(kEngramTokens, position + 1); ++back) {
        row.engram_ids[back] = sequence.engram_id(position - back);
      }
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

void Model::Impl::replace_input(ForwardPass& pass, int64_t layer) {
  if (!pass.is_replaced()) return;
  const auto rows = static_cast<size_t>(pass.num_rows());
  pass.observer->layer_input(layer, {pass.ws.h.data(), rows * 4 * static_cast<size_t>(config.hidden_size)},
                             {pass.ws.pre.data(), rows * 4});
  pass.has_sums = false;  // begun with other numbers
}

void Model::Impl::run_layers(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  const int64_t first_decoder_layer = config.first_decoder_layer();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerPlan& row = layers[layer];
    const BlockWeights& block = weights.layers[layer];
    int64_t count = pass.num_rows() * config.hidden_size;
    replace_input(pass, layer);
    if (row.engram) engram(pass, *block.engram, engram_hashes[*row.engram], engram_pad_class, layer);
    if (row.dspark_target) capture_target(pass, *row.dspark_target);

    Phase x = hc_enter(pass, block.hc_attn, block.attn_norm);
    pass.observe("attn_in", layer, ws.x.data(), count);
    const Phase compressed = row.owns_kv ? compress(pass, *block.compressor, row, layer, x) : Region::kNone;
    if (layer == first_decoder_layer) {
      pass.run_region();
      drop_encoder_rows(pass, decoder_rows);
      if (pass.rows.empty()) return;
      count = pass.num_rows() * config.hidden_size;
    }
    const std::vector<Bf16> h(pass.is_replaced() ? ws.h.data() : nullptr,
                              pass.is_replaced() ? ws.h.data() + 4 * count : nullptr);
    attention(pass, block, row, layer, x, compressed);
    pass.observe("attn_out", layer, ws.y.data(), count);
    if (pass.is_replaced()) {
      pass.run_region();
      pass.observer->attention_output(layer, {ws.y.data(), static_cast<size_t>(count)});
      std::copy(h.begin(), h.end(), ws.h.data());
      hc_leave(pass, {0, config.hidden_size}, &block.hc_ffn);
    }

    x = hc_enter(pass, block.hc_ffn, block.ffn_norm);
    pass.observe("ffn_in", layer, ws.x.data(), count);
    // The next mix can be begun where nothing comes between.
    const bool goes_on = layer + 1 < config.num_hidden_layers && !layers[layer + 1].engram;
    experts(pass, block.moe, layer, x, goes_on ? &weights.layers[layer + 1].hc_attn : nullptr);
    pass.run_region();
    store_window_rows(pass, layer);
    pass.observe("ffn_out", layer, ws.y.data(), count);
    pass.observe("h_out", layer, ws.h.data(), 4 * count);
    pass.observe("pre_out", layer, ws.pre.data(), 4 * pass.num_rows());
    check_finite(pass, layer);
  }
}

// A number that is not finite anywhere in a row's streams reaches its mixing weights: their statistic sums all squares.
void Model::Impl::check_finite(const ForwardPass& pass, int64_t layer) {
  for (int64_t i = 0; i < pass.num_rows(); ++i) {
    const float* pre = pass.ws.pre.data() + 4 * i;
    if (!std::isfinite(pre[0] + pre[1] + pre[2] + pre[3])) note_fault(pass.rows[i], layer);
  }
}

void Model::Impl::note_fault(const Row& row, int64_t layer) {
  const auto at = std::lower_bound(faults.begin(), faults.end(), row.span,
                                   [](const SpanFault& fault, int32_t span) { return fault.span < span; });
  if (at == faults.end() || at->span != row.span) {
    faults.insert(at, {row.span, layer, row.position});
  } else if (row.position < at->position) {
    *at = {row.span, layer, row.position};
  }
}

std::span<const float> Model::Impl::compute_logits(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  const int64_t hidden = config.hidden_size, vocab = config.vocab_size;
  replace_input(pass, config.num_hidden_layers);
  pass.add_rows(pass.num_rows(), 8 * hidden, {}, [&](int64_t begin, int64_t end, int) {
    pass.ops.hc_fold(ws.h.data() + begin * 4 * config.hidden_size, ws.pre.data() + begin * 4, 4, end - begin,
                     config.hidden_size, {0, config.hidden_size}, ws.x.data() + begin * config.hidden_size);
  });
  pass.run_region();
  // Rows whose logits are wanted, moved together.
  logit_rows.clear();
  for (int64_t row = 0; row < pass.num_rows(); ++row) {
    if (!pass.rows[row].wants_logits) continue;
    std::copy_n(ws.x.data() + row * hidden, hidden, ws.x.data() + std::ssize(logit_rows) * hidden);
    logit_rows.push_back(pass.rows[row]);
  }
  const auto wanted = std::ssize(logit_rows);
  if (wanted == 0) return {};
  pass.rms_norm(ws.x.data(), weights.norm, wanted, ws.x.data());
  pass.linear_paired(weights.head, ws.x.data(), wanted, {.f32 = ws.logits.data(), .stride = vocab});
  for (int64_t i = 0; i < wanted; ++i) {
    const float* logits = ws.logits.data() + i * vocab;
    if (!std::all_of(logits, logits + vocab, [](float x) { return std::isfinite(x); })) {
      note_fault(logit_rows[i], config.num_hidden_layers);
    }
  }
  return {ws.logits.data(), static_cast<size_t>(wanted * vocab)};
}

Result<ForwardOutput> Model::forward_batch(std::span<const SequenceSpan> spans, ForwardObserver* observer) {
  RETURN_IF_ERROR(impl_->check(spans));
  RETURN_IF_ERROR(impl_->admit(spans));
  ForwardPass pass = impl_->begin(observer);
  std::vector<int32_t>& ids = impl_->ids;
  ids.clear();
  for (const SequenceSpan& span : spans) ids.insert(ids.end(), span.ids.begin(), span.ids.end());
  impl_->faults.clear();
  impl_->embed(pass, ids);
  impl_->run_layers(pass);
  ForwardOutput out;
  if (!pass.rows.empty()) {
    if (impl_->weights.dspark) write_dspark_rows(pass, *impl_->weights.dspark);
    out.logits = impl_->compute_logits(pass);
  }
  out.faults = impl_->faults;
  return out;
}

Result<std::span<const float>> Model::forward(std::span<const SequenceSpan> spans, ForwardObserver* observer) {
  ASSIGN_OR_RETURN(const ForwardOutput out, forward_batch(spans, observer));
  if (!out.faults.empty()) {
    return Error(Code::kInternal, "forward: a number after layer {} at position {} is not finite",
                 out.faults[0].layer, out.faults[0].position);
  }
  return out.logits;
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
