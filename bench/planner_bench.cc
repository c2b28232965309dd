// The planner's speed: how many times a second a model is computed, and the simulator's events a second, memory and
// time for an hour of a trace on 64 workers and for many workers with many requests. Traces are not in the tree:
// --trace FILE.
#include <fmt/core.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <string>

#include "planner/planner.h"
#include "planner/trace.h"
#include "simulator/simulator.h"

namespace deepinfer::bench {
namespace {

using Seconds = std::chrono::duration<double>;

double now() {
  return std::chrono::duration_cast<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void compute_models() {
  for (const planner::Model* model : planner::all_models()) {
    const planner::Values inputs = model->defaults();
    int64_t runs = 0;
    const double begin = now();
    while (now() - begin < 0.3) {
      for (int i = 0; i < 100; ++i) runs += model->compute(inputs).back() == 0 ? 1 : 1;
    }
    fmt::print("{:<34} {:>12.0f} a second, {} figures\n", "model " + model->name(),
               static_cast<double>(runs) / (now() - begin), model->figures().size());
  }
}

void report(const std::string& name, const simulator::Cluster& cluster, const simulator::Traffic& traffic) {
  const double begin = now(), cpu = cpu_seconds();
  const auto results = simulate(cluster, traffic);
  if (!results.ok()) {
    fmt::print("{}: {}\n", name, results.error().message());
    return;
  }
  const double used = cpu_seconds() - cpu;
  fmt::print(
      "{:<34} {:>9} requests {:>5} workers: {:>7.1f} s of CPU ({:.1f} s), {:.2f} M events/s, {:.1f} M steps, peak "
      "{:.2f} GiB; hit {:.1f} %, ttft p50 {:.3f} s\n",
      name, traffic.requests.size(), cluster.workers, used, now() - begin,
      static_cast<double>(results->events) / used / 1e6, static_cast<double>(results->tally.steps) / 1e6, peak_gib(),
      100 * results->hit(), results->tally.ttft.percentile(0.5));
}

simulator::Cluster cluster_of(int64_t workers, int64_t blocks) {
  simulator::Cluster cluster;
  cluster.workers = workers;
  cluster.times = *simulator::step_times_of("published");
  cluster.worker.num_blocks = blocks;
  cluster.worker.max_rows = 8192;
  cluster.worker.prefill_rows = 2048;
  cluster.policy = RoutePolicy::kCost2;
  return cluster;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  using namespace deepinfer;
  using namespace deepinfer::bench;
  std::string trace_path;
  int64_t requests = 100000, workers = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--trace") == 0) trace_path = argv[i + 1];
    if (std::strcmp(argv[i], "--requests") == 0) requests = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--workers") == 0) workers = std::atoll(argv[i + 1]);
  }
  compute_models();
  if (!trace_path.empty()) {
    const auto trace = planner::read_trace(trace_path);
    if (!trace.ok()) {
      fmt::print(stderr, "{}\n", trace.error().message());
      return 1;
    }
    report("trace", cluster_of(64, 20000), simulator::scale_trace(*trace, 1, 1));
    const auto count = std::ssize(trace->requests);
    report("trace, many copies", cluster_of(workers, 2500),
           simulator::scale_trace(*trace, (requests + count - 1) / count, 1));
    return 0;
  }
  // About seven requests a session.
  const double per_second = static_cast<double>(requests) / 7 / 3600;
  report("sessions, an hour", cluster_of(64, 20000), simulator::draw_sessions({.sessions_per_s = 0.5}, 1));
  report("sessions, many", cluster_of(workers, 2500), simulator::draw_sessions({.sessions_per_s = per_second}, 1));
  return 0;
}
