// The engine thread: owns the sequences, their block tables and the prefix cache (private to the room).
//
// One turn: take messages, plan a step, wait for the step before, start the new one, commit the one before. At depth 1
// planning and committing happen while a step runs: lengths are optimistic (every step draws), an end that only the
// drawn token shows is seen one step late, and the row that ran for nothing is dropped. Nothing a submitted step refers
// to is given back before the step is committed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/inbox.h"
#include "engine/job.h"
#include "engine/stats.h"
#include "engine/step_runner.h"
#include "engine/store_queue.h"
#include "schedule/drafts.h"
#include "schedule/step_cost.h"
#include "store/load_cost.h"

namespace deepinfer {

struct LoopMessage {
  enum class Kind { kSubmit, kCancel, kFinish, kPause, kResume, kStore, kStop } kind = Kind::kStop;
  Engine::RequestId id = 0;
  std::shared_ptr<const Submission> submission;
  StoreTaskPtr task = {};  // an answer of the store
};

// What the loop needs to know of the model and its options; numbers only, so that it never touches the model itself.
struct LoopShape {
  int64_t max_context = 0, max_rows = 0;
  int64_t num_blocks = 0, num_states = 0, max_running = 0;
  int64_t swap_blocks = 0, swap_states = 0;
  WindowGeometry windows;
  int64_t max_drafts = 0;      // 0: no speculation
  bool keeps_history = false;  // the proposer reads all tokens
};

// States as bytes and back (model/sequence_state.h). Called on the engine thread while no step runs.
struct StateBytes {
  int64_t window_bytes = 0;  // of a state that serves the encoder alone
  std::function<void(StateId from, const StateExtent& extent, std::vector<std::byte>& to)> write;
  std::function<Result<StateExtent>(std::span<const std::byte> from, StateId to)> read;
};

class EngineLoop {
 public:
  // Borrows everything; `queued` counts answers that wait for their first admission. `store` may be null.
  EngineLoop(const LoopShape& shape, const EngineOptions& options, Executor& executor, Inbox<LoopMessage>& inbox,
             std::atomic<int64_t>& queued, StatsBoard& board, Counters& counters, StoreQueue* store, StateBytes state_bytes);

  // Until a stop message came and every request has ended.
  void run();

 private:
  // Beside a batch: which job each span and sample belongs to.
  struct Entry {
    Job* job = nullptr;
    uint64_t epoch = 0;
    int64_t first = 0, count = 0;
    int64_t drafts = 0;         // rows behind them; each may add a sample of the one job that draws
    double promised = 0;        // tokens that their scores let expect
    std::vector<Job*> drawing;  // jobs of the span's samples
  };
  struct Keep {
    Job* job = nullptr;
    uint64_t epoch = 0;
    StateId state{};
    KeptState kept;
  };
  struct Step {
    Batch batch;
    std::vector<Entry> entries;
    size_t num_entries = 0;  // entries are reused
    std::vector<Keep> keeps;
    int64_t decode_rows = 0, draft_rows = 0, prefill_rows = 0;
    double predicted_seconds = 0;  // 0: not known
  };

  // loop.cc
  void take_messages();
  void accept(const std::shared_ptr<const Submission>& submission);
  void add_job(const std::shared_ptr<const Submission>& submission, int32_t first_answer, int32_t answers);
  // Answer `index` of the submission; it holds no token from end_position on.
  std::unique_ptr<AnswerState> make_answer(const Submission& submission, int32_t index, int64_t end_position) const;
  void set_paused(Engine::RequestId id, bool paused);
  void forget_fork(Engine::RequestId id);
  void end_early(Engine::RequestId id, FinishReason reason);
  void end_late_requests();
  void commit(Step& step);
  void commit_span(Step& step, size_t index, const SpanFault* fault);
  void count_drafts(Entry& entry, std::span<const Sample> samples);
  void commit_token(Job& job, const SampleResult& result);
  void publish(Job& job);
  void extend_keys(Job& job);
  void finish_event(Job& job, int32_t answer_index, FinishReason reason, const std::optional<Error>& error);
  void end(Job& job, FinishReason reason, std::optional<Error> error = std::nullopt);  // all its answers
  void settle(Job& job);   // gives back what an ended job holds, once no step refers to it
  void give_back(Job& job, bool keep_prefix);
  void drop_swap(Job& job);
  void break_stall();
  void idle();
  void update_stats();

