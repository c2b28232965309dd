#include "engine/executor.h"

#include <cstring>
#include <exception>

#include "base/checked_math.h"
#include "base/log.h"

namespace deepinfer {

void Batch::clear() {
  before.clear();
  after.clear();
  spans.clear();
  ids.clear();
  blocks.clear();
  samples.clear();
  faults.clear();
  failure.reset();
}

Executor::Executor(Model& model, const EngineOptions& options, int64_t swap_blocks, int64_t swap_states)
    : model_(model),
      trace_(options.trace),
      lane_(trace_ != nullptr ? trace_->add_lane("executor") : 0),
      observer_(options.observer),
      probe_(options.logits_probe),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      sampler_(model.config().vocab_size) {
  block_stride_ = static_cast<int64_t>(round_up(model.memory_plan().kv_block_bytes, 64));
  if (swap_blocks <= 0 || swap_states <= 0) return;
  auto memory = AlignedBuffer::allocate(static_cast<size_t>(swap_blocks * block_stride_));
  if (!memory.ok()) {
    log::warn("no swap memory: {}; pre-empted sequences are computed again", memory.error().message());
    return;
  }
  for (int64_t i = 0; i < swap_states; ++i) {
    auto state = model.make_detached_state();
    if (!state.ok()) break;
    swap_states_.push_back(std::move(*state));
    swap_state_bytes_ += model.memory_plan().sequence_state_bytes;
  }
  if (swap_states_.empty()) return;
  swap_memory_ = std::move(*memory);
  swap_blocks_ = swap_blocks;
}

void Executor::run(Batch& batch) {
  const auto begin = clock_.now();
  batch.faults.clear();
  batch.sample_time = {};
  try {
    if (const Status status = forward(batch); !status.ok()) batch.failure = status.error();
  } catch (const std::exception& exception) {
    batch.failure = Error(Code::kInternal, "step: {}", exception.what());
  }
  batch.execute_time = clock_.now() - begin - batch.sample_time;
}

void Executor::apply(const StateOp& op) {
  switch (op.kind) {
    case StateOp::Kind::kStart:
      model_.start(model_.state(op.to), op.position, op.before, op.cut);
      return;
    case StateOp::Kind::kCopyState:
      if (op.from != op.to) model_.state(op.to).copy_state_from(model_.state(op.from));
      return;
    case StateOp::Kind::kResume: {
      Sequence& state = model_.state(op.to);
      state.length = op.position;
      state.cut = op.cut;
      return;
    }
    case StateOp::Kind::kCopyBlock:
      model_.copy_block(BlockId{op.from}, BlockId{op.to});
      return;
    case StateOp::Kind::kSwapOut:
      swap_states_[static_cast<size_t>(op.to)].copy_state_from(model_.state(op.from));
      for (size_t i = 0; i < op.blocks.size(); ++i) {
        const auto bytes = model_.block_bytes(op.blocks[i]);
        std::memcpy(swap_block(op.swap_blocks[i]), bytes.data(), bytes.size());
      }
      return;
    case StateOp::Kind::kSwapIn:
      model_.state(op.to).copy_state_from(swap_states_[static_cast<size_t>(op.from)]);
      for (size_t i = 0; i < op.blocks.size(); ++i) {
        const auto bytes = model_.block_bytes(op.blocks[i]);
        std::memcpy(bytes.data(), swap_block(op.swap_blocks[i]), bytes.size());
      }
      return;
  }
}

Status Executor::forward(Batch& batch) {
  const auto begin = clock_.now();
  for (const StateOp& op : batch.before) apply(op);
  spans_.clear();
  for (const BatchSpan& span : batch.spans) {
    const std::span<const int32_t> ids =
        span.feeds_last != nullptr
            ? std::span<const int32_t>(&span.feeds_last->last_token, 1)
            : std::span<const int32_t>(batch.ids).subspan(static_cast<size_t>(span.first_id),
                                                          static_cast<size_t>(span.num_ids));
    spans_.push_back({.sequence = &model_.state(static_cast<int32_t>(span.state)),
                      .first_position = span.first_position,
                      .ids = ids,
                      .logits = span.prompt_logprobs != nullptr ? LogitsRows::kAll
                                : span.num_samples > 0          ? LogitsRows::kLast
                                                                : LogitsRows::kNone,
                      .first_block = span.first_block,
                      .new_blocks = std::span<const BlockId>(batch.blocks)
                                        .subspan(static_cast<size_t>(span.first_new_block),
                                                 static_cast<size_t>(span.num_new_blocks))});
  }
  ForwardOutput out;
  if (!spans_.empty()) {
    ASSIGN_OR_RETURN(out, model_.forward_batch(spans_, observer_));
  }
  for (const StateOp& op : batch.after) apply(op);
  batch.faults.assign(out.faults.begin(), out.faults.end());
  const auto computed = clock_.now();

  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  size_t row = 0;
  size_t fault = 0;
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const BatchSpan& span = batch.spans[i];
    const size_t rows = spans_[i].logits == LogitsRows::kNone  ? 0
                        : spans_[i].logits == LogitsRows::kAll ? spans_[i].ids.size()
                                                               : 1;
    const auto logits = out.logits.subspan(row * vocab, rows * vocab);
    row += rows;
    if (fault < batch.faults.size() && batch.faults[fault].span == static_cast<int32_t>(i)) {
      ++fault;
      continue;
    }
    if (span.prompt_logprobs != nullptr) take_prompt_logprobs(batch, span, logits);
    for (int64_t s = 0; s < span.num_samples; ++s) {
      draw(span, logits.last(vocab), batch.samples[static_cast<size_t>(span.first_sample + s)]);
    }
  }
  const auto end = clock_.now();
  batch.sample_time = end - computed;
  if (trace_ != nullptr) {
    trace_->span(lane_, "execute", "model", begin, computed, static_cast<int64_t>(batch.spans.size()));
    trace_->span(lane_, "sample", "sampling", computed, end, static_cast<int64_t>(batch.samples.size()));
  }
  return {};
}

