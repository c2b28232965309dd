#include "engine/loop.h"

#include <algorithm>
#include <cmath>
#include <exception>

namespace deepinfer {
namespace {

}  // namespace

EngineLoop::EngineLoop(const LoopShape& shape, const EngineOptions& options, Executor& executor,
                       Inbox<LoopMessage>& inbox, std::atomic<int64_t>& queued, StatsBoard& board, Counters& counters,
                       StoreQueue* store, StateBytes state_bytes)
    : shape_(shape),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      limits_{.max_rows = shape.max_rows,
              .prefill_rows = options.prefill_rows,
              .max_context_sum = options.max_context_sum,
              .max_running = shape.max_running},
      inbox_(inbox),
      queued_(queued),
      board_(board),
      count_prompt_(counters.get("prompt_tokens")),
      count_completion_(counters.get("completion_tokens")),
      count_cancelled_(counters.get("cancelled")),
      count_errors_(counters.get("errors")),
      runner_(make_step_runner(executor, options.scheduling_depth)),
      store_(store),
      state_bytes_(std::move(state_bytes)),
      cache_({.num_blocks = shape.num_blocks, .num_states = shape.num_states, .windows = shape.windows}),
      swap_blocks_(shape.swap_blocks),
      draft_policy_(shape.max_drafts, options.speculation.sampling == SpeculationSampling::kDeterministic
                                          ? DraftPolicy::Budget::kNewest
                                          : DraftPolicy::Budget::kOlder),
      lane_(options.trace != nullptr ? options.trace->add_lane("engine") : 0) {
  for (int64_t i = shape.swap_states - 1; i >= 0; --i) free_swap_states_.push_back(static_cast<int32_t>(i));
}

void EngineLoop::run() {
  Trace* const trace = options_.trace;
  Step* in_flight = nullptr;
  size_t next = 0;
  while (true) {
    const auto begin = clock_.now();
    take_messages();
    end_late_requests();
    // How far a step with drafts got is known only behind it, so answers that may have some are planned from
    // there.
    if (in_flight != nullptr && speculates()) {
      runner_->finish();
      update_stats();  // receivers of what is committed may look
      commit(*std::exchange(in_flight, nullptr));
      update_stats();
    }
    Step& step = steps_[next];
    const bool planned = plan(step);
    const auto plan_end = clock_.now();
    stats_.plan_ns += std::chrono::nanoseconds(plan_end - begin).count();

    Step* finished = in_flight;
    in_flight = nullptr;
    if (finished != nullptr) runner_->finish();
    const bool goes_on = use_quiet();
    const auto wait_end = clock_.now();
    if (planned) {
      runner_->start(step.batch);
      in_flight = &step;
      next = 1 - next;
    }
    if (in_flight != nullptr && options_.scheduling_depth == 0) {
      runner_->finish();
      finished = std::exchange(in_flight, nullptr);
      next = 1 - next;
    }
    update_stats();
    if (finished != nullptr) {
      commit(*finished);
      update_stats();
    }
    if (trace != nullptr && (planned || finished != nullptr)) {
      trace->span(lane_, "plan", "schedule", begin, plan_end, plan_.rows());
      trace->span(lane_, "wait", "engine", plan_end, wait_end);
    }
    if (planned || finished != nullptr || goes_on) continue;
    if (stopping_ && jobs_.empty()) return;
    idle();
  }
}

// Nothing runs and nothing could be planned.
void EngineLoop::idle() {
  const bool stalled =
      std::any_of(running_.begin(), running_.end(), [](const Job* job) { return !job->paused; }) ||
      std::any_of(waiting_.begin(), waiting_.end(), [this](const Job* job) { return !job->paused && !is_at_store(*job); });
  // What the store holds comes back, and with it a message.
  if (stalled && store_held_ == 0 && num_asked_ == 0) return break_stall();
  auto until = deadlines_.empty() ? Clock::time_point::max() : deadlines_.begin()->first;
  for (const Job* job : waiting_) {
    if (is_at_store(*job)) until = std::min(until, job->store_until);
  }
  if (until == Clock::time_point::max()) {
    inbox_.wait();
  } else {
    inbox_.wait_until(until);
  }
}

// The plan's rules make this impossible; if they are wrong, one request pays, not all.
void EngineLoop::break_stall() {
  Job* victim = nullptr;
  for (Job* job : running_) {
    if (!job->paused && (victim == nullptr || victim->place < job->place)) victim = job;
  }
  for (Job* job : waiting_) {
    if (victim == nullptr && !job->paused) victim = job;
  }
  end(*victim, FinishReason::kError,
      Error(Code::kResourceExhausted, "request {}: no memory could be found for it: {} of {} KV blocks available",
            victim->id, cache_.num_available_blocks(), shape_.num_blocks));
}

// ---- messages --------------------------------------------------------------------------------------------------------

void EngineLoop::take_messages() {
  inbox_.drain([this](LoopMessage message) {
    switch (message.kind) {
      case LoopMessage::Kind::kSubmit:
        accept(message.submission);
        return;
      case LoopMessage::Kind::kCancel:
      case LoopMessage::Kind::kFinish:
        end_early(message.id,
                  message.kind == LoopMessage::Kind::kCancel ? FinishReason::kCancelled : FinishReason::kStop);
        return;
      case LoopMessage::Kind::kPause:
      case LoopMessage::Kind::kResume:
        set_paused(message.id, message.kind == LoopMessage::Kind::kPause);
        return;
      case LoopMessage::Kind::kStore:
        take_answer(std::move(message.task));
        return;
      case LoopMessage::Kind::kStop:
        stopping_ = true;
        std::vector<Job*> all;
        for (const auto& [id, job] : jobs_) all.push_back(job.get());
        for (Job* job : all) {
          if (job->status != Job::Status::kEnded) end(*job, FinishReason::kCancelled);
        }
        return;
    }
  });
}

// Answers of one prompt are one job until the prompt is computed. More than can run at once are jobs of their own.
void EngineLoop::accept(const std::shared_ptr<const Submission>& submission) {
  const int32_t answers = submission->request.n;
  if (answers <= shape_.max_running) return add_job(submission, 0, answers);
  for (int32_t i = 0; i < answers; ++i) add_job(submission, i, 1);
}

void EngineLoop::add_job(const std::shared_ptr<const Submission>& submission, int32_t first_answer, int32_t answers) {
  const EngineRequest& request = submission->request;
  auto job = std::make_unique<Job>();
  job->id = submission->first_id + static_cast<uint64_t>(first_answer);
  job->answer_index = first_answer;
  for (int32_t i = first_answer + 1; i < first_answer + answers; ++i) {
    job->forks.push_back(i);
    fork_of_[submission->first_id + static_cast<uint64_t>(i)] = job->id;
  }
  job->place = place_of(submission->arrival, request.priority, options_.ageing, next_place_++);
  job->prompt = std::ssize(request.prompt_ids);
  job->limit = std::min(request.max_tokens, shape_.max_context - job->prompt);
  job->tokens.reserve(static_cast<size_t>(job->prompt + std::min<int64_t>(job->limit, 256)));
  job->tokens = request.prompt_ids;
  job->answer = make_answer(*submission, first_answer, job->prompt + job->limit);
  job->answer->prompt_logprobs_top = request.prompt_logprobs;
  job->keys = submission->keys;
  if (request.deadline) deadlines_.emplace(*request.deadline, job->id);
  job->submission = submission;
  ++stats_.submitted;
  waiting_.insert(job.get());
  Job& added = *job;
  jobs_[added.id] = std::move(job);
  if (stopping_) end(added, FinishReason::kCancelled);
}

std::unique_ptr<AnswerState> EngineLoop::make_answer(const Submission& submission, int32_t index, int64_t end_position) const {
  const EngineRequest& request = submission.request;
  auto answer = std::make_unique<AnswerState>();
  answer->request = submission.first_id + static_cast<uint64_t>(index);
  answer->sampling = request.sampling;
  answer->sampling.seed += static_cast<uint64_t>(index);
  answer->top_logprobs = request.top_logprobs;
  answer->constraint = request.constraint;
  answer->stop_ids = request.stop_ids;
  answer->end_position = end_position;
  if (request.sampling.repetition_penalty != 1) {
    for (const int32_t id : request.prompt_ids) answer->counts.try_emplace(id, 0);
  }
  if (shape_.keeps_history) answer->history = request.prompt_ids;
  return answer;
}

// An answer that has no job of its own yet holds up nobody else; it begins paused.
void EngineLoop::set_paused(Engine::RequestId id, bool paused) {
  if (const auto job = jobs_.find(id); job != jobs_.end()) {
    job->second->paused = paused;
  } else if (!paused) {
    paused_forks_.erase(id);
  } else if (fork_of_.count(id) > 0) {
    paused_forks_.insert(id);
  }
}

void EngineLoop::forget_fork(Engine::RequestId id) {
  fork_of_.erase(id);
  paused_forks_.erase(id);
}

void EngineLoop::end_early(Engine::RequestId id, FinishReason reason) {
  if (const auto fork = fork_of_.find(id); fork != fork_of_.end()) {  // an answer without a job of its own
    Job& parent = *jobs_.at(fork->second);
    const auto index = static_cast<int32_t>(id - parent.submission->first_id);
    std::erase(parent.forks, index);
    forget_fork(id);
    if (!parent.started) --queued_;
    finish_event(parent, index, reason, std::nullopt);
    return;
  }
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->status == Job::Status::kEnded) return;
  Job& job = *found->second;
  if (job.forks.empty()) return end(job, reason);

