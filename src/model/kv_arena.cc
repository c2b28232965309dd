#include "model/kv_arena.h"

#include <algorithm>
#include <cstring>

#include "kernels/quantize.h"

namespace deepinfer {

namespace {

constexpr int64_t kLeastDrafts = 5;  // room for other proposers in checkpoints without draft stages

}  // namespace

KvLayout::KvLayout(const ModelConfig& config) {
  const int64_t drafts = std::max(config.dspark_block_size, kLeastDrafts);
  max_step_back = drafts + 1;
  index_dim = config.index_head_dim;
  compressed_row_bytes = deepinfer::compressed_row_bytes(config.head_dim);
  for (const int64_t layer : config.kv_source_layer_ids) {
    BlockGroup group;
    group.ratio = config.compress_ratios[layer];
    group.rows = kBlockTokens / group.ratio;
    group.index_offset = block_bytes;
    group.rows_offset = group.index_offset + group.rows * (index_code_bytes(index_dim) + index_scale_bytes(index_dim));
    block_bytes = group.rows_offset + group.rows * compressed_row_bytes;
    if (group.ratio == 2) ++num_pair_groups;
    groups.push_back(group);
  }
  window = config.sliding_window;
  window_row_bytes = deepinfer::window_row_bytes(config.head_dim);
  num_window_layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  windows = {.window = window,
             // A tail shorter than the rings would leave holes in them after a step back.
             .decoder_tail = std::max(kDecoderTail, window + max_step_back),
             .step_back = max_step_back,
             .encoder_layers = config.first_decoder_layer(),
             .decoder_layers = config.num_hidden_layers - config.first_decoder_layer()};
  windows.encoder_back = windows.decoder_tail + kBlockTokens;  // so far that some block border is always within it
  encoder_slots = window + windows.encoder_back + max_step_back;
  decoder_slots = window + max_step_back;
  compressor_slots = 2 + drafts;
  compressor_entry_floats = 2 * config.head_dim;
}

int64_t KvLayout::windows_bytes() const {
  return static_cast<int64_t>(round_up(first_slot(num_window_layers) * window_row_bytes, 64));
}

int64_t KvLayout::sequence_state_bytes() const {
  return windows_bytes() + num_pair_groups * compressor_slots * compressor_entry_floats * static_cast<int64_t>(sizeof(float));
}

Result<Sequence> Sequence::make(const KvLayout& layout, int64_t max_context_tokens) {
  Sequence sequence;
  sequence.layout_ = &layout;
  ASSIGN_OR_RETURN(sequence.state_, AlignedBuffer::allocate(static_cast<size_t>(layout.sequence_state_bytes())));
  sequence.windows_bytes_ = layout.windows_bytes();
  sequence.engram_ids_.resize(static_cast<size_t>(layout.num_engram_ids()));
  sequence.blocks.reserve(ceil_div(max_context_tokens, kBlockTokens));
  return sequence;
}

void Sequence::start(int64_t position, std::span<const int32_t> ids_before, const SequenceCut& new_cut) {
  length = high_water = position;
  cut = new_cut;
  for (size_t i = 0; i < ids_before.size(); ++i) {
    engram_id(position - std::ssize(ids_before) + static_cast<int64_t>(i)) = ids_before[i];
  }
}

void Sequence::copy_state_from(const Sequence& other) {
  length = other.length;
  high_water = other.high_water;
  cut = other.cut;
  std::memcpy(state_.data(), other.state_.data(), state_.size());
  engram_ids_ = other.engram_ids_;
}

const std::byte* Sequence::window_row(int64_t window_layer, int64_t position) const {
  const int64_t slot = layout_->first_slot(window_layer) + position % layout_->slots_of(window_layer);
  return state_.data() + slot * layout_->window_row_bytes;
}

std::byte* Sequence::window_row(int64_t window_layer, int64_t position) {
  return const_cast<std::byte*>(std::as_const(*this).window_row(window_layer, position));
}

const float* Sequence::compressor_entry(int64_t pair_group, int64_t position) const {
  const int64_t slot = pair_group * layout_->compressor_slots + position % layout_->compressor_slots;
  return reinterpret_cast<const float*>(state_.data() + windows_bytes_) + slot * layout_->compressor_entry_floats;
}

float* Sequence::compressor_entry(int64_t pair_group, int64_t position) {
  return const_cast<float*>(std::as_const(*this).compressor_entry(pair_group, position));
}

Result<KvArena> KvArena::make(const KvLayout& layout, int64_t num_blocks) {
  KvArena arena;
  arena.pool_ = BlockPool(num_blocks);
  arena.block_stride_ = static_cast<int64_t>(round_up(layout.block_bytes, 64));
  ASSIGN_OR_RETURN(arena.bytes_, AlignedBuffer::allocate(static_cast<size_t>(num_blocks * arena.block_stride_)));
  return arena;
}

Status KvArena::extend(Sequence& sequence, int64_t length) {
  sequence.owns_blocks = true;
  const auto needed = static_cast<int64_t>(ceil_div(length, kBlockTokens)) - std::ssize(sequence.blocks);
  if (needed > pool_.num_free()) {
    return Error(Code::kResourceExhausted, "KV arena: {} blocks needed for {} positions, {} of {} free", needed,
                 length, pool_.num_free(), pool_.num_blocks());
  }
  for (int64_t i = 0; i < needed; ++i) {
    ASSIGN_OR_RETURN(const BlockId block, pool_.allocate());
    sequence.blocks.push_back(block);
  }
  return {};
}

void KvArena::release(Sequence& sequence) {
  if (sequence.owns_blocks) {
    for (const BlockId block : sequence.blocks) pool_.release(block);
  }
  sequence.blocks.clear();
  sequence.owns_blocks = false;
}

KvArena::RowAddress KvArena::row(const KvLayout& layout, const Sequence& sequence, int64_t group_index, int64_t row) {
  const BlockGroup& group = layout.groups[group_index];
  std::byte* bytes = block(sequence.blocks[row / group.rows]);
  const int64_t slot = row % group.rows;
  const int64_t code_bytes = index_code_bytes(layout.index_dim), scale_bytes = index_scale_bytes(layout.index_dim);
  std::byte* keys = bytes + group.index_offset;
  return {bytes + group.rows_offset + slot * layout.compressed_row_bytes, keys + slot * code_bytes,
          keys + group.rows * code_bytes + slot * scale_bytes};
}

}  // namespace deepinfer
