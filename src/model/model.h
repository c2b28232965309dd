// The forward pass of DeepSeek-V4.1 over positions of sequences, and the memory their caches live in.
//
// One code path serves prefill, chunks, decode steps and the verification of drafts: a call processes `ids` at positions
// first_position, first_position + 1, ... of each sequence (docs/spec/model.md 2.1). A token's logits are a function
// of the checkpoint and the ids before it, bit for bit: chunk size, neighbours, threads and rejected drafts do not count.
//
// Nothing is ever rolled back. A sequence may step back by at most max_step_back() positions and overwrite them: window
// rings and compressor rings have that many spare rows, compressed rows and index keys are addressed by position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "cache/block_pool.h"
#include "cache/context.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "kernels/ops.h"
#include "model/weights_cache.h"

namespace deepinfer {

struct ModelOptions {
  std::string isa = "auto";              // a table of kernels/ops.h
  Numerics numerics = Numerics::kExact;
  int num_threads = 1;
  int64_t max_context_tokens = 4096;     // longest sequence
  int64_t max_sequences = 1;             // states (windows and rings), running and kept ones together
  int64_t num_blocks = 0;                // KV blocks; 0: enough for max_sequences of the longest
  int64_t max_batch_tokens = 256;        // rows of one forward call; sizes the workspaces
};

// What load() allocates.
struct MemoryPlan {
  uint64_t weight_bytes = 0;
  uint64_t kv_block_bytes = 0;           // of one 128-token block, all source layers
  uint64_t kv_blocks = 0;
  uint64_t sequence_state_bytes = 0;     // windows and rings of one sequence
  uint64_t sequence_states = 0;
  uint64_t workspace_bytes = 0;
  uint64_t rope_bytes = 0;

  uint64_t total_bytes() const {
    return weight_bytes + kv_block_bytes * kv_blocks + sequence_state_bytes * sequence_states + workspace_bytes +
           rope_bytes;
  }
};

struct KvLayout;
class Sequence;  // windows, rings and block table of one sequence (kv_arena.h); owned by the model
struct SequenceCut;

enum class LogitsRows { kNone, kLast, kAll };

// Positions of one sequence to process in a call.
struct SequenceSpan {
  Sequence* sequence = nullptr;
  int64_t first_position = 0;            // length of the sequence, or up to max_step_back() less
  std::span<const int32_t> ids;          // at least one, each below vocab_size
  LogitsRows logits = LogitsRows::kLast;  // rows below the sequence's decoder_first give none
  // The block table from entry `first_block` on, for callers that own the ids of blocks; empty: as it is.
  int64_t first_block = 0;
  std::span<const BlockId> new_blocks = {};
};

// A row whose numbers stopped being finite: the first of its span by position, and the layer after which it
// was seen (num_hidden_layers: in the logits). The rows before it are sound.
struct SpanFault {
  int32_t span = 0;
  int64_t layer = 0;
  int64_t position = 0;
};

// Views stay valid until the next forward or draft.
struct ForwardOutput {
  std::span<const float> logits;         // the rows wanted, [rows][vocab], spans in order
  std::span<const SpanFault> faults;     // ascending by span; the logits of such a span mean nothing
};

// Sees, and may replace, what flows between the parts of the forward pass. For verification against golden data; the
// decode path passes none. What is observed is what is served: the same phases run, and only where they stop to be
// looked at differs. All rows are those of the call, in order.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Whether values() or indices() of this name are to be called.
  virtual bool wants(std::string_view /*name*/) const { return true; }
  // Whether the two calls below are to be made. What they leave in their spans is what the pass goes on with.
  virtual bool replaces() const { return false; }
  // Input of a layer before Engram: h [rows][4][hidden], fold weights pre [rows][4]. Layer num_hidden_layers: of the
  // head.
  virtual void layer_input(int64_t /*layer*/, std::span<Bf16> /*h*/, std::span<float> /*pre*/) {}
  // Result of a layer's attention, [rows][hidden], after "attn_out" was seen.
  virtual void attention_output(int64_t /*layer*/, std::span<Bf16> /*y*/) {}
  // The ops of a program that is about to run, in order (docs/model.md), under the name "ops".
  virtual void ops(std::span<const std::string_view> /*names*/) {}
  // Named results: attn_in, attn_out, ffn_in, ffn_out, engram_out, h_out, main_hidden (BF16; the last at layer
  // num_hidden_layers), pre_out, route_w, compressor_value, compressor_gate (F32; the pair inputs of ratio-2 sources),
  // window_row (BF16, before it is packed; DSpark stage s at layer num_hidden_layers + s), compressed_row, index_key
  // (the same, of the compressed rows that the call finished), index_query [rows][heads][dim], index_weights
  // [rows][heads] (F32, as the scores take them), candidate_margin (F32: the last kept block's score less the first one
  // left out; infinite where nothing was left out).
  virtual void values(std::string_view /*name*/, int64_t /*layer*/, std::span<const Bf16> /*rows*/) {}
  virtual void values(std::string_view /*name*/, int64_t /*layer*/, std::span<const float> /*rows*/) {}
  // route_idx [rows][experts], engram_rows [rows][columns], topk [rows][index_topk] (-1 = unused), candidates
  // [rows][candidate_topk_blocks] (-1 = unused; a row with at most index_topk visible rows has none of its own).
  virtual void indices(std::string_view /*name*/, int64_t /*layer*/, std::span<const int64_t> /*rows*/) {}
};

