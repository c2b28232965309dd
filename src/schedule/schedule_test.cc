// Rules of one step, and properties of whole workloads played against a fake clock and a pool of integers.
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "cache/block_pool.h"

namespace deepinfer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ScheduleLimits kLimits = {.max_rows = 64, .prefill_rows = 16, .max_running = 8};
constexpr Clock::duration kAgeing = seconds(10);

RunningView decoding(uint64_t number, int64_t length) {
  return {.place = {{}, number}, .known = length + 1, .done = length, .blocks = length / kBlockTokens + 1};
}

StepPlan plan_for(const ScheduleLimits& limits, const std::vector<RunningView>& running,
                  const std::vector<WaitingView>& waiting, int64_t blocks, int64_t states = 100) {
  StepPlan plan;
  plan_step(limits, running, waiting, blocks, states, plan);
  return plan;
}

TEST(ScheduleTest, DecodeRowsComeFirstAndPrefillGetsABoundedSlice) {
  RunningView prefill = {.place = {{}, 1}, .known = 500};
  const StepPlan plan = plan_for(kLimits, {prefill, decoding(2, 10), decoding(3, 20)}, {}, 100);
  ASSERT_EQ(plan.spans.size(), 3u);
  EXPECT_EQ(plan.spans[0].sequence, 1);
  EXPECT_EQ(plan.spans[1].sequence, 2);
  EXPECT_EQ(plan.spans[2].sequence, 0);
  EXPECT_EQ(plan.spans[2].count, kLimits.prefill_rows);
  EXPECT_EQ(plan.decode_rows, 2);
  // Alone, a prefill has the whole step.
  EXPECT_EQ(plan_for(kLimits, {prefill}, {}, 100).spans[0].count, kLimits.max_rows);
}