  // The prompt is still computed for the other answers: the job goes on as the next of them.
  finish_event(job, job.answer_index, reason, std::nullopt);
  if (!job.started) --queued_;
  job.answer_index = job.forks.front();
  job.forks.erase(job.forks.begin());
  const Engine::RequestId heir = job.submission->first_id + static_cast<uint64_t>(job.answer_index);
  job.paused = paused_forks_.count(heir) > 0;  // what was said of the other answer went with it
  forget_fork(heir);
  job.id = job.answer->request = heir;
  job.answer->sampling.seed = job.request().sampling.seed + static_cast<uint64_t>(job.answer_index);
  for (const int32_t index : job.forks) fork_of_[job.submission->first_id + static_cast<uint64_t>(index)] = heir;
  auto node = jobs_.extract(found);
  node.key() = heir;
  if (is_at_store(job)) job.at_store = Job::AtStore::kNotAsked;  // the answer has its former name
  jobs_.insert(std::move(node));
  if (job.request().deadline) deadlines_.emplace(*job.request().deadline, heir);
}

void EngineLoop::end_late_requests() {
  const auto now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto found = jobs_.find(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
    if (found == jobs_.end() || found->second->status == Job::Status::kEnded) continue;
    end(*found->second, FinishReason::kError,
        Error(Code::kDeadlineExceeded, "request {}: its deadline passed", found->first));
  }
}

