#include "schedule/schedule.h"

#include <algorithm>
#include <numeric>

#include "base/checked_math.h"
#include "base/status.h"
#include "cache/block_pool.h"

namespace deepinfer {
namespace {

int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// One run of plan_step.
class Planner {
 public:
  Planner(const ScheduleLimits& limits, std::span<const RunningView> running, std::span<const WaitingView> waiting,
          int64_t available_blocks, int64_t available_states, StepPlan& plan)
      : limits_(limits),
        running_(running),
        waiting_(waiting),
        available_(available_blocks),
        states_(available_states),
        plan_(plan) {}

  void run() {
    plan_.clear();
    plan_.is_preempted.assign(running_.size(), false);
    plan_.order.resize(running_.size());
    std::iota(plan_.order.begin(), plan_.order.end(), 0);
    std::sort(plan_.order.begin(), plan_.order.end(),
              [&](int32_t a, int32_t b) { return running_[a].place < running_[b].place; });
    for (const RunningView& view : running_) {
      firm_ += firm_rest(view);
      num_running_ += 1 + view.forks;
      states_ -= view.forks;
    }
    admit();
    decode();
    verify();
    prefill();
  }

 private:
  static int64_t pending(const RunningView& view) { return view.known - view.done; }
  static int64_t rest(const RunningView& view) { return std::max<int64_t>(0, view.reserve - view.blocks); }
  static int64_t firm_rest(const RunningView& view) { return view.reserve_is_firm ? rest(view) : 0; }

  // Blocks that the span [first, first + count) needs beyond those held.
  static int64_t new_blocks(int64_t known, int64_t end, int64_t held, int64_t forks) {
    const int64_t copies = end == known && end % kBlockTokens != 0 ? forks : 0;
    return std::max<int64_t>(0, blocks_for(end) - held) + copies;
  }

  // A paused one, wherever it stands; else the last one in order behind `place` and less urgent than `priority`.
  bool preempt_for(const Place& place, int priority) {
    for (auto index = plan_.order.rbegin(); index != plan_.order.rend(); ++index) {
      if (running_[*index].paused && preempt(*index)) return true;
    }
    for (auto index = plan_.order.rbegin(); index != plan_.order.rend(); ++index) {
      const RunningView& view = running_[*index];
      if (view.place <= place) return false;
      if (view.priority > priority && preempt(*index)) return true;
    }
    return false;
  }

  bool preempt(int32_t index) {
    const RunningView& view = running_[index];
    if (plan_.is_preempted[index] || view.reserve_is_firm) return false;
    plan_.is_preempted[index] = true;
    plan_.preempted.push_back(index);
    available_ += view.freeable;
    states_ += 1 + view.forks;
    num_running_ -= 1 + view.forks;
    const auto span = std::find_if(plan_.spans.begin(), plan_.spans.end(),
                                   [&](const Span& other) { return other.sequence == index; });
    if (span != plan_.spans.end()) {
      available_ += span->new_blocks;
      plan_.draft_rows -= span->drafts;
      (span->count == 1 && pending(view) == 1 ? plan_.decode_rows : plan_.prefill_rows) -= span->count;
      plan_.spans.erase(span);
    }
    return true;
  }

  // ---- admission ----

  bool fits(const WaitingView& view) const {
    if (num_running_ + view.answers > limits_.max_running || states_ < view.answers) return false;
    int64_t promised = admitted_rest_;  // to those that run
    for (size_t i = 0; i < running_.size(); ++i) promised += plan_.is_preempted[i] ? 0 : rest(running_[i]);
    const bool alone = num_running_ == 0;
    if (alone && !view.reserve_is_firm) return view.blocks_needed <= available_ - admitted_rest_;
    return view.blocks_needed + view.reserve + promised <= available_;
  }