// The row with everything that the answer may not say next at -inf; the row itself where nothing is forbidden.
Result<std::span<const float>> Executor::constrain(AnswerState& answer, std::span<const float> logits) {
  if (answer.constraint == nullptr) return logits;
  if (answer.constraint_state == nullptr) answer.constraint_state = answer.constraint->start();
  mask_.resize(static_cast<size_t>(mask_words(std::ssize(logits))));
  if (!answer.constraint_state->fill_mask(mask_)) return logits;
  masked_.assign(logits.begin(), logits.end());
  apply_mask(mask_, masked_);
  return std::span<const float>(masked_);
}

void Executor::draw(const BatchSpan& span, std::span<const float> logits, Sample& sample) {
  AnswerState& answer = *sample.answer;
  try {
    if (probe_) probe_(answer.request, sample.position, logits);
    const auto allowed = constrain(answer, logits);
    if (!allowed.ok()) {
      sample.result.error = allowed.error();
      return;
    }
    std::span<const float> drawn_from = *allowed;
    if (answer.sampling.adjusts_logits()) {
      adjusted_.assign(allowed->begin(), allowed->end());
      adjust_logits(answer.sampling, answer.counts, adjusted_);
      drawn_from = adjusted_;
    }
    const auto token = sampler_.sample(drawn_from, answer.sampling, sample.position);
    if (!token.ok()) {
      sample.result.error = token.error();
      return;
    }
    if (answer.constraint_state != nullptr) {
      if (const Status accepted = answer.constraint_state->accept(*token); !accepted.ok()) {
        sample.result.error = accepted.error();
        return;
      }
    }
    sample.result.token = answer.last_token = *token;
    if (answer.sampling.adjusts_logits()) ++answer.counts[*token];
    if (answer.top_logprobs) {
      sample.result.logprobs =
          std::make_shared<const TokenLogprobs>(token_logprobs(*allowed, *token, *answer.top_logprobs));
    }
    if (span.prompt_logprobs == &answer) {
      sample.result.prompt_logprobs =
          std::make_shared<const std::vector<TokenLogprobs>>(std::move(answer.prompt_logprobs));
    }
  } catch (const std::exception& exception) {  // memory, mostly: this answer ends, the others live
    sample.result.error = Error(Code::kInternal, "{}", exception.what());
  }
}

void Executor::take_prompt_logprobs(const Batch& batch, const BatchSpan& span, std::span<const float> logits) {
  AnswerState& answer = *span.prompt_logprobs;
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  for (int64_t i = 0; i < span.num_ids; ++i) {
    const int32_t next = i + 1 < span.num_ids ? batch.ids[static_cast<size_t>(span.first_id + i + 1)] : span.next_id;
    if (next < 0) continue;
    answer.prompt_logprobs.push_back(
        token_logprobs(logits.subspan(static_cast<size_t>(i) * vocab, vocab), next, *answer.prompt_logprobs_top));
  }
}

}  // namespace deepinfer