// ---- commit ----------------------------------------------------------------------------------------------------------

void EngineLoop::commit(Step& step) {
  const auto begin = clock_.now();
  Batch& batch = step.batch;
  ++stats_.steps;
  stats_.execute_ns += std::chrono::nanoseconds(batch.execute_time).count();
  stats_.sample_ns += std::chrono::nanoseconds(batch.sample_time).count();
  cost_.observe(step.decode_rows + step.draft_rows, step.prefill_rows,
                std::chrono::duration<double>(batch.execute_time + batch.sample_time).count());
  if (batch.num_drafting > 0) {
    draft_policy_.observe_pass(batch.num_drafting, std::chrono::duration<double>(batch.draft_time).count());
    ++stats_.draft_passes;
    stats_.drafted += batch.num_drafted;
    stats_.draft_ns += std::chrono::nanoseconds(batch.draft_time).count();
  }
  if (step.draft_rows > 0) stats_.calibration_error_ppm = std::llround(1e6 * batch.calibration_error);
  if (step.predicted_seconds > 0 && !batch.failure) {
    stats_.predicted_ns += std::llround(1e9 * step.predicted_seconds);
    stats_.predicted_real_ns +=
        std::chrono::nanoseconds(batch.execute_time + batch.sample_time + batch.draft_time).count();
  }
  size_t fault = 0;
  for (size_t i = 0; i < step.num_entries; ++i) {
    const bool faulty = fault < batch.faults.size() && batch.faults[fault].span == static_cast<int32_t>(i);
    commit_span(step, i, faulty ? &batch.faults[fault++] : nullptr);
  }
  for (Keep& keep : step.keeps) {
    const bool good = !batch.failure && keep.job->epoch == keep.epoch && keep.job->status != Job::Status::kEnded;
    if (good) {
      const int64_t position = keep.kept.position;
      cache_.keep_state(keep.state, std::move(keep.kept));
      offer_state(*keep.job, keep.state, std::min(position, keep.job->submission->decoder_first));
    } else {
      if (keep.kept.tail_block) cache_.blocks().release(*keep.kept.tail_block);
      cache_.release_state(keep.state);
    }
  }
  // Only now may jobs go that the step referred to.
  for (size_t i = 0; i < step.num_entries; ++i) {
    Entry& entry = step.entries[i];
    const auto release = [this](Job* job) {
      if (--job->in_flight == 0 && job->status == Job::Status::kEnded) settle(*job);
    };
    for (Job* drawing : entry.drawing) {
      if (drawing != entry.job) release(drawing);
    }
    release(entry.job);
  }
  const auto end = clock_.now();
  stats_.commit_ns += std::chrono::nanoseconds(end - begin).count();
  if (options_.trace != nullptr) options_.trace->span(lane_, "commit", "engine", begin, end);
}

