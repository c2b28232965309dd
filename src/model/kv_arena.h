// The bytes of the caches: 128-token blocks in the canonical layout, shared by all sequences, and the short-lived state
// of each sequence (window rings, compressor rings, the last Engram ids).
//
// Block (docs/spec/model.md 4.7 and 12.1): one group per KV source in layer order; in each group the index keys first
// (all codes, then all scales), then the compressed rows. The same bytes in memory, on disk and on the wire.
//
// Rings are addressed by position modulo their size and have max_step_back spare rows, so that rows of rejected drafts
// are overwritten before anything reads them. Rings of encoder layers hold encoder_back rows more: a state at p then also
// serves as the encoder's state at every position in [p - encoder_back, p] (docs/context-modes.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "cache/block_pool.h"
#include "cache/context.h"
#include "base/checked_math.h"
#include "checkpoint/config.h"
#include "model/engram_hash.h"

namespace deepinfer {

// Offsets of one source layer's group inside a block.
struct BlockGroup {
  int64_t ratio = 0;
  int64_t rows = 0;            // per block: 128 / ratio
  int64_t index_offset = 0;    // codes of all rows, then scales of all rows
  int64_t rows_offset = 0;     // compressed rows
};

struct KvLayout {
  explicit KvLayout(const ModelConfig& config);

  std::vector<BlockGroup> groups;       // in order of kv_source_layer_ids
  int64_t block_bytes = 0;
  int64_t compressed_row_bytes = 0;
  int64_t index_dim = 0;

  WindowGeometry windows;
  int64_t window = 0;                   // windows.window
  int64_t window_row_bytes = 0;
  int64_t num_window_layers = 0;        // backbone layers, then DSpark stages
  int64_t encoder_slots = 0;            // of the first windows.encoder_layers: window + encoder_back + max_step_back
  int64_t decoder_slots = 0;            // window + max_step_back; of DSpark stages, too
  int64_t compressor_slots = 0;         // 2 + drafts
  int64_t compressor_entry_floats = 0;  // value and gate of one token
  int64_t num_pair_groups = 0;          // groups with ratio 2
  int64_t max_step_back = 0;            // drafts + 1, by whoever proposes them

  int64_t windows_bytes() const;         // of one sequence, rounded up to 64
  int64_t sequence_state_bytes() const;
  int64_t num_engram_ids() const { return kEngramTokens - 1 + max_step_back; }

  int64_t slots_of(int64_t window_layer) const {
    return window_layer < windows.encoder_layers ? encoder_slots : decoder_slots;
  }
  // Number of the layer's first slot among all slots of a sequence.
  int64_t first_slot(int64_t window_layer) const {
    const int64_t encoder = std::min(window_layer, windows.encoder_layers);
    return encoder * encoder_slots + (window_layer - encoder) * decoder_slots;
  }
};

// What the rows of a sequence see and write; set when it starts (docs/spec/model.md 12.3, 12.4). All zero: everything.
struct SequenceCut {
  int64_t encoder_first = 0;  // window rows of encoder layers below this position count as absent
  int64_t decoder_first = 0;  // rows below run the encoder half only; decoder windows begin here
  int64_t write_first = 0;    // compressed rows and index keys below it stand already and are not written
  bool mask_decoder = false;  // rows below decoder_first run all layers too; the oracle of the cut
};

// What one sequence owns. Positions are absolute. Owned by the executor thread.
class Sequence {
 public:
  static Result<Sequence> make(const KvLayout& layout, int64_t max_context_tokens);

  // Empties it, to go on at `position`; `ids_before`: compressed Engram ids of the positions just below, oldest first.
  void start(int64_t position, std::span<const int32_t> ids_before, const SequenceCut& cut);
  // Everything but the block table.
  void copy_state_from(const Sequence& other);

  // Window row of a window layer (backbone layer, or num_hidden_layers + stage).
  std::byte* window_row(int64_t window_layer, int64_t position);
  const std::byte* window_row(int64_t window_layer, int64_t position) const;
  // [value, gate] of a token for the `pair_group`-th ratio-2 source.
  float* compressor_entry(int64_t pair_group, int64_t position);
  const float* compressor_entry(int64_t pair_group, int64_t position) const;
  // Compressed id of one of the last num_engram_ids() positions.
  int32_t& engram_id(int64_t position) { return engram_ids_[position % std::ssize(engram_ids_)]; }
  const int32_t& engram_id(int64_t position) const { return engram_ids_[position % std::ssize(engram_ids_)]; }

  int64_t length = 0;        // positions processed; the next one is written at `length`
  int64_t high_water = 0;    // largest length ever: what the rings were last written up to
  SequenceCut cut;
  std::vector<BlockId> blocks;  // block_table: positions [128 i, 128 i + 128)
  bool owns_blocks = false;     // they came from the arena's own pool, not from a caller's block table

 private:
  const KvLayout* layout_ = nullptr;  // Borrowed from the Model, which outlives every Sequence.
  AlignedBuffer state_;
  int64_t windows_bytes_ = 0;
  std::vector<int32_t> engram_ids_;   // ring
};

// Owns the bytes of all blocks. Thread-compatible.
//
// Who owns the ids: either the caller brings block tables (the engine), or the arena hands blocks out of its own pool
// (verification, tests). One model must not be used in both ways at a time.
class KvArena {
 public:
  static Result<KvArena> make(const KvLayout& layout, int64_t num_blocks);

  int64_t num_blocks() const { return pool_.num_blocks(); }
  // Makes room for positions below `length` from the own pool; changes nothing when it fails (kResourceExhausted).
  Status extend(Sequence& sequence, int64_t length);
  void release(Sequence& sequence);

  std::byte* block(BlockId id) { return bytes_.data() + static_cast<int64_t>(id) * block_stride_; }
  const std::byte* block(BlockId id) const { return bytes_.data() + static_cast<int64_t>(id) * block_stride_; }

  // Where row `row` of a group lies for a sequence.
  struct RowAddress {
    std::byte* compressed;
    std::byte* index_codes;
    std::byte* index_scales;
  };
  RowAddress row(const KvLayout& layout, const Sequence& sequence, int64_t group, int64_t row);

 private:
  KvArena() : pool_(0) {}
  BlockPool pool_;
  AlignedBuffer bytes_;
  int64_t block_stride_ = 0;
};

}  // namespace deepinfer
