#include "engine/executor.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/checked_math.h"
#include "base/log.h"
#include "model/sequence_state.h"
#include "speculate/verification.h"

namespace deepinfer {
namespace {

bool is_stop(const AnswerState& answer, int32_t token) {
  return std::find(answer.stop_ids.begin(), answer.stop_ids.end(), token) != answer.stop_ids.end();
}

std::unique_ptr<Proposer> make_proposer(Model& model, const SpeculationOptions& options) {
  const ProposerOptions shape = {std::min(options.max_drafts, model.max_step_back() - 1), options.sampling,
                                 options.temperatures};
  if (shape.max_drafts <= 0) return nullptr;
  if (options.custom) return options.custom(model);
  switch (options.proposer) {
    case DraftProposer::kOff:
      return nullptr;
    case DraftProposer::kDspark:
      return make_dspark_proposer(model, shape);
    case DraftProposer::kNgram:
      return make_ngram_proposer(shape);
  }
  return nullptr;
}

}  // namespace

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
      sampler_(model.config().vocab_size),
      proposer_(make_proposer(model, options.speculation)),
      max_drafts_(proposer_ == nullptr ? 0
                                       : std::min(options.speculation.max_drafts, model.max_step_back() - 1)),
      speculation_sampling_(options.speculation.sampling) {
  block_stride_ = static_cast<int64_t>(round_up(model.memory_plan().kv_block_bytes, 64));
  if (swap_blocks <= 0 || swap_states <= 0) return;
  auto memory = AlignedBuffer::allocate(static_cast<size_t>(swap_blocks * block_stride_));
  if (!memory.ok()) {
    log::warn("no swap memory: {}; pre-empted sequences are computed again", memory.error().message());
    return;
  }
  const int64_t state_bytes = serialized_state_bytes(model.layout(), largest_state_extent(model.layout()));
  for (int64_t i = 0; i < swap_states; ++i) {
    auto state = AlignedBuffer::allocate(static_cast<size_t>(state_bytes));
    if (!state.ok()) break;
    swap_states_.push_back(std::move(*state));
    swap_state_bytes_ += static_cast<uint64_t>(state_bytes);
  }
  if (swap_states_.empty()) return;
  swap_memory_ = std::move(*memory);
  swap_blocks_ = swap_blocks;
}

void Executor::run(Batch& batch) {
  const auto begin = clock_.now();
  batch.faults.clear();
  batch.sample_time = batch.draft_time = {};
  batch.num_drafting = batch.num_drafted = 0;
  try {
    if (const Status status = forward(batch); !status.ok()) batch.failure = status.error();
  } catch (const std::exception& exception) {
    batch.failure = Error(Code::kInternal, "step: {}", exception.what());
  }
  batch.execute_time = clock_.now() - begin - batch.sample_time - batch.draft_time;
}

std::span<std::byte> Executor::swapped_state(int32_t place, const StateExtent& extent) {
  AlignedBuffer& memory = swap_states_[static_cast<size_t>(place)];
  return {memory.data(), static_cast<size_t>(serialized_state_bytes(model_.layout(), extent))};
}

void Executor::apply(const StateOp& op) {
  switch (op.kind) {
    case StateOp::Kind::kStart:
      model_.start(model_.state(op.to), op.position, op.before, op.cut);
      return;
    case StateOp::Kind::kCopyState:
      if (op.from != op.to) model_.state(op.to).copy_state_from(model_.state(op.from));
      return;
    case StateOp::Kind::kCopyBlock:
      model_.copy_block(BlockId{op.from}, BlockId{op.to});
      return;
    case StateOp::Kind::kSwapOut:
      serialize_state(model_.layout(), model_.state(op.from), op.extent, swapped_state(op.to, op.extent));
      for (size_t i = 0; i < op.blocks.size(); ++i) {
        const auto bytes = model_.block_bytes(op.blocks[i]);
        std::memcpy(swap_block(op.swap_blocks[i]), bytes.data(), bytes.size());
      }
      return;
    case StateOp::Kind::kSwapIn:
      CHECK(restore_state(model_.layout(), swapped_state(op.from, op.extent), model_.state(op.to)).ok());
      model_.state(op.to).cut = op.cut;
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
                      .logits = span.prompt_logprobs != nullptr || span.num_drafts > 0 ? LogitsRows::kAll
                                : span.num_samples > 0                                 ? LogitsRows::kLast
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
    const bool faulty = fault < batch.faults.size() && batch.faults[fault].span == static_cast<int32_t>(i);
    if (faulty && span.num_drafts == 0) {
      ++fault;
      continue;
    }
    if (span.prompt_logprobs != nullptr) take_prompt_logprobs(batch, span, logits);
    const bool ended_early = draw_span(
        batch, span, logits, faulty ? batch.faults[fault].position - span.first_position : span.num_ids);
    if (!faulty) continue;
    if (ended_early) {
      ++fault;
    } else {  // the fault lies in a draft that was wrong anyway
      batch.faults.erase(batch.faults.begin() + static_cast<int64_t>(fault));
    }
  }
  const auto end = clock_.now();
  batch.sample_time = end - computed;
  if (proposer_ != nullptr) propose(batch);
  if (trace_ != nullptr) {
    trace_->span(lane_, "execute", "model", begin, computed, static_cast<int64_t>(batch.spans.size()));
    trace_->span(lane_, "sample", "sampling", computed, end, static_cast<int64_t>(batch.samples.size()));
    if (batch.num_drafting > 0)
      trace_->span(lane_, "draft", "speculate", end, end + batch.draft_time, batch.num_drafting);
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

// Rows of drafts give tokens one after another, as single steps would: a row counts only if everything before
// it was right and the answer goes on, so a constraint or a penalty never sees a token that is taken back.
// True: the next row was needed, but only the first `sound_rows` are sound.
bool Executor::draw_span(Batch& batch, const BatchSpan& span, std::span<const float> logits,
                         int64_t sound_rows) {
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  const auto samples =
      std::span(batch.samples)
          .subspan(static_cast<size_t>(span.first_sample), static_cast<size_t>(span.num_samples));
  if (span.num_drafts == 0) {
    for (Sample& sample : samples) draw(span, logits.last(vocab), sample, -1);
    return false;
  }
  AnswerState& answer = *samples[0].answer;
  const auto drafts = std::span(batch.ids).subspan(static_cast<size_t>(span.first_id + 1),
                                                   static_cast<size_t>(span.num_drafts));
  int64_t drawn = 0, accepted = 0;
  bool goes_on = true;
  while (goes_on && drawn < sound_rows) {
    const int64_t k = drawn++;
    Sample& sample = samples[static_cast<size_t>(k)];
    const bool has_draft = k < span.num_drafts;
    draw(span, logits.subspan(static_cast<size_t>(k) * vocab, vocab), sample, has_draft ? k : -1);
    const bool right =
        has_draft && !sample.result.error && sample.result.token == drafts[static_cast<size_t>(k)];
    sample.accepted = right;
    accepted += right ? 1 : 0;
    if (has_draft && !sample.result.error)
      calibration_error_.add(answer.draft.scores[static_cast<size_t>(k)], right);
    goes_on = right && !is_stop(answer, sample.result.token);
  }
  model_.state(static_cast<int32_t>(span.state)).length = span.first_position + std::max<int64_t>(1, drawn);
  proposer_->learn(answer.draft, span.num_drafts, accepted);
  batch.calibration_error = calibration_error_.value();
  return goes_on;
}

// `draft`: which one of the answer's drafts is verified by this row; -1: none.
Result<int32_t> Executor::choose(AnswerState& answer, std::span<const float> logits, int64_t position,
                                 int64_t draft) {
  const SamplingParams& params = answer.sampling;
  if (draft < 0 || speculation_sampling_ == SpeculationSampling::kDeterministic) {
    return sampler_.sample(logits, params, position);
  }
  RETURN_IF_ERROR(sampler_.masses(logits, params, 0, target_));
  const auto k = static_cast<size_t>(draft);
  return verify_by_rejection(target_, answer.draft.masses.empty() ? nullptr : &answer.draft.masses[k],
                             answer.draft.ids[k], random_word(params.seed, position, Purpose::kAccept),
                             random_word(params.seed, position, Purpose::kResidual))
      .token;
}

void Executor::draw(const BatchSpan& span, std::span<const float> logits, Sample& sample, int64_t draft) {
  AnswerState& answer = *sample.answer;
  sample.drawn = true;
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
    const auto token = choose(answer, drawn_from, sample.position, draft);
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
    if (wants_history()) answer.history.push_back(*token);
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

// One pass for all answers of the step that go on. A draft may be missing, so what goes wrong here ends
// nobody.
void Executor::propose(Batch& batch) {
  const auto begin = clock_.now();
  draft_tasks_.clear();
  for (const BatchSpan& span : batch.spans) {
    for (int64_t s = 0; s < span.num_samples; ++s) {
      const Sample& sample = batch.samples[static_cast<size_t>(span.first_sample + s)];
      if (!sample.drawn) break;
      // With drafts, the last one that was drawn speaks for the answer.
      const bool last = span.num_drafts == 0 || s + 1 == span.num_samples ||
                        !batch.samples[static_cast<size_t>(span.first_sample + s + 1)].drawn;
      if (!last) continue;
      AnswerState& answer = *sample.answer;
      answer.draft.clear();
      if (!sample.wants_draft || sample.result.error || is_stop(answer, sample.result.token) ||
          sample.position + 2 >= answer.end_position) {
        continue;
      }
      draft_tasks_.push_back({.state = &model_.state(static_cast<int32_t>(sample.state)),
                              .last_token = answer.last_token,
                              .history = answer.history,
                              .sampling = &answer.sampling,
                              .counts = &answer.counts,
                              .constraint = answer.constraint_state.get(),
                              .out = &answer.draft});
    }
  }
  if (draft_tasks_.empty()) return;
  Status status;
  try {
    status = proposer_->propose(draft_tasks_);
  } catch (const std::exception& exception) {
    status = Error(Code::kInternal, "{}", exception.what());
  }
  for (const DraftTask& task : draft_tasks_) {
    if (!status.ok()) task.out->clear();
    batch.num_drafted += std::ssize(task.out->ids);
  }
  batch.num_drafting = std::ssize(draft_tasks_);
  batch.draft_time = clock_.now() - begin;
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