void EngineLoop::commit_span(Step& step, size_t index, const SpanFault* fault) {
  Entry& entry = step.entries[index];
  const BatchSpan& span = step.batch.spans[index];
  const auto fail_all = [&](const Error& error) {
    if (entry.job->status != Job::Status::kEnded) end(*entry.job, FinishReason::kError, error);
    for (Job* job : entry.drawing) {
      if (job->status != Job::Status::kEnded) end(*job, FinishReason::kError, error);
    }
  };
  if (step.batch.failure) return fail_all(*step.batch.failure);
  const auto samples =
      std::span<const Sample>(step.batch.samples)
          .subspan(static_cast<size_t>(span.first_sample), static_cast<size_t>(span.num_samples));
  if (fault == nullptr || (entry.drafts > 0 && samples[0].drawn)) {
    if (entry.drafts > 0) count_drafts(entry, samples);
    if (entry.epoch == entry.job->epoch) {
      entry.job->committed = entry.first + entry.count;
      // Before the tokens, which may end the job: its last block is worth as much as the others.
      if (entry.job->status != Job::Status::kEnded) publish(*entry.job);
    }
    for (size_t i = 0; i < samples.size() && samples[i].drawn; ++i) {
      Job& job = *entry.drawing[entry.drafts > 0 ? 0 : i];
      if (job.status != Job::Status::kEnded) commit_token(job, samples[i].result);
    }
    // Accepted drafts were no tokens before.
    if (entry.count > 1 && entry.epoch == entry.job->epoch && !entry.job->failed) publish(*entry.job);
  }
  if (fault != nullptr) {
    fail_all(Error(Code::kInternal,
                   "request {}: a number after layer {} at position {} is not finite; this answer ends",
                   entry.job->id, fault->layer, fault->position));
  }
}

// The rows of drafts that were right count as computed, and what was drawn from them as drawn.
void EngineLoop::count_drafts(Entry& entry, std::span<const Sample> samples) {
  Job& job = *entry.job;
  int64_t drawn = 0, accepted = 0;
  for (const Sample& sample : samples) {
    drawn += sample.drawn ? 1 : 0;
    accepted += sample.accepted ? 1 : 0;
  }
  for (int64_t k = 0; k < entry.drafts; ++k) {
    const auto place = static_cast<size_t>(k);
    ++stats_.verified[place];
    if (k < accepted) ++stats_.accepted[place];
  }
  draft_policy_.observe_verified(entry.promised, static_cast<double>(accepted));
  if (drawn < 2 || entry.epoch != job.epoch) return;
  entry.count += drawn - 1;
  job.done += drawn - 1;
  job.drawn += drawn - 1;
}

void EngineLoop::commit_token(Job& job, const SampleResult& result) {
  if (result.error) return end(job, FinishReason::kError, result.error->in(fmt::format("request {}", job.id)));
  const std::vector<int32_t>& stops = job.request().stop_ids;
  job.tokens.push_back(result.token);
  if (std::find(stops.begin(), stops.end(), result.token) != stops.end()) return end(job, FinishReason::kStop);
  try {
    if (result.prompt_logprobs != nullptr) {
      job.submission->sink({.kind = EngineEvent::Kind::kPrompt,
                            .answer_index = job.answer_index,
                            .prompt_logprobs = result.prompt_logprobs});
    }
    job.submission->sink({.kind = EngineEvent::Kind::kToken,
                          .answer_index = job.answer_index,
                          .token_id = result.token,
                          .logprobs = result.logprobs});
  } catch (const std::exception& exception) {  // its receiver's fault: this request ends, the others live
    return end(job, FinishReason::kError, Error(Code::kInternal, "request {}: {}", job.id, exception.what()));
  }
  if (std::ssize(job.tokens) - job.prompt == job.limit) end(job, FinishReason::kLength);
}

void EngineLoop::extend_keys(Job& job) {
  for (int64_t n = std::ssize(job.keys); (n + 1) * kBlockTokens <= std::ssize(job.tokens); ++n) {
    const auto tokens = std::span<const int32_t>(job.tokens).subspan(static_cast<size_t>(n * kBlockTokens), kBlockTokens);
    job.keys.push_back(job.submission->hasher->next(n == 0 ? job.submission->root : job.keys.back(), std::as_bytes(tokens)));
  }
}