// What a draft pass begins with: `next_id` is the token chosen for position length(sequence).
struct DraftStart {
  Sequence* sequence = nullptr;
  int32_t next_id = 0;
};

// One draft pass of DSpark (docs/spec/model.md 9.3): dspark_block_size drafts for each start. Views stay valid until
// the next forward or draft.
struct DraftOutput {
  std::span<const int32_t> ids;       // [starts][block]
  std::span<const float> logits;      // [starts][block][vocab], Markov term included
  std::span<const float> confidence;  // [starts][block]; raw, before any sigmoid
};

// Chooses the draft for an absolute position of a start (by its index) from logits [vocab]; greedy is argmax.
using DraftChooser = std::function<int32_t(size_t start, int64_t position, std::span<const float> logits)>;

// Owns weights, arena, workspaces and compute threads. One thread calls forward, draft, make_sequence and release at a
// time (the executor thread); the const getters are thread-safe.
class Model {
 public:
  // engram_token_map: class of each id below vocab_size (tokenizer/tokenizer.h), one entry per id. `cache`: where packed
  // weights are kept on disk; null keeps none.
  static Result<std::unique_ptr<Model>> load(const Checkpoint& checkpoint, std::vector<int32_t> engram_token_map,
                                             const ModelOptions& options, const ProgressFunction& progress = {},
                                             const WeightsCache* cache = nullptr);
  // What load() would allocate: from config.json and the headers of the shards, in milliseconds.
  static Result<MemoryPlan> plan(const Checkpoint& checkpoint, const ModelOptions& options);
  ~Model();

  const ModelConfig& config() const;
  const ModelOptions& options() const;
  const MemoryPlan& memory_plan() const;
  bool weights_from_cache() const;
  std::string_view isa() const;
  std::string_view summation_order() const;  // its name, for the fingerprint of what is stored
  const WindowGeometry& windows() const;
  int64_t max_step_back() const;         // the most drafts behind a token, and 1
  // Of the compute threads so far (base/thread_pool.h); not while a call runs.
  uint64_t num_regions() const;
  uint64_t num_waits() const;

  // An empty sequence; kResourceExhausted when max_sequences exist. Destroying it gives its blocks back.
  struct SequenceDeleter {
    Model* model = nullptr;
    void operator()(Sequence* sequence) const;
  };
  using SequencePtr = std::unique_ptr<Sequence, SequenceDeleter>;
  Result<SequencePtr> make_sequence();
  static int64_t length(const Sequence& sequence);  // positions processed

  // For a caller that keeps count of states and blocks itself (the engine): state i < max_sequences. Such a caller
  // never uses make_sequence, and brings every block in the spans.
  Sequence& state(int64_t i);
  // Empties a state to go on at `position`; `ids_before`: tokens just before it, at least the last three if there are, and
  // at most `position` of them (CHECKed). The rings stay, so a copied state goes on anywhere that they still reach.
  void start(Sequence& sequence, int64_t position, std::span<const int32_t> ids_before, const SequenceCut& cut);
  const KvLayout& layout() const;  // for model/sequence_state.h: states as bytes
  void copy_block(BlockId from, BlockId to);
  // Raw bytes, for swapping.
  std::span<std::byte> block_bytes(BlockId block);

  // Processes all spans in one pass; the spans are of different sequences. kInvalidArgument for a bad span,
  // kResourceExhausted when the arena is full (nothing was changed in either case).
  Result<ForwardOutput> forward_batch(std::span<const SequenceSpan> spans, ForwardObserver* observer = nullptr);
  // The same for callers that need every row: kInternal when a row is not finite (names layer and position).
  Result<std::span<const float>> forward(std::span<const SequenceSpan> spans, ForwardObserver* observer = nullptr);

  // Drafts for at most max_drafting() sequences in one pass. Changes nothing in them; what is drafted for one
  // does not depend on the others. kInvalidArgument for an empty sequence or a bad id, kUnimplemented when
  // the checkpoint has no DSpark stages.
  Result<DraftOutput> draft(std::span<const DraftStart> starts, const DraftChooser& choose);
  int64_t max_drafting() const;  // max_batch_tokens / dspark_block_size; 0 without DSpark

  // For golden checks: rows that the caches hold, unpacked to fp32.
  std::vector<float> compressed_row(const Sequence& sequence, int64_t layer, int64_t row) const;
  std::vector<float> index_key(const Sequence& sequence, int64_t layer, int64_t row) const;
  // Window row of a backbone layer, or of DSpark stage s at layer num_hidden_layers + s.
  std::vector<float> window_row(const Sequence& sequence, int64_t layer, int64_t position) const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