  void admit() {
    int32_t blocked = -1;
    for (int32_t i = 0; i < std::ssize(waiting_); ++i) {
      const WaitingView& view = waiting_[i];
      bool fit = fits(view);
      // The first one that does not fit may take the place of paused and of less urgent ones.
      while (!fit && blocked < 0 && preempt_for(view.place, view.priority)) fit = fits(view);
      if (!fit) {
        if (blocked < 0 && view.bypassed >= limits_.max_bypass) break;
        if (blocked < 0) blocked = i;
        continue;
      }
      if (blocked >= 0) plan_.bypassed = blocked;
      plan_.admitted.push_back(i);
      num_running_ += view.answers;
      states_ -= view.answers;
      // Blocks of a hit or of a swap are taken at once, the others row by row; until then they are promised.
      admitted_rest_ += view.blocks_needed + view.reserve;
      admitted_needs_ += view.blocks_needed;
      if (view.reserve_is_firm) firm_ += view.reserve;
    }
    available_ -= admitted_needs_;
  }

  // ---- spans ----

  // Room for `needed` blocks of running sequence `index`, if need be from those behind it. Nobody eats into the
  // reserve of a firm one.
  bool make_room(int32_t index, int64_t needed) {
    const RunningView& view = running_[index];
    if (needed == 0) return true;
    const int64_t own = firm_rest(view);
    while (available_ - (firm_ - own) < needed) {
      if (!preempt_for(view.place, -1)) return false;
    }
    available_ -= needed;
    if (view.reserve_is_firm) firm_ -= std::min(own, needed);
    return true;
  }

  bool add_span(int32_t index, int64_t count) {
    const RunningView& view = running_[index];
    if (view.checkpoint > view.done) count = std::min(count, view.checkpoint - view.done);
    const int64_t end = view.done + count;
    const int64_t needed = new_blocks(view.known, end, view.blocks, view.forks);
    if (!make_room(index, needed)) return false;
    push(index, view.done, count, view.decoder_first, needed);
    return true;
  }

  void push(int32_t sequence, int64_t first, int64_t count, int64_t decoder_first, int64_t needed) {
    plan_.spans.push_back(
        {sequence, first, count, std::clamp<int64_t>(decoder_first - first, 0, count), needed, 0});
  }

  void decode() {
    for (const int32_t index : plan_.order) {
      const RunningView& view = running_[index];
      if (plan_.is_preempted[index] || view.paused || pending(view) != 1) continue;
      if (plan_.decode_rows == limits_.max_rows) break;
      if (add_span(index, 1)) ++plan_.decode_rows;
    }
  }

  // Behind the decode rows of all: as many of the drafts as rows and free blocks are left for.
  void verify() {
    for (Span& span : plan_.spans) {
      const RunningView& view = running_[span.sequence];
      int64_t drafts = std::min(view.drafts, limits_.max_rows - plan_.rows());
      if (drafts <= 0) continue;
      const int64_t held = view.blocks + span.new_blocks, end = span.first + span.count;
      const int64_t own = firm_rest(view);
      const int64_t needed = std::max<int64_t>(0, blocks_for(end + drafts) - held);
      // What this step's prefill may need is left to it: nobody must be pre-empted for a draft.
      const int64_t others =
          firm_ - own + admitted_rest_ - admitted_needs_ + blocks_for(limits_.max_rows) + num_running_;
      if (needed > 0 && available_ - others >= needed) {
        available_ -= needed;
        if (view.reserve_is_firm) firm_ -= std::min(own, needed);
        span.new_blocks += needed;
      } else if (needed > 0) {
        drafts = held * kBlockTokens - end;
      }
      span.drafts = drafts;
      plan_.draft_rows += drafts;
    }
  }

