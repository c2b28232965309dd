// The forward pass from end to end (docs/spec/model.md 0.2): embed, layers, final fold and norm, head.
#include "model/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/quantize.h"
#include "model/model_impl.h"

namespace deepinfer {

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

int64_t planned_blocks(const ModelOptions& options) {
  const auto context_blocks = static_cast<int64_t>(ceil_div(options.max_context_tokens, kBlockTokens));
  return options.num_blocks > 0 ? options.num_blocks : options.max_sequences * context_blocks;
}

// Drafts look past the end.
int64_t plain_positions(const ModelConfig& config, const ModelOptions& options) {
  return options.max_context_tokens + config.dspark_block_size;
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
  ASSIGN_OR_RETURN(KvArena arena, KvArena::make(*layout, planned_blocks(options)));
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
  ASSIGN_OR_RETURN(impl->plain_rope,
                   RopeTable::make(plain_frequencies(config.rope_theta, rotary), plain_positions(config, options)));
  ASSIGN_OR_RETURN(impl->compress_rope,
                   RopeTable::make(yarn_frequencies(config.compress_rope_theta, rotary, config.rope_scaling),
                                   options.max_context_tokens));
  ASSIGN_OR_RETURN(impl->weights, load_weights(checkpoint, impl->layers, options.num_threads, progress, cache));
  impl->pool = std::make_unique<ThreadPool>(options.num_threads, ThreadPool::Pinning::kOneCorePerThread);
  impl->kernel = {impl->pool.get(), impl->workspace.kernel_scratch.data(), impl->workspace.kernel_scratch_bytes};
  Workspace& ws = impl->workspace;
  impl->program.streams = {ws.h.at(), ws.pre.at(), ws.mix.at(),
                           ws.x.at(), ws.y.at(),   {ws.x_paired.at(), ws.x_quantized.at(), ws.x_int8.at()}};
  impl->backend.emplace(
      BackendParts{impl->config, *impl->layout, impl->arena, *ops, impl->kernel, impl->workspace, impl->weights,
                   impl->engram_hashes, impl->plain_rope, impl->compress_rope, options.numerics, impl->engram_pad_class,
                   [impl = impl.get()](const Row& row, int64_t layer) { impl->note_fault(row, layer); }});
  impl->rows.reserve(static_cast<size_t>(options.max_batch_tokens));
  impl->decoder_rows.reserve(static_cast<size_t>(options.max_batch_tokens));
  for (int64_t i = 0; i < options.max_sequences; ++i) {
    ASSIGN_OR_RETURN(Sequence state, Sequence::make(*impl->layout, options.max_context_tokens));
    impl->states.push_back(std::make_unique<Sequence>(std::move(state)));
  }
  for (auto state = impl->states.rbegin(); state != impl->states.rend(); ++state) {
    impl->free_states.push_back(state->get());
  }
  ASSIGN_OR_RETURN(impl->plan, plan(checkpoint, options));
  impl->plan.weight_bytes = impl->weights.size_bytes;
  impl->plan.workspace_bytes = impl->workspace.size_bytes();
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Result<MemoryPlan> Model::plan(const Checkpoint& checkpoint, const ModelOptions& options) {
  const ModelConfig& config = checkpoint.config();
  RETURN_IF_ERROR(check_options(config, options));
  ASSIGN_OR_RETURN(const auto layers, make_layer_plan(config));
  const KvLayout layout(config);
  return MemoryPlan{
      .weight_bytes = packed_weight_bytes(checkpoint, layers),
      .kv_block_bytes = static_cast<uint64_t>(layout.block_bytes),
      .kv_blocks = static_cast<uint64_t>(planned_blocks(options)),
      .sequence_state_bytes = static_cast<uint64_t>(layout.sequence_state_bytes()),
      .sequence_states = static_cast<uint64_t>(options.max_sequences),
      .workspace_bytes = Workspace::planned_bytes(config, layout, options.max_batch_tokens, options.max_context_tokens,
                                                  options.num_threads, options.numerics),
      .rope_bytes = static_cast<uint64_t>((plain_positions(config, options) + options.max_context_tokens) *
                                          config.qk_rope_head_dim) *
                    sizeof(float)};
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

const KvLayout& Model::layout() const { return *impl_->layout; }

void Model::copy_block(BlockId from, BlockId to) {
  std::memcpy(impl_->arena.block(to), impl_->arena.block(from), static_cast<size_t>(impl_->layout->block_bytes));
}

std::span<std::byte> Model::block_bytes(BlockId block) {
  return {impl_->arena.block(block), static_cast<size_t>(impl_->layout->block_bytes)};
}

int64_t Model::length(const Sequence& sequence) { return sequence.length; }

// ---- one call --------------------------------------------------------------------------------------------------------

ForwardPass Model::Impl::begin(ForwardObserver* observer) {
  return {config, *layout, workspace, *backend, local_experts, observer, rows, program};
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

void embed(ForwardPass& pass) {
  pass.add(Embed{pass.num_rows(), pass.ws.ids.at(), pass.ws.h.at(), pass.ws.pre.at()}, {});
}

void Model::Impl::replace_input(ForwardPass& pass, int64_t layer, Left& left) {
  if (!pass.is_replaced()) return;
  const auto rows = static_cast<size_t>(pass.num_rows());
  pass.run();
  pass.observer->layer_input(layer, {pass.ws.h.data(), rows * 4 * static_cast<size_t>(config.hidden_size)},
                             {pass.ws.pre.data(), rows * 4});
  left.begun = false;  // with other numbers
}

// The layer's attention, between two looks of an observer who may put another result in its place.
Left Model::Impl::run_attention(ForwardPass& pass, int64_t layer, Phase x, Phase compressed) {
  Workspace& ws = pass.ws;
  const int64_t count = pass.num_rows() * config.hidden_size;
  std::vector<Bf16> h;
  if (pass.is_replaced()) h.assign(ws.h.data(), ws.h.data() + 4 * count);
  const auto block = static_cast<Block>(layer);
  const Left left = attention(pass, layers[layer], block, x, compressed);
  pass.observe("attn_out", layer, ws.y.data(), count);
  if (pass.is_replaced()) {
    pass.run();
    pass.observer->attention_output(layer, {ws.y.data(), static_cast<size_t>(count)});
    std::copy(h.begin(), h.end(), ws.h.data());
    const HcRef next = {block, Sublayer::kFfn};
    backend->leave_sublayer(pass.leave(&next), pass.num_rows(), {0, config.hidden_size});
  }
  return left;
}

void Model::Impl::run_layers(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  const int64_t first_decoder_layer = config.first_decoder_layer();
  Left left;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerPlan& plan = layers[layer];
    const auto block = static_cast<Block>(layer);
    replace_input(pass, layer, left);
    if (plan.engram) engram(pass, *plan.engram, block);
    if (plan.dspark_target) capture_target(pass, *plan.dspark_target);

    Phase x = enter_sublayer(pass, {block, Sublayer::kAttention}, left);
    pass.observe("attn_in", layer, ws.x.data(), pass.num_rows() * config.hidden_size);
    const Phase compressed = plan.owns_kv ? compress(pass, plan, block, x) : Program::kNone;
    if (layer == first_decoder_layer) {
      pass.run();
      drop_encoder_rows(pass, decoder_rows);
      if (pass.rows.empty()) return;
    }
    left = run_attention(pass, layer, x, compressed);

    const int64_t rows = pass.num_rows(), count = rows * config.hidden_size;
    x = enter_sublayer(pass, {block, Sublayer::kFfn}, left);
    pass.observe("ffn_in", layer, ws.x.data(), count);
    // The next mix can be begun where nothing comes between.
    const bool goes_on = layer + 1 < config.num_hidden_layers && !layers[layer + 1].engram;
    const HcRef next = {block + 1, Sublayer::kAttention};
    left = experts(pass, block, x, goes_on ? &next : nullptr);
    pass.add(StoreWindow{layer, ws.window_rows.at()}, {});
    pass.add(CheckFinite{rows, layer, ws.pre.at()}, {});
    pass.run();
    pass.observe("ffn_out", layer, ws.y.data(), count);
    pass.observe("h_out", layer, ws.h.data(), 4 * count);
    pass.observe("pre_out", layer, ws.pre.data(), 4 * rows);
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

Phase head(ForwardPass& pass, const NormRef& norm, int64_t rows, Ref<Bf16> x, Phase made) {
  Workspace& ws = pass.ws;
  const int64_t hidden = pass.config.hidden_size;
  const Phase normed = pass.add(
      NormRows{norm, rows, hidden, x, ws.y.at(), {.paired = ws.paired.at(), .quantized = {}, .int8 = {}}}, {made});
  const InputRows operand = {ws.paired.at(), {}, rows, hidden};
  const MatrixRef weights = {kWholeModel, MatrixName::kHead};
  return pass.add(Products{{Product{weights, operand, ws.logits.at(), {}, pass.config.vocab_size}}, 1}, {normed});
}

std::span<const float> Model::Impl::compute_logits(ForwardPass& pass) {
  Workspace& ws = pass.ws;
  Left left;
  replace_input(pass, config.num_hidden_layers, left);
  int64_t wanted = 0;
  for (int64_t row = 0; row < pass.num_rows(); ++row) {
    if (pass.rows[row].wants_logits) ws.logit_rows[wanted++] = static_cast<int32_t>(row);
  }
  if (wanted == 0) return {};
  const Ref<int32_t> index = ws.logit_rows.at();
  const Phase folded = pass.add(FoldRows{pass.num_rows()}, {});
  const Phase gathered = pass.add(GatherRows{wanted, config.hidden_size, index, ws.x.at(), ws.y.at()}, {folded});
  head(pass, {kWholeModel, NormName::kFinal}, wanted, ws.y.at(), gathered);
  pass.add(CheckLogits{wanted, index, ws.logits.at()}, {});
  pass.run();
  return {ws.logits.data(), static_cast<size_t>(wanted * config.vocab_size)};
}

Result<ForwardOutput> Model::forward_batch(std::span<const SequenceSpan> spans, ForwardObserver* observer) {
  RETURN_IF_ERROR(impl_->check(spans));
  RETURN_IF_ERROR(impl_->admit(spans));
  ForwardPass pass = impl_->begin(observer);
  int32_t* ids = impl_->workspace.ids.data();
  for (const SequenceSpan& span : spans) ids = std::copy(span.ids.begin(), span.ids.end(), ids);
  impl_->faults.clear();
  embed(pass);
  impl_->run_layers(pass);
  ForwardOutput out;
  if (!pass.rows.empty()) {
    if (impl_->weights.dspark) write_dspark_rows(pass);
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
