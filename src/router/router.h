// What it costs to send a request to a worker, in seconds, and the choice that follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace deepinfer {

struct WorkerView {
  double queued_s = 0;     // prefill work that waits there
  int64_t hit_tokens = 0;  // the longest prefix that it can get from any tier it reaches
  double load_s = 0;       // time to load the part of it that is not in its memory
  int64_t running = 0, max_running = 1;
  double kv_use = 0;  // of its blocks that running sequences hold, 0 to 1
  int64_t waiting = 0, max_waiting = INT64_MAX;
};

struct RouteRequest {
  int64_t tokens = 0;
  double seconds_per_token = 0;  // of prefill
  uint64_t prefix = 0;           // a name of its beginning, for those who route by hash
};

// 0 below 0.85 of the KV blocks or of the places; then steep, up to kMostPressure seconds.
inline constexpr double kMostPressure = 10;
double decode_pressure(const WorkerView& worker);

// What a second saved by the cache is worth: 1 while workers idle, 2 from a utilisation of 0.7 on. A hit saves work
// that others would wait for, so it is worth more than its own seconds when there is a queue.
double cache_weight(double utilisation);

// queued + prefill - weight x (prefill saved - load) + decode pressure.
double route_cost(const RouteRequest& request, const WorkerView& worker, double weight);

enum class RoutePolicy {
  kRandom,
  kLeastQueue,
  kHash,       // by the beginning of the prompt, whatever waits there
  kPrefix,     // longest hit, whatever waits there
  kThreshold,  // longest hit when it is half of the prompt and queues are even; least queue otherwise
  kWeighted,   // hit ratio counts twice the relative queue
  kCost,       // route_cost, weight 1
  kCost2,      // weight 2
  kAdaptive,   // weight by utilisation
};
inline constexpr int kNumRoutePolicies = 9;
std::string_view route_policy_name(RoutePolicy policy);
std::optional<RoutePolicy> find_route_policy(std::string_view name);

// A worker below its cap; nullopt when there is none. random: any number, decides among equals. utilisation: of all
// workers.
std::optional<size_t> choose_worker(RoutePolicy policy, const RouteRequest& request,
                                    std::span<const WorkerView> workers, uint64_t random, double utilisation = 0);

}  // namespace deepinfer
