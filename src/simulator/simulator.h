// A cluster in virtual time: requests come, a policy routes them, workers plan steps with the product's own cache and
// schedule. Discrete events; the same inputs and seed give the same results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "router/router.h"
#include "simulator/worker.h"

namespace deepinfer::simulator {

struct Cluster {
  int64_t workers = 1;
  RoutePolicy policy = RoutePolicy::kAdaptive;
  int64_t max_waiting = INT64_MAX;  // requests that may wait in a worker; others wait in front
  WorkerOptions worker;
  StepTimes times;
  SharedStore::Options store;
  uint64_t seed = 1;
};

struct Results {
  Tally tally;
  double seconds = 0;      // virtual, until the last answer ended
  double utilisation = 0;  // of the workers: busy time
  double output_per_s = 0;
  int64_t events = 0;
  int64_t store_blocks = 0, store_refused = 0;

  double hit() const { return share(tally.hit_tokens); }
  double store_hit() const { return share(tally.store_hit_tokens); }

 private:
  double share(int64_t tokens) const {
    return tally.input_tokens == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(tally.input_tokens);
  }
};

// kInvalidArgument when a request can never fit a worker, or an option is out of range.
Result<Results> simulate(const Cluster& cluster, const Traffic& traffic);

struct Objective {
  std::optional<double> ttft_p50 = {}, ttft_p90 = {}, ttft_p99 = {}, tbt_p50 = {}, tbt_p99 = {};  // seconds
};
bool meets(const Objective& objective, const Results& results);
// The fewest workers, up to `most`, that meet the objective, by bisection; nullopt when `most` do not.
struct Sized {
  int64_t workers;
  Results results;
};
Result<std::optional<Sized>> smallest_cluster(Cluster cluster, const Traffic& traffic, const Objective& objective,
                                              int64_t most);

}  // namespace deepinfer::simulator