TEST(ScheduleTest, AShortPromptDoesNotWaitForALongOne) {
  const StepPlan plan = plan_for(kLimits, {{.place = {{}, 1}, .known = 100'000}, {.place = {{}, 2}, .known = 20}}, {}, 1000);
  ASSERT_EQ(plan.spans.size(), 2u);
  EXPECT_EQ(plan.spans[0].count, 44);
  EXPECT_EQ(plan.spans[1].count, 20);
}

TEST(ScheduleTest, SpansEndAtTheCheckpointAndNameTheirEncoderRows) {
  const RunningView view = {.known = 100, .done = 40, .blocks = 1, .checkpoint = 60, .decoder_first = 50};
  const StepPlan plan = plan_for(kLimits, {view}, {}, 10);
  ASSERT_EQ(plan.spans.size(), 1u);
  EXPECT_EQ(plan.spans[0].count, 20);
  EXPECT_EQ(plan.spans[0].encoder_rows, 10);
}

TEST(ScheduleTest, TheContextBudgetHoldsAndOneSpanAlwaysFits) {
  ScheduleLimits limits = kLimits;
  limits.max_context_sum = 1000;
  const StepPlan plan = plan_for(limits,
                                 {{.place = {{}, 1}, .known = 5000, .done = 4000, .blocks = 40},
                                  {.place = {{}, 2}, .known = 5000, .done = 900, .blocks = 40}},
                                 {}, 1000);
  ASSERT_EQ(plan.spans.size(), 1u);
  EXPECT_EQ(plan.spans[0].sequence, 0);
}

TEST(ScheduleTest, NothingIsPreemptedWhileNoBlockIsNeeded) {
  // DeepInfer pre-empts whenever no block is free, needed or not.
  const StepPlan plan = plan_for(kLimits, {decoding(1, 10), decoding(2, 20)}, {}, 0);
  EXPECT_TRUE(plan.preempted.empty());
  EXPECT_EQ(plan.decode_rows, 2);
}

TEST(ScheduleTest, TheLastInOrderGivesItsBlocksToOneBeforeIt) {
  std::vector<RunningView> running = {decoding(1, 128), decoding(2, 10), decoding(3, 10)};
  running[0].blocks = 1;
  running[1].freeable = running[2].freeable = 1;
  const StepPlan plan = plan_for(kLimits, running, {}, 0);
  EXPECT_EQ(plan.preempted, std::vector<int32_t>{2});
  EXPECT_EQ(plan.decode_rows, 2);
  // The last one itself can take from nobody: it waits.
  std::swap(running[0].place, running[2].place);
  EXPECT_EQ(plan_for(kLimits, running, {}, 0).decode_rows, 2);
  EXPECT_TRUE(plan_for(kLimits, running, {}, 0).preempted.empty());
}

TEST(ScheduleTest, AVictimOfPrefillLosesItsPlannedRow) {
  std::vector<RunningView> running = {{.place = {{}, 1}, .known = 300, .done = 128, .blocks = 1}, decoding(2, 10)};
  running[1].freeable = 1;
  const StepPlan plan = plan_for(kLimits, running, {}, 0);
  EXPECT_EQ(plan.preempted, std::vector<int32_t>{1});
  ASSERT_EQ(plan.spans.size(), 1u);
  EXPECT_EQ(plan.spans[0].sequence, 0);
  EXPECT_EQ(plan.decode_rows, 0);
}

TEST(ScheduleTest, AFirmReserveIsNeitherTakenNorPreempted) {
  std::vector<RunningView> running = {decoding(1, 128), decoding(2, 10)};
  running[0].blocks = 1;
  running[1].reserve = 2;
  running[1].reserve_is_firm = true;
  running[1].freeable = 1;
  EXPECT_EQ(plan_for(kLimits, running, {}, 1).decode_rows, 1);
  EXPECT_EQ(plan_for(kLimits, running, {}, 2).decode_rows, 2);
}

TEST(ScheduleTest, AUrgentRequestTakesThePlaceOfALessUrgentOne) {
  ScheduleLimits limits = kLimits;
  limits.max_running = 1;
  RunningView batch = decoding(1, 10);
  batch.priority = 3;
  batch.place = place_of({}, 3, kAgeing, 1);
  const WaitingView urgent = {.place = place_of(Clock::time_point(seconds(1)), 0, kAgeing, 2),
                              .known = 10, .blocks_needed = 1};
  const StepPlan plan = plan_for(limits, {batch}, {urgent}, 10);
  EXPECT_EQ(plan.preempted.size(), 1u);
  EXPECT_EQ(plan.admitted.size(), 1u);
  WaitingView same = urgent;
  same.priority = 3;
  EXPECT_TRUE(plan_for(limits, {batch}, {same}, 10).preempted.empty());
}

TEST(ScheduleTest, PausedSequencesHoldNobodyUp) {
  std::vector<RunningView> running = {decoding(1, 10), decoding(2, 128)};
  running[0].paused = true;
  running[0].freeable = 1;
  running[1].blocks = 1;
  const StepPlan plan = plan_for(kLimits, running, {}, 0);
  EXPECT_EQ(plan.preempted, std::vector<int32_t>{0});
  EXPECT_EQ(plan.decode_rows, 1);
}

TEST(ScheduleTest, LaterRequestsPassOneThatDoesNotFitOnlySoOften) {
  const WaitingView big = {.place = {{}, 1}, .known = 1000, .blocks_needed = 8};
  const WaitingView small = {.place = {{}, 2}, .known = 10, .blocks_needed = 1};
  const std::vector<RunningView> running = {decoding(0, 10)};
  StepPlan plan = plan_for(kLimits, running, {big, small}, 5);
  EXPECT_EQ(plan.admitted, std::vector<int32_t>{1});
  EXPECT_EQ(plan.bypassed, 0);
  WaitingView tired = big;
  tired.bypassed = kLimits.max_bypass;
  EXPECT_TRUE(plan_for(kLimits, running, {tired, small}, 5).admitted.empty());
}

TEST(ScheduleTest, PositionsBeyond32BitsArePlannedAsOthers) {
  const int64_t far = (int64_t{1} << 33) + 5;
  const RunningView view = {.known = far + 10, .done = far, .blocks = far / kBlockTokens + 1};
  const StepPlan plan = plan_for(kLimits, {view}, {}, 10);
  ASSERT_EQ(plan.spans.size(), 1u);
  EXPECT_EQ(plan.spans[0].first, far);
  EXPECT_EQ(plan.spans[0].count, 10);
}

// ---- whole workloads ---------------------------------------------------------------------------------------------

struct Request {
  uint64_t number;
  Clock::time_point arrival;
  int priority;
  int64_t prompt, answer, answers;
  std::optional<Clock::time_point> cancel = {};
};

// Plays requests against plan_step as the engine does, with integers for blocks and one step a millisecond.
class Simulation {
 public:
  Simulation(ScheduleLimits limits, int64_t num_blocks, uint32_t seed)
      : limits_(limits), num_blocks_(num_blocks), available_(num_blocks), rng_(seed) {}

  void play(std::vector<Request> requests) {
    size_t next = 0;
    int64_t idle = 0;
    while (next < requests.size() || !running_.empty() || !waiting_.empty()) {
      for (; next < requests.size() && requests[next].arrival <= now_; ++next) {
        const Request& r = requests[next];
        waiting_.push_back({.request = r, .known = r.prompt, .answers = r.answers,
                            .place = place_of(r.arrival, r.priority, kAgeing, r.number)});
      }
      cancel();
      std::sort(waiting_.begin(), waiting_.end(), [](auto& a, auto& b) { return a.place < b.place; });
      const bool moved = step();
      idle = moved || (running_.empty() && waiting_.empty()) ? 0 : idle + 1;
      ASSERT_LT(idle, 3) << "nothing moves at " << now_.time_since_epoch().count();
      now_ += milliseconds(1);
    }
    EXPECT_EQ(available_, num_blocks_);
    EXPECT_EQ(std::ssize(finished_), std::ssize(requests));
  }

  struct Start {
    Clock::time_point arrival, at;
    int priority;
    uint64_t number;
  };
  std::vector<Start> first_starts_;
  int64_t preemptions_ = 0;

 private:
  struct Job {
    Request request;
    int64_t known = 0, done = 0, blocks = 0, drawn = 0;
    int64_t answers = 1;
    Place place;
    int64_t bypassed = 0;
    bool started = false;
  };

  int64_t reserve(const Job& job) const {
    return (job.known + std::min<int64_t>(job.request.answer - job.drawn, 32) + kBlockTokens - 1) / kBlockTokens;
  }

  void cancel() {
    const auto gone = [&](const Job& job) { return job.request.cancel && *job.request.cancel <= now_; };
    for (std::vector<Job>* list : {&running_, &waiting_}) {
      for (size_t i = 0; i < list->size();) {
        if (!gone((*list)[i])) {
          ++i;
          continue;
        }
        finish((*list)[i]);
        list->erase(list->begin() + static_cast<int64_t>(i));
      }
    }
  }

  void finish(Job& job) {
    available_ += job.blocks;
    finished_[job.request.number] += job.answers;
  }

  bool step() {
    std::vector<RunningView> running;
    for (const Job& job : running_) {
      running.push_back({.place = job.place, .priority = job.request.priority, .known = job.known, .done = job.done,
                         .blocks = job.blocks, .reserve = reserve(job), .freeable = job.blocks,
                         .forks = job.answers - 1});
    }
    std::vector<WaitingView> waiting;
    for (size_t i = 0; i < std::min<size_t>(waiting_.size(), 5); ++i) {
      const Job& job = waiting_[i];
      const int64_t copies = job.known % kBlockTokens != 0 ? job.answers - 1 : 0;
      const int64_t needed = (job.known + kBlockTokens - 1) / kBlockTokens + copies;
      waiting.push_back({.place = job.place, .priority = job.request.priority, .known = job.known,
                         .blocks_needed = needed, .reserve = std::max<int64_t>(0, reserve(job) - needed),
                         .answers = job.answers, .bypassed = job.bypassed});
    }
    StepPlan plan;
    plan_step(limits_, running, waiting, available_, limits_.max_running - std::ssize(running_), plan);
    check(plan, running);
    apply(plan);
    return plan.rows() > 0 || !plan.preempted.empty();
  }

  void check(const StepPlan& plan, const std::vector<RunningView>& running) {
    ASSERT_LE(plan.rows(), limits_.max_rows);
    if (plan.decode_rows > 0) {
      ASSERT_LE(plan.prefill_rows, limits_.prefill_rows);
    }
    int64_t rows = 0, context = 0, prefill_spans = 0;
    for (const Span& span : plan.spans) {
      ASSERT_GT(span.count, 0);
      rows += span.count;
      const bool decode = span.sequence < std::ssize(running) &&
                          running[span.sequence].known - running[span.sequence].done == 1;
      if (!decode) {
        context += span.first + span.count;
        ++prefill_spans;
      }
    }
    ASSERT_EQ(rows, plan.rows());
    if (prefill_spans > 1) {
      ASSERT_LE(context, limits_.max_context_sum);
    }
    ASSERT_LE(std::ssize(running) - std::ssize(plan.preempted) + std::ssize(plan.admitted), limits_.max_running);
  }

  void apply(const StepPlan& plan) {
    const auto num_running = std::ssize(running_);
    std::vector<Job> victims;
    for (const int32_t index : plan.preempted) {
      Job& job = running_[index];
      available_ += job.blocks;
      job.blocks = job.done = 0;
      victims.push_back(job);
      ++preemptions_;
    }
    if (plan.bypassed) ++waiting_[*plan.bypassed].bypassed;
    for (const int32_t index : plan.admitted) {
      Job& job = waiting_[index];
      if (!job.started) first_starts_.push_back({job.request.arrival, now_, job.request.priority, job.request.number});
      job.started = true;
      running_.push_back(job);
    }
    std::vector<Job> forks;
    for (const Span& span : plan.spans) {
      Job& job = running_[span.sequence];
      ASSERT_EQ(job.done, span.first);
      job.done += span.count;
      const int64_t held = job.blocks;
      job.blocks = std::max(job.blocks, (job.done + kBlockTokens - 1) / kBlockTokens);
      available_ -= job.blocks - held;
      ASSERT_GE(available_, 0) << "the pool is overdrawn";
      if (job.done < job.known) continue;
      for (; job.answers > 1; --job.answers) {  // shared blocks count once here: a fork only pays for its own tail
        Job fork = job;
        fork.answers = 1;
        fork.blocks = job.done % kBlockTokens != 0 ? 1 : 0;
        fork.known = fork.done = job.done % kBlockTokens;
        ++fork.known;
        ++fork.drawn;
        available_ -= fork.blocks;
        ASSERT_GE(available_, 0) << "a fork overdraws the pool";
        forks.push_back(fork);
      }
      ++job.known;
      ++job.drawn;
    }
    // Erase from the back so that indices stay true.
    std::vector<int32_t> admitted = plan.admitted;
    std::sort(admitted.rbegin(), admitted.rend());
    for (const int32_t index : admitted) waiting_.erase(waiting_.begin() + index);
    std::vector<int32_t> preempted = plan.preempted;
    std::sort(preempted.rbegin(), preempted.rend());
    for (const int32_t index : preempted) {
      ASSERT_LT(index, num_running);
      running_.erase(running_.begin() + index);
    }
    running_.insert(running_.end(), forks.begin(), forks.end());
    for (size_t i = 0; i < running_.size();) {
      if (running_[i].drawn < running_[i].request.answer) {
        ++i;
        continue;
      }
      finish(running_[i]);
      running_.erase(running_.begin() + static_cast<int64_t>(i));
    }
    waiting_.insert(waiting_.end(), victims.begin(), victims.end());
  }

  const ScheduleLimits limits_;
  const int64_t num_blocks_;
  int64_t available_;
  std::mt19937 rng_;
  Clock::time_point now_{};
  std::vector<Job> running_, waiting_;
  std::map<uint64_t, int64_t> finished_;
};

std::vector<Request> workload(uint32_t seed, int64_t count, int64_t longest, bool cancels) {
  std::mt19937 rng(seed);
  std::vector<Request> requests;
  Clock::time_point at{};
  for (int64_t i = 0; i < count; ++i) {
    at += milliseconds(rng() % 6);
    Request r = {.number = static_cast<uint64_t>(i), .arrival = at, .priority = static_cast<int>(rng() % kNumPriorities),
                 .prompt = 1 + static_cast<int64_t>(rng() % static_cast<uint32_t>(longest)),
                 .answer = 1 + static_cast<int64_t>(rng() % 200), .answers = rng() % 8 == 0 ? 3 : 1};
    if (cancels && rng() % 3 == 0) r.cancel = at + milliseconds(rng() % 400);
    requests.push_back(r);
  }
  return requests;
}

TEST(ScheduleWorkloadTest, EveryRequestEndsNoBlockLeaksNoBudgetIsPassed) {
  int64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    ScheduleLimits limits = {.max_rows = 32 + static_cast<int64_t>(rng() % 200),
                             .prefill_rows = 1 + static_cast<int64_t>(rng() % 64),
                             .max_context_sum = 500 + static_cast<int64_t>(rng() % 5000),
                             .max_running = 3 + static_cast<int64_t>(rng() % 20)};
    Simulation simulation(limits, 16 + static_cast<int64_t>(rng() % 40), seed);
    simulation.play(workload(seed, 120, 1200, seed % 2 == 0));
    if (testing::Test::HasFatalFailure()) return;
    preemptions += simulation.preemptions_;
  }
  EXPECT_GT(preemptions, 100) << "the workloads put no pressure on memory";
}

// The bound of the header comment, with what bypassing may add: a request is overtaken only by those that arrive less
// than (bands between them) x ageing later, and by at most max_bypass admissions of smaller requests while it is first.
TEST(ScheduleWorkloadTest, NobodyIsOvertakenMoreThanTheBoundSays) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    ScheduleLimits limits = kLimits;
    limits.max_bypass = 0;
    Simulation simulation(limits, 40, seed);
    simulation.play(workload(seed, 150, 600, false));
    const auto& starts = simulation.first_starts_;
    for (size_t earlier = 0; earlier < starts.size(); ++earlier) {
      for (size_t later = earlier + 1; later < starts.size(); ++later) {
        const auto bound = (starts[later].priority - starts[earlier].priority) * kAgeing;
        // `earlier` started before `later` though it arrived after it: only within the bound.
        if (starts[earlier].at < starts[later].at) {
          EXPECT_LE(starts[earlier].arrival - starts[later].arrival, std::max(bound, Clock::duration(0)));
        }
      }
    }
  }
}

TEST(SharePrefillTest, TheFirstGetsAtLeastHalfAndNothingIsWasted) {
  std::mt19937 rng(3);
  std::vector<int64_t> given;
  for (int i = 0; i < 2000; ++i) {
    std::vector<int64_t> pending(1 + rng() % 8);
    for (int64_t& rows : pending) rows = 1 + static_cast<int64_t>(rng() % 100);
    const auto budget = static_cast<int64_t>(rng() % 200);
    share_prefill(pending, budget, given);
    int64_t sum = 0, wanted = 0;
    for (size_t k = 0; k < pending.size(); ++k) {
      ASSERT_LE(given[k], pending[k]);
      sum += given[k];
      wanted += pending[k];
    }
    EXPECT_EQ(sum, std::min(budget, wanted));
    EXPECT_GE(given[0], std::min(pending[0], budget / 2));
  }
}

}  // namespace
}  // namespace deepinfer
