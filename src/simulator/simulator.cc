#include "simulator/simulator.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "base/random.h"
#include "cache/block_pool.h"

namespace deepinfer::simulator {
namespace {

struct Event {
  double time_s;
  uint64_t order;  // among equals, the one that was made first
  bool is_load;    // a load ended; else a step
  size_t worker;
  uint64_t number;  // of the request
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time_s != b.time_s ? a.time_s > b.time_s : a.order > b.order;
  }
};

class Run {
 public:
  Run(const Cluster& cluster, const Traffic& traffic) : cluster_(cluster), traffic_(traffic), store_(cluster.store) {
    for (int64_t i = 0; i < cluster.workers; ++i)
      workers_.push_back(std::make_unique<Worker>(cluster.worker, cluster.times, traffic, store_, results_.tally));
    views_.resize(workers_.size());
  }

  Results run() {
    size_t next = 0;
    const auto& requests = traffic_.requests;
    while (next < requests.size() || !events_.empty()) {
      const bool arrives =
          next < requests.size() && (events_.empty() || requests[next].arrival_s <= events_.top().time_s);
      if (arrives) {
        now_s_ = requests[next].arrival_s;
        front_.push_back(next++);
      } else {
        handle();
      }
      while (!front_.empty() && dispatch(front_.front())) front_.pop_front();
      ++results_.events;
    }
    CHECK(front_.empty());
    double busy = 0;
    for (const auto& worker : workers_) busy += worker->busy_s();
    results_.seconds = now_s_;
    if (now_s_ > 0) {
      results_.utilisation = busy / (now_s_ * static_cast<double>(workers_.size()));
      results_.output_per_s = static_cast<double>(results_.tally.output_tokens) / now_s_;
    }
    results_.store_blocks = store_.num_blocks();
    results_.store_refused = store_.refused();
    return std::move(results_);
  }

 private:
  void handle() {
    const Event event = events_.top();
    events_.pop();
    Worker& worker = *workers_[event.worker];
    if (event.is_load) {
      now_s_ = event.time_s;
      worker.enter(event.number, now_s_);
      wake(event.worker);
    } else if (worker.is_running() && worker.step_end_s() == event.time_s) {  // not one that was cut
      now_s_ = event.time_s;
      worker.end_step(now_s_);
      wake(event.worker);
    }
  }

  // Lets the worker plan, or ends a run of equal steps early because something changed.
  void wake(size_t index) {
    Worker& worker = *workers_[index];
    if (worker.is_running()) {
      const double before = worker.step_end_s();
      if (worker.has_place() && worker.cut(now_s_) != before) push(worker.step_end_s(), false, index, 0);
    } else if (const auto end = worker.begin_step(now_s_)) {
      push(*end, false, index, 0);
    }
  }

  bool dispatch(size_t number) {
    const Request& request = traffic_.requests[number];
    keys_of(traffic_, request, keys_);
    double busy = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const bool looks = cluster_.policy != RoutePolicy::kRandom && cluster_.policy != RoutePolicy::kLeastQueue &&
                         cluster_.policy != RoutePolicy::kHash;
      views_[i] = workers_[i]->view(request, looks ? std::span<const PrefixKey>(keys_) : std::span<const PrefixKey>());
      views_[i].max_waiting = cluster_.max_waiting;
      busy += workers_[i]->is_running() ? 1 : 0;
    }
    utilisation_ += 0.05 * (busy / static_cast<double>(workers_.size()) - utilisation_);
    const RouteRequest route{request.input, cluster_.times.prefill_row_s,
                             request.num_ids > 0 ? route_name(request) : number};
    const auto random =
        philox4x32(cluster_.seed, {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0});
    const auto chosen =
        choose_worker(cluster_.policy, route, views_, static_cast<uint64_t>(random[0]) << 32 | random[1], utilisation_);
    if (!chosen) return false;
    push(workers_[*chosen]->arrive(request, number, now_s_), true, *chosen, number);
    return true;
  }

  // The second block's id: the first is often a system prompt that all share.
  uint64_t route_name(const Request& request) const {
    const int64_t place = std::min<int64_t>(1, request.num_ids - 1);
    return static_cast<uint64_t>(traffic_.ids[static_cast<size_t>(request.first_id + place)]);
  }

  void push(double time_s, bool is_load, size_t worker, uint64_t number) {
    events_.push({time_s, order_++, is_load, worker, number});
  }

  const Cluster& cluster_;
  const Traffic& traffic_;
  SharedStore store_;
  Results results_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<WorkerView> views_;
  std::vector<PrefixKey> keys_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::deque<size_t> front_;  // requests for which no worker has room
  uint64_t order_ = 0;
  double now_s_ = 0, utilisation_ = 0;
};

}  // namespace

Result<Results> simulate(const Cluster& cluster, const Traffic& traffic) {
  const WorkerOptions& worker = cluster.worker;
  if (cluster.workers < 1 || cluster.workers > 100000)
    return Error(Code::kInvalidArgument, "workers: found {}, expected 1 to 100000", cluster.workers);
  if (worker.max_running < 1 || worker.max_running > worker.max_rows)
    return Error(Code::kInvalidArgument, "max_running: found {}, expected 1 to the rows of a step ({})",
                 worker.max_running, worker.max_rows);
  if (!(cluster.times.prefill_row_s > 0))
    return Error(Code::kInvalidArgument, "step times: found no prefill rate, expected one above 0");
  for (size_t i = 0; i < traffic.requests.size(); ++i) {
    const Request& request = traffic.requests[i];
    const int64_t needed = (request.input + request.output) / kBlockTokens + 2;
    if (needed > worker.num_blocks)
      return Error(Code::kInvalidArgument,
                   "request {}: {} tokens of input and {} of output need {} KV blocks, found {} a worker; expected "
                   "more (--kv-blocks)",
                   i + 1, request.input, request.output, needed, worker.num_blocks);
  }
  return Run(cluster, traffic).run();
}

bool meets(const Objective& objective, const Results& results) {
  const auto under = [](const std::optional<double>& limit, double value) { return !limit || value <= *limit; };
  const Tally& tally = results.tally;
  return under(objective.ttft_p50, tally.ttft.percentile(0.5)) &&
         under(objective.ttft_p90, tally.ttft.percentile(0.9)) &&
         under(objective.ttft_p99, tally.ttft.percentile(0.99)) &&
         under(objective.tbt_p50, tally.tbt.percentile(0.5)) && under(objective.tbt_p99, tally.tbt.percentile(0.99));
}

Result<std::optional<Sized>> smallest_cluster(Cluster cluster, const Traffic& traffic, const Objective& objective,
                                              int64_t most) {
  std::optional<Sized> best;
  int64_t low = 1, high = most;
  // The widest first: without it no bisection is needed.
  for (int64_t workers = most; low <= high; workers = low + (high - low) / 2) {
    cluster.workers = workers;
    ASSIGN_OR_RETURN(Results results, simulate(cluster, traffic));
    if (meets(objective, results)) {
      best = Sized{workers, std::move(results)};
      high = workers - 1;
    } else if (workers == most) {
      return std::optional<Sized>();
    } else {
      low = workers + 1;
    }
  }
  return best;
}

}  // namespace deepinfer::simulator