  void prefill() {
    const int64_t taken = plan_.decode_rows + plan_.draft_rows;
    const int64_t budget =
        taken > 0 ? std::min(limits_.prefill_rows, limits_.max_rows - taken) : limits_.max_rows;
    plan_.prefilling.clear();
    plan_.pending.clear();
    const auto num_views = static_cast<int32_t>(running_.size());
    for (const int32_t index : plan_.order) {
      const RunningView& view = running_[index];
      if (!plan_.is_preempted[index] && !view.paused && pending(view) > 1) plan_.prefilling.push_back(index);
    }
    for (int32_t i = 0; i < std::ssize(plan_.admitted); ++i) plan_.prefilling.push_back(num_views + i);
    std::sort(plan_.prefilling.begin(), plan_.prefilling.end(),
              [&](int32_t a, int32_t b) { return place(a) < place(b); });
    for (const int32_t index : plan_.prefilling) plan_.pending.push_back(rows_left(index));
    share_prefill(plan_.pending, budget, plan_.given);

    int64_t context = 0;
    for (size_t i = 0; i < plan_.prefilling.size(); ++i) {
      const int32_t index = plan_.prefilling[i];
      int64_t count = plan_.given[i];
      if (count == 0) continue;
      const int64_t first = index < num_views ? running_[index].done : waiting_of(index).start;
      if (context > 0) count = std::min(count, limits_.max_context_sum - context - first);
      if (count <= 0) continue;
      if (index < num_views) {
        if (plan_.is_preempted[index] || !add_span(index, count)) continue;
        count = plan_.spans.back().count;
      } else {
        const WaitingView& view = waiting_of(index);
        if (view.checkpoint > first) count = std::min(count, view.checkpoint - first);
        // Its blocks were set aside at admission; the copies of forks come out of the reserve.
        const int64_t held = view.swapped ? blocks_for(first) : view.blocks_shared;
        push(index, first, count, view.decoder_first,
             new_blocks(view.known, first + count, held, view.answers - 1));
      }
      plan_.prefill_rows += count;
      context += first + count;
    }
  }

  const WaitingView& waiting_of(int32_t index) const {
    return waiting_[plan_.admitted[index - static_cast<int32_t>(running_.size())]];
  }
  const Place& place(int32_t index) const {
    return index < std::ssize(running_) ? running_[index].place : waiting_of(index).place;
  }
  int64_t rows_left(int32_t index) const {
    if (index < std::ssize(running_)) return pending(running_[index]);
    return waiting_of(index).known - waiting_of(index).start;
  }

  const ScheduleLimits& limits_;
  const std::span<const RunningView> running_;
  const std::span<const WaitingView> waiting_;
  int64_t available_, states_;
  StepPlan& plan_;
  int64_t num_running_ = 0;
  int64_t firm_ = 0;            // reserves that nobody else may use
  int64_t admitted_rest_ = 0, admitted_needs_ = 0;
};

}  // namespace

void StepPlan::clear() {
  preempted.clear();
  admitted.clear();
  spans.clear();
  decode_rows = draft_rows = prefill_rows = 0;
  bypassed.reset();
}

void share_prefill(std::span<const int64_t> pending, int64_t budget, std::vector<int64_t>& given) {
  given.assign(pending.size(), 0);
  if (pending.empty() || budget <= 0) return;
  given[0] = std::min(pending[0], (budget + 1) / 2);
  int64_t left = budget - given[0];
  // Few sequences prefill at a time: repeated selection of the shortest costs less than a sort of indices would need
  // memory.
  while (left > 0) {
    size_t shortest = 0;
    for (size_t i = 1; i < pending.size(); ++i) {
      if (given[i] == 0 && (shortest == 0 || pending[i] < pending[shortest])) shortest = i;
    }
    if (shortest == 0) break;
    given[shortest] = std::min(pending[shortest], left);
    left -= given[shortest];
  }
  given[0] += std::min(pending[0] - given[0], left);
}

void plan_step(const ScheduleLimits& limits, std::span<const RunningView> running,
               std::span<const WaitingView> waiting, int64_t available_blocks, int64_t available_states,
               StepPlan& plan) {
  Planner(limits, running, waiting, available_blocks, available_states, plan).run();
}

}  // namespace deepinfer