void EngineLoop::publish(Job& job) {
  if (!job.use_cache() || job.derived) return;
  const int64_t full = std::min<int64_t>(job.committed, std::ssize(job.tokens)) / kBlockTokens;
  if (job.published < full) extend_keys(job);
  for (; job.published < std::min<int64_t>(full, std::ssize(job.blocks)); ++job.published) {
    const int64_t n = job.published;
    cache_.blocks().publish(
        job.blocks[n], job.keys[n],
        std::span<const int32_t>(job.tokens).subspan(static_cast<size_t>(n * kBlockTokens), kBlockTokens));
  }
  // A unit ends with the input, with the answer, and every so many blocks.
  const bool input_waits = job.committed >= job.prompt && job.handed_over < std::min(job.published, job.prompt / kBlockTokens);
  hand_over(job, !input_waits);
}

// ---- the end of an answer --------------------------------------------------------------------------------------------

void EngineLoop::finish_event(Job& job, int32_t answer_index, FinishReason reason, const std::optional<Error>& error) {
  const bool own = answer_index == job.answer_index;
  const EngineEvent event{.kind = EngineEvent::Kind::kFinished,
                          .answer_index = answer_index,
                          .finish_reason = reason,
                          .error = error,
                          .prompt_tokens = job.prompt,
                          .cached_tokens = job.hit_tokens,
                          .completion_tokens = own ? std::ssize(job.tokens) - job.prompt : 0};
  ++stats_.finished;
  if (error) {
    ++stats_.errors;
    count_errors_.add();
  } else {
    count_prompt_.add(event.prompt_tokens);
    count_completion_.add(event.completion_tokens);
  }
  stats_.completion_tokens += event.completion_tokens;
  if (reason == FinishReason::kCancelled) {
    ++stats_.cancelled;
    count_cancelled_.add();
  }
  try {
    job.submission->sink(event);
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

void EngineLoop::end(Job& job, FinishReason reason, std::optional<Error> error) {
  CHECK(job.status != Job::Status::kEnded);
  if (job.status == Job::Status::kWaiting) {
    waiting_.erase(&job);
    if (job.started) {
      --num_preempted_;
    } else {
      queued_ -= job.answers();
    }
  } else {
    std::erase(running_, &job);
  }
  job.status = Job::Status::kEnded;
  finish_event(job, job.answer_index, reason, error);
  for (const int32_t index : job.forks) {
    forget_fork(job.submission->first_id + static_cast<uint64_t>(index));
    finish_event(job, index, reason, error);
  }
  job.forks.clear();
  job.failed = error.has_value();
  if (job.in_flight == 0) settle(job);
}

void EngineLoop::settle(Job& job) {
  give_back(job, !job.failed);
  drop_swap(job);
  if (job.swap_promise > 0) {
    promised_swap_blocks_ -= job.swap_promise;
    --promised_swap_states_;
  }
  jobs_.erase(job.id);
}

// The one place where blocks and a state go back, whatever the reason.
void EngineLoop::give_back(Job& job, bool keep_prefix) {
  hand_over(job, false);
  if (job.state) {
    // The token drawn last was not computed, or only as the row that ran for nothing.
    const int64_t position = std::ssize(job.tokens) - 1;
    if (keep_prefix && job.done >= position && position >= job.prompt && keeps_states(job)) {
      extend_keys(job);
      cache_.keep_state(*job.state, describe_state(job, position));
      offer_state(job, *job.state, position);
    } else {
      cache_.release_state(*job.state);
    }
    job.state.reset();
  }
  cache_.blocks().release_all(job.blocks);
  job.blocks.clear();
  job.sent_blocks = job.published = job.handed_over = 0;
  ++job.epoch;
}

void EngineLoop::drop_swap(Job& job) {
  if (!job.swapped) return;
  for (const BlockId block : job.swapped->blocks) swap_blocks_.release(block);
  free_swap_states_.push_back(*job.swapped->state);
  if (job.swap_promise > 0) {  // what it used of its promise is set aside again
    promised_swap_blocks_ += std::ssize(job.swapped->blocks);
    ++promised_swap_states_;
  }
  job.swapped.reset();
}

void EngineLoop::update_stats() {
  EngineStats& stats = stats_;
  stats.running = 0;
  for (const Job* job : running_) stats.running += job->answers();
  stats.preempted = num_preempted_;
  stats.blocks_total = shape_.num_blocks;
  stats.blocks_free = cache_.blocks().num_free();
  stats.blocks_cached = cache_.blocks().num_cached();
  stats.blocks_used = cache_.blocks().num_used();
  stats.states_total = shape_.num_states;
  stats.states_free = cache_.num_free_states();
  stats.states_kept = cache_.num_kept_states();
  stats.store_held = store_held_;
  stats.swap_blocks_total = swap_blocks_.num_blocks();
  stats.swap_blocks_used = swap_blocks_.num_blocks() - swap_blocks_.num_free();
  board_.store(stats);
}

}  // namespace deepinfer
