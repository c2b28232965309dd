// One engine in virtual time: the product's prefix cache, hit function, schedule and learnt step costs around a table
// of step times. What the engine does between them is done here in the same order (src/engine/planning.cc).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cache/prefix_cache.h"
#include "router/router.h"
#include "schedule/schedule.h"
#include "schedule/step_cost.h"
#include "simulator/histogram.h"
#include "simulator/shared_store.h"
#include "simulator/step_times.h"
#include "simulator/traffic.h"

namespace deepinfer::simulator {

struct WorkerOptions {
  int64_t num_blocks = 20000;  // of 128 tokens
  int64_t max_running = 32;
  int64_t kept_states = 64;      // window states beyond those of running sequences
  int64_t max_rows = 512;        // of a step
  int64_t prefill_rows = 64;     // of a step in which something decodes, at most
  double decode_slowdown = 1.8;  // how much longer prefill may make such a step
  int64_t reserve_tokens = 256;  // of output, at admission
  ContextMode mode = ContextMode::kStable;
  // Of the released model (model/kv_arena.h).
  WindowGeometry windows = {.window = 128,
                            .decoder_tail = kDecoderTail,
                            .encoder_back = kDecoderTail + kBlockTokens,
                            .step_back = 6,
                            .encoder_layers = 20,
                            .decoder_layers = 20};
  bool coalesce = true;  // equal decode steps as one event; the results are the same
};

// What happened, over all workers of a run.
struct Tally {
  Histogram ttft, tbt, answer;
  int64_t finished = 0, input_tokens = 0, output_tokens = 0, prefill_rows = 0;
  int64_t hit_tokens = 0, store_hit_tokens = 0;
  std::array<int64_t, kNumMissReasons> misses{};
  int64_t preempted = 0, steps = 0, events = 0;
  Histogram store_age;
};

class Worker {
 public:
  Worker(const WorkerOptions& options, const StepTimes& times, const Traffic& traffic, SharedStore& store,
         Tally& tally);

  // A request comes. What the store has beyond the cache is loaded first when that pays. Returns when it can be
  // planned.
  double arrive(const Request& request, uint64_t number, double now_s);
  // One whose load has ended, or that had none.
  void enter(uint64_t number, double now_s);

  // Plans the next step when nothing runs; the time at which it ends, or nullopt when there is nothing to do.
  std::optional<double> begin_step(double now_s);
  // The step that began last has ended.
  void end_step(double now_s);
  // A run of equal decode steps is cut to those begun by `now_s`; its new end. Requires a running step.
  double cut(double now_s);
  bool has_place() const { return std::ssize(running_) < options_.max_running; }
  bool is_running() const { return step_end_s_ >= 0; }
  double step_end_s() const { return step_end_s_; }

  // Full blocks of a request that are here, and those that the store has behind them.
  struct Reach {
    int64_t cached = 0, stored = 0;
  };
  Reach reach(std::span<const PrefixKey> keys) const;
  WorkerView view(const Request& request, std::span<const PrefixKey> keys) const;
  double busy_s() const { return busy_s_; }
  int64_t waiting() const { return std::ssize(waiting_) + std::ssize(loading_); }

 private:
  struct Job {
    const Request* request = nullptr;
    uint64_t number = 0;
    double arrival_s = 0, last_token_s = 0;
    std::vector<PrefixKey> keys;
    Place place;
    int64_t known = 0, done = 0, emitted = 0, published = 0;
    int64_t decoder_first = 0, high = 0, whole_from = 0;
    bool derived = false;    // publishes nothing
    int64_t checkpoint = 0;  // where this prompt parts from what others left, when no state stands near enough
    std::vector<BlockId> blocks;
    std::optional<StateId> state;
    std::optional<Hit> hit;
    uint64_t hit_version = 0;
    int64_t bypassed = 0;
    int64_t loaded_first = 0, loaded_end = 0;  // blocks that came from the store
    int64_t queued_tokens = 0;                 // counted in queued_tokens_
    bool started = false;
  };
  using JobPtr = std::unique_ptr<Job>;

  void look_up(Job& job);
  void view_running();
  void view_waiting();
  void admit(Job& job);
  void preempt(Job& job);
  void publish(Job& job, double now_s);
  KeptState describe_state(const Job& job, int64_t blocks) const;
  void keep_copy(const Job& job, int64_t blocks);
  void emit(Job& job, double now_s, double step_s, int64_t tokens);
  bool finish(Job& job, double now_s);
  int64_t coalesced_steps() const;
  void load(Job& job, double now_s);
  void count_queued(Job& job, int64_t tokens);

  const WorkerOptions options_;
  const StepTimes& times_;  // of the simulator, as the following
  const Traffic& traffic_;
  SharedStore& store_;
  Tally& tally_;
  PrefixCache cache_;
  StepCost cost_;
  ScheduleLimits limits_;
  StepPlan plan_;
  std::vector<JobPtr> running_, waiting_, loading_;
  std::vector<Job*> order_;  // of the step that runs
  std::vector<RunningView> running_views_;
  std::vector<WaitingView> waiting_views_;
  std::vector<int32_t> tokens_;  // scratch: a prompt
  double step_begin_s_ = 0, step_end_s_ = -1, one_step_s_ = 0;
  int64_t repeats_ = 1;  // equal decode steps that run as one
  double load_free_s_ = 0, busy_s_ = 0;
  int64_t queued_tokens_ = 0;  // to prefill
};

// Names of the full 128-token blocks of a request's input that its ids cover.
void keys_of(const Traffic& traffic, const Request& request, std::vector<PrefixKey>& keys);

}  // namespace deepinfer::simulator
