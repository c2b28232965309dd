#include "simulator/traffic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace deepinfer::simulator {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double unit(uint64_t word) {
  return std::ldexp(static_cast<double>(word >> 11), -53);
}  // [0, 1)

void sort_by_arrival(Traffic& traffic) {
  std::stable_sort(traffic.requests.begin(), traffic.requests.end(),
                   [](const Request& a, const Request& b) { return a.arrival_s < b.arrival_s; });
}

// Draws that are the same with every library: the standard's distributions are not.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  double uniform() { return unit(random_()); }
  double exponential(double mean) { return -mean * std::log(1 - uniform()); }
  double log_normal(double median, double sigma) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return median * std::exp(sigma * radius * std::cos(2 * M_PI * uniform()));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

PrefixKey block_key(int64_t id, int64_t part) {
  const uint64_t words[4] = {mix(mix(static_cast<uint64_t>(id)) + static_cast<uint64_t>(part)),
                             static_cast<uint64_t>(id), static_cast<uint64_t>(part), 0};
  PrefixKey key;
  static_assert(sizeof(words) == sizeof(key));
  std::memcpy(key.data(), words, sizeof(words));
  return key;
}

int32_t block_token(const PrefixKey& key) {
  int32_t token;
  std::memcpy(&token, key.data(), sizeof(token));
  return token & 0x7fffffff;
}

Traffic scale_trace(const planner::Trace& trace, int64_t copies, uint64_t seed) {
  Traffic traffic;
  traffic.id_tokens = trace.block_tokens;
  for (int64_t copy = 0; copy < copies; ++copy) {
    int64_t number = 0;
    for (const planner::TraceRequest& from : trace.requests) {
      Request request{from.arrival_s, from.input, std::max<int64_t>(1, from.output), std::ssize(traffic.ids),
                      std::ssize(from.blocks)};
      if (copy > 0) request.arrival_s += 60 * unit(mix(seed ^ mix(static_cast<uint64_t>(copy << 32 | number))));
      for (const int64_t id : from.blocks) traffic.ids.push_back(id | copy << 40);
      traffic.requests.push_back(request);
      ++number;
    }
  }
  sort_by_arrival(traffic);
  return traffic;
}

Traffic draw_sessions(const SessionOptions& options, uint64_t seed) {
  Traffic traffic;
  traffic.id_tokens = 128;
  Draws draws(seed);
  const int64_t shared = options.shared_prompt / traffic.id_tokens;
  int64_t next_id = shared;
  for (double start = draws.exponential(1 / options.sessions_per_s); start < options.hours * 3600;
       start += draws.exponential(1 / options.sessions_per_s)) {
    const bool agent = draws.uniform() < options.agent_share;
    const bool pauses = agent && draws.uniform() < 0.1;
    const int64_t turns = 1 + static_cast<int64_t>(draws.exponential(options.turns - 1));
    std::vector<int64_t> history;
    for (int64_t id = 0; id < shared; ++id) history.push_back(id);
    int64_t tokens = options.shared_prompt;
    double when = start;
    for (int64_t turn = 0; turn < turns; ++turn) {
      tokens += 1 + static_cast<int64_t>(draws.log_normal(turn == 0 ? options.first_input : options.later_input, 1));
      while (std::ssize(history) < tokens / traffic.id_tokens) history.push_back(next_id++);
      const auto output = 1 + static_cast<int64_t>(draws.log_normal(options.output / 1.5, 0.9));
      if (tokens + output > 1000000) break;
      traffic.requests.push_back({when, tokens, output, std::ssize(traffic.ids), std::ssize(history)});
      traffic.ids.insert(traffic.ids.end(), history.begin(), history.end());
      tokens += output;
      when += agent ? draws.log_normal(4, 1) : draws.log_normal(60, 1);
      if (pauses && turn == turns / 2) when += draws.log_normal(2 * 3600.0, 0.5);
    }
  }
  sort_by_arrival(traffic);
  return traffic;
}

}  // namespace deepinfer::simulator
