#include "router/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace deepinfer {
namespace {

constexpr std::array<std::string_view, kNumRoutePolicies> kNames = {
    "random", "least-queue", "hash", "prefix", "threshold", "weighted", "cost-1", "cost-2", "adaptive"};

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool has_room(const WorkerView& worker) {
  return worker.waiting < worker.max_waiting;
}

// Queues so uneven that a hit must not decide: beyond 10 % and more than 32 waiting between the ends.
bool is_uneven(std::span<const WorkerView> workers) {
  int64_t most = 0, least = INT64_MAX;
  for (const WorkerView& worker : workers) {
    const int64_t load = worker.waiting + worker.running;
    most = std::max(most, load);
    least = std::min(least, load);
  }
  return most - least > 32 && static_cast<double>(most) > 1.1 * static_cast<double>(least);
}

// The worker of least cost that has room; among equals, the random number decides.
template <typename Cost>
std::optional<size_t> least(std::span<const WorkerView> workers, uint64_t random, const Cost& cost) {
  std::optional<size_t> best;
  double best_cost = 0;
  uint64_t best_mark = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!has_room(workers[i])) continue;
    const double here = cost(workers[i], i);
    if (best && here > best_cost) continue;
    const uint64_t mark = mix(random ^ i);
    if (best && here == best_cost && mark > best_mark) continue;
    best = i;
    best_cost = here;
    best_mark = mark;
  }
  return best;
}

}  // namespace

double decode_pressure(const WorkerView& worker) {
  const double places =
      static_cast<double>(worker.running) / static_cast<double>(std::max<int64_t>(1, worker.max_running));
  const double over = (std::max(worker.kv_use, places) - 0.85) / 0.15;
  return over <= 0 ? 0 : kMostPressure * std::min(1.0, over * over);
}

double cache_weight(double utilisation) {
  return 1 + std::clamp(utilisation / 0.7, 0.0, 1.0);
}

double route_cost(const RouteRequest& request, const WorkerView& worker, double weight) {
  const double prefill = static_cast<double>(request.tokens) * request.seconds_per_token;
  const double saved = static_cast<double>(worker.hit_tokens) * request.seconds_per_token - worker.load_s;
  return worker.queued_s + prefill - weight * std::max(0.0, saved) + decode_pressure(worker);
}

std::string_view route_policy_name(RoutePolicy policy) {
  return kNames[static_cast<size_t>(policy)];
}

std::optional<RoutePolicy> find_route_policy(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<RoutePolicy>(found - kNames.begin());
}

std::optional<size_t> choose_worker(RoutePolicy policy, const RouteRequest& request,
                                    std::span<const WorkerView> workers, uint64_t random, double utilisation) {
  const auto tokens = static_cast<double>(std::max<int64_t>(1, request.tokens));
  const auto ratio = [&](const WorkerView& worker) { return static_cast<double>(worker.hit_tokens) / tokens; };
  const auto queue = [](const WorkerView& worker, size_t) { return worker.queued_s + decode_pressure(worker); };
  const auto by_cost = [&](double weight) {
    return least(workers, random,
                 [&](const WorkerView& worker, size_t) { return route_cost(request, worker, weight); });
  };
  switch (policy) {
    case RoutePolicy::kRandom:
      return least(workers, random, [](const WorkerView&, size_t) { return 0.0; });
    case RoutePolicy::kLeastQueue:
      return least(workers, random, queue);
    case RoutePolicy::kHash:  // the highest mark wins, so a worker that goes moves only its own requests
      return least(workers, random, [&](const WorkerView&, size_t i) {
        return -std::ldexp(static_cast<double>(mix(request.prefix ^ mix(i + 1)) >> 11), -53);
      });
    case RoutePolicy::kPrefix:
      return least(workers, random, [&](const WorkerView& worker, size_t) { return -ratio(worker); });
    case RoutePolicy::kThreshold: {
      const auto best = least(workers, random, [&](const WorkerView& worker, size_t) { return -ratio(worker); });
      if (best && ratio(workers[*best]) > 0.5 && !is_uneven(workers)) return best;
      return least(workers, random, queue);
    }
    case RoutePolicy::kWeighted: {
      double longest = 0;
      for (const WorkerView& worker : workers) longest = std::max(longest, worker.queued_s);
      return least(workers, random, [&](const WorkerView& worker, size_t) {
        return (longest > 0 ? worker.queued_s / longest : 0) - 2 * ratio(worker);
      });
    }
    case RoutePolicy::kCost:
      return by_cost(1);
    case RoutePolicy::kCost2:
      return by_cost(2);
    case RoutePolicy::kAdaptive:
      return by_cost(cache_weight(utilisation));
  }
  return std::nullopt;
}

}  // namespace deepinfer