  // planning.cc
  bool plan(Step& step);
  void view_running();
  void view_waiting();
  bool speculates() const;
  void choose_drafts(Step& step);
  void look_up(Job& job);
  Hit cold(const Job& job) const;
  HitQuery query_of(const Job& job) const;
  void set_checkpoints(Job& job, const Hit& hit) const;
  bool can_promise_swap(int64_t blocks) const;
  void preempt(Job& job, Step& step);
  StateExtent whole_extent(const Job& job) const;
  void hold(const Job& job);
  void admit(Job& job, Step& step);
  bool add_span(Job& job, const Span& span, Step& step);
  bool grow(Job& job, int64_t count);  // allocates blocks until it holds `count`
  void split_forks(Job& job, Step& step, Entry& entry);
  void keep_copy(Job& job, int64_t position, Step& step);
  void add_sample(Job& job, Step& step, Entry& entry);
  void count_hit(const Job& job, const Hit& hit);
  bool keeps_states(const Job& job) const {
    return job.use_cache() && !job.derived && options_.keep_states;
  }
  KeptState describe_state(const Job& job, int64_t position);
  int64_t reserve_of(const Job& job) const;
  int64_t promised_states() const;

  // storing.cc
  bool waits_for_store(Job& job);
  bool is_at_store(const Job& job) const {
    return job.at_store == Job::AtStore::kFinding || job.at_store == Job::AtStore::kLoading;
  }
  void ask_store(Job& job);
  void take_answer(StoreTaskPtr task);
  void plan_load(StoreTaskPtr task);
  void finish_load(StoreTaskPtr task);
  void wake_waiting(const StoreTask& task);
  int64_t helpful_states(Job& job, int64_t blocks);
  bool use_quiet();
  void offer_state(const Job& job, StateId state, int64_t most);
  void write_states();
  bool read_states();
  StateExtent window_extent(int64_t position) const;
  int64_t blocks_in_memory(const Job& job, int64_t most) const;
  int64_t blocks_to_spare() const;
  void hand_over(Job& job, bool whole_pieces_only);
  void touch_stored(const Job& job, int64_t blocks);

  const LoopShape shape_;
  const EngineOptions& options_;
  const Clock& clock_;
  ScheduleLimits limits_;
  Inbox<LoopMessage>& inbox_;
  std::atomic<int64_t>& queued_;
  StatsBoard& board_;
  Counter &count_prompt_, &count_completion_, &count_cancelled_, &count_errors_;
  std::unique_ptr<StepRunner> runner_;
  StoreQueue* const store_;
  store::LoadCost load_cost_;
  store::LoadCost tier_cost_{.first_byte_s = 0.005, .bytes_per_s = 2e8};
  int64_t num_asked_ = 0;     // finds and loads on their way
  int64_t store_held_ = 0;    // blocks that writes and loads refer to
  struct OfferedState {
    StateId state{};
    int64_t position = 0;
    PrefixKey key = {};
    std::vector<PrefixKey> replaces = {};
    uint32_t domain = 0;
    uint64_t keep_number = 0;
  };
  const StateBytes state_bytes_;
  std::vector<OfferedState> offered_states_;  // kept ones that the store may have
  std::vector<std::vector<std::byte>> free_state_bytes_;
  int64_t num_states_writing_ = 0;
  std::vector<StoreTaskPtr> loaded_states_;  // to be kept when no step runs
  std::vector<StoreTaskPtr> planned_loads_;  // to start when no step runs that may still read their blocks
  std::unordered_map<PrefixKey, StoreTask*, PrefixKeyHash> loading_;  // by their first key; planned or on their way

  PrefixCache cache_;
  BlockPool swap_blocks_;
  std::vector<int32_t> free_swap_states_;
  int64_t promised_swap_blocks_ = 0, promised_swap_states_ = 0;  // of the free ones, set aside

  struct ByPlace {
    bool operator()(const Job* a, const Job* b) const { return a->place < b->place; }
  };
  std::unordered_map<Engine::RequestId, std::unique_ptr<Job>> jobs_;  // until settled
  std::unordered_map<Engine::RequestId, Engine::RequestId> fork_of_;  // answers that have no job of their own yet
  std::unordered_set<Engine::RequestId> paused_forks_;                // of them
  std::set<Job*, ByPlace> waiting_;
  std::vector<Job*> running_;
  std::multimap<Clock::time_point, Engine::RequestId> deadlines_;
  int64_t num_preempted_ = 0;  // of waiting_
  uint64_t next_place_ = 0;
  bool stopping_ = false;

  Step steps_[2];
  StepPlan plan_;
  StepCost cost_;
  DraftPolicy draft_policy_;
  std::vector<size_t> decoding_;  // indices into running_, of candidates_for_drafts_
  std::vector<DraftCandidate> candidates_for_drafts_;
  std::vector<RunningView> running_views_;
  std::vector<WaitingView> waiting_views_;
  std::vector<Job*> candidates_;  // of waiting_views_
  std::vector<Job*> planned_;     // by the indices of the plan
  EngineStats stats_;
  const int lane_;
};

}  // namespace deepinfer
