// Runs batches on the model: moves, forward pass, draws. The only caller of the model once the engine runs.
#pragma once

#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/trace.h"
#include "engine/batch.h"
#include "sampling/sampling.h"
#include "speculate/calibration.h"
#include "speculate/proposer.h"

namespace deepinfer {

// Owned by one thread at a time (the executor's, or the engine's at depth 0).
class Executor {
 public:
  // Borrows the model and the options' trace and observer. The swap memory that the system refuses is absent:
  // num_swap_blocks() says what there is.
  Executor(Model& model, const EngineOptions& options, int64_t swap_blocks, int64_t swap_states);

  int64_t num_swap_blocks() const { return swap_blocks_; }
  int64_t num_swap_states() const { return std::ssize(swap_states_); }
  uint64_t swap_bytes() const { return swap_memory_.size() + swap_state_bytes_; }

  // Drafts behind a token that a step can verify; 0: speculation is off.
  int64_t max_drafts() const { return max_drafts_; }
  bool wants_history() const { return proposer_ != nullptr && proposer_->wants_history(); }

  // Fills the answer part of the batch. Never throws: what is thrown in it becomes its failure.
  void run(Batch& batch);

 private:
  void apply(const StateOp& op);
  Status forward(Batch& batch);
  Result<std::span<const float>> constrain(AnswerState& answer, std::span<const float> logits);
  bool draw_span(Batch& batch, const BatchSpan& span, std::span<const float> logits, int64_t sound_rows);
  void draw(const BatchSpan& span, std::span<const float> logits, Sample& sample, int64_t draft);
  Result<int32_t> choose(AnswerState& answer, std::span<const float> logits, int64_t position, int64_t draft);
  void propose(Batch& batch);
  void take_prompt_logprobs(const Batch& batch, const BatchSpan& span, std::span<const float> logits);
  std::span<std::byte> swapped_state(int32_t place, const StateExtent& extent);
  std::byte* swap_block(BlockId block) { return swap_memory_.data() + static_cast<int64_t>(block) * block_stride_; }

  Model& model_;
  Trace* const trace_;
  const int lane_;
  ForwardObserver* const observer_;
  const LogitsProbe probe_;
  const Clock& clock_;
  Sampler sampler_;
  std::vector<uint32_t> mask_;   // sized by the first constrained row
  std::vector<float> masked_, adjusted_;
  std::vector<SequenceSpan> spans_;

  std::unique_ptr<Proposer> proposer_;  // null: no drafts
  int64_t max_drafts_ = 0;
  const SpeculationSampling speculation_sampling_;
  Masses target_;
  std::vector<DraftTask> draft_tasks_;
  CalibrationError calibration_error_;

  int64_t block_stride_ = 0;
  int64_t swap_blocks_ = 0;
  AlignedBuffer swap_memory_;
  std::vector<AlignedBuffer> swap_states_;  // serialized, model/sequence_state.h
  uint64_t swap_state_bytes_ = 0;
};

}  // namespace deepinfer
