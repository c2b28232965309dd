#include "apps/simulate_command.h"

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/read_file.h"
#include "json/json.h"
#include "planner/trace.h"
#include "simulator/simulator.h"

namespace deepinfer {
namespace {

using simulator::Cluster;
using simulator::Results;

constexpr char kExamples[] =
    R"(Traces: JSON lines {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]} (kvcache-ai/Mooncake,
FAST25-release/traces) or CSV TIMESTAMP,ContextTokens,GeneratedTokens, plain or gzip. Without one, sessions of people and
agents are drawn. Policies: random, least-queue, hash, prefix, threshold, weighted, cost-1, cost-2, adaptive; "all" compares
them, with and without a shared store. --measured takes {"decode": [[rows, seconds], ...], "prefill_row_seconds": s}.

Examples:
  deepinfer simulate --trace conversation_trace.jsonl.gz --workers 8 --policy all
  deepinfer simulate --trace conversation_trace.jsonl.gz --prefill-rate 6000 --workers 8 --kv-blocks 20000 --policy all
  deepinfer simulate --hours 2 --sessions 0.5 --hardware cpu:2x64c-ddr5,nvme:2 --workers 40 --store-blocks 1000000
  deepinfer simulate --trace conversation_trace.jsonl.gz --slo ttft_p90=2 --slo tbt_p99=0.1 --most-workers 64)";

struct SimulateOptions {
  std::string trace, hardware = "published", measured, policy = "adaptive", mode = "stable";
  Cluster cluster;
  simulator::SessionOptions sessions;
  double prefill_rate = 0, retention_hours = 0;
  int64_t copies = 1, most_workers = 64, queue_cap = 0;
  std::vector<std::string> objectives;
  bool json = false;
};

Result<simulator::Traffic> read_traffic(const SimulateOptions& options) {
  if (options.trace.empty()) {
    const auto& [rate, hours, agents, turns, first, later, output, shared] = options.sessions;
    if (!(rate > 0) || !(hours > 0) || !(agents >= 0 && agents <= 1) || !(turns >= 1))
      return Error(Code::kInvalidArgument,
                   "sessions: found {} a second for {} h, {} agents, {} turns; expected numbers above 0, agents 0 to "
                   "1, turns from 1",
                   rate, hours, agents, turns);
    simulator::Traffic traffic = draw_sessions(options.sessions, options.cluster.seed);
    if (traffic.requests.empty())
      return Error(Code::kInvalidArgument, "--hours: found {}, in which no session begins; expected more", hours);
    return traffic;
  }
  if (options.copies < 1 || options.copies > 10000)
    return Error(Code::kInvalidArgument, "--scale: found {}, expected 1 to 10000", options.copies);
  ASSIGN_OR_RETURN(const planner::Trace trace, planner::read_trace(options.trace));
  return simulator::scale_trace(trace, options.copies, options.cluster.seed);
}

Result<simulator::StepTimes> read_step_times(const SimulateOptions& options) {
  if (options.prefill_rate != 0) {  // prefill servers, decode elsewhere
    if (!(options.prefill_rate > 0))
      return Error(Code::kInvalidArgument, "--prefill-rate: found {}, expected tokens a second above 0",
                   options.prefill_rate);
    simulator::StepTimes times;
    times.prefill_row_s = 1 / options.prefill_rate;
    times.load_bytes_per_s = 2e9;
    return times;
  }
  if (options.measured.empty()) return simulator::step_times_of(options.hardware);
  ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(options.measured, 1 << 20));
  auto times = simulator::parse_step_times(text);
  if (!times.ok()) return times.error().in(options.measured);
  return times;
}

Result<simulator::Objective> parse_objectives(const std::vector<std::string>& texts) {
  simulator::Objective objective;
  const std::pair<std::string_view, std::optional<double>*> names[] = {{"ttft_p50", &objective.ttft_p50},
                                                                       {"ttft_p90", &objective.ttft_p90},
                                                                       {"ttft_p99", &objective.ttft_p99},
                                                                       {"tbt_p50", &objective.tbt_p50},
                                                                       {"tbt_p99", &objective.tbt_p99}};
  for (const std::string& text : texts) {
    bool known = false;
    for (const auto& [name, limit] : names) {
      if (!text.starts_with(std::string(name) + "=")) continue;
      char* end = nullptr;
      const char* digits = text.c_str() + name.size() + 1;
      const double value = std::strtod(digits, &end);
      known = end != digits && *end == 0 && value > 0 && value < 1e9;
      if (known) *limit = value;
    }
    if (!known)
      return Error(
          Code::kInvalidArgument,
          "--slo: found '{}', expected ttft_p50, ttft_p90, ttft_p99, tbt_p50 or tbt_p99 and seconds, as in ttft_p90=2",
          text);
  }
  return objective;
}

struct Case {
  std::string name;
  Results results;
  double wall_s;
};

void print_header() {
  print_output("{:<26} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>6} {:>9}\n", "policy", "ttft p50", "p90", "p99",
               "tbt p50", "p99", "hit", "store", "busy", "out/s");
}

void print_case(const Case& one) {
  const simulator::Tally& tally = one.results.tally;
  print_output("{:<26} {:>8.3f} {:>8.3f} {:>8.2f} {:>8.4f} {:>8.4f} {:>6.1f}% {:>6.1f}% {:>5.0f}% {:>9.1f}\n", one.name,
               tally.ttft.percentile(0.5), tally.ttft.percentile(0.9), tally.ttft.percentile(0.99),
               tally.tbt.percentile(0.5), tally.tbt.percentile(0.99), 100 * one.results.hit(),
               100 * one.results.store_hit(), 100 * one.results.utilisation, one.results.output_per_s);
}

void write_case(JsonWriter& writer, const Case& one, int64_t workers) {
  const simulator::Tally& tally = one.results.tally;
  const auto spread = [&](std::string_view name, const simulator::Histogram& histogram) {
    writer.key(name).begin_object().member("mean", histogram.mean());
    for (const auto& [key, share] : {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)})
      writer.member(key, histogram.percentile(share));
    writer.end_object();
  };
  writer.begin_object().member("policy", one.name).member("workers", workers).member("finished", tally.finished);
  spread("ttft_s", tally.ttft);
  spread("tbt_s", tally.tbt);
  spread("answer_s", tally.answer);
  spread("store_age_s", tally.store_age);
  writer.member("hit", one.results.hit())
      .member("store_hit", one.results.store_hit())
      .member("utilisation", one.results.utilisation)
      .member("input_tokens", tally.input_tokens)
      .member("output_tokens", tally.output_tokens)
      .member("output_per_s", one.results.output_per_s)
      .member("seconds", one.results.seconds)
      .member("steps", tally.steps)
      .member("events", one.results.events)
      .member("preempted", tally.preempted)
      .member("store_blocks", one.results.store_blocks)
      .member("store_refused", one.results.store_refused);
  writer.key("misses").begin_object();
  for (size_t reason = 0; reason < tally.misses.size(); ++reason)
    if (tally.misses[reason] > 0)
      writer.member(miss_reason_name(static_cast<MissReason>(reason)), tally.misses[reason]);
  writer.end_object().end_object();
}

// The policies to run, each with its name and whether a shared store stands behind it.
Result<std::vector<std::pair<std::string, Cluster>>> cases_of(const SimulateOptions& options, const Cluster& cluster) {
  std::vector<std::pair<std::string, Cluster>> cases;
  if (options.policy != "all") {
    const auto policy = find_route_policy(options.policy);
    if (!policy) {
      std::string names;
      for (int i = 0; i < kNumRoutePolicies; ++i)
        names += fmt::format("{}, ", route_policy_name(static_cast<RoutePolicy>(i)));
      return Error(Code::kInvalidArgument, "--policy: found '{}', expected {}or all", options.policy, names);
    }
    cases.emplace_back(options.policy, cluster);
    cases.back().second.policy = *policy;
    return cases;
  }
  for (int i = 0; i < kNumRoutePolicies; ++i) {
    cases.emplace_back(route_policy_name(static_cast<RoutePolicy>(i)), cluster);
    cases.back().second.policy = static_cast<RoutePolicy>(i);
    cases.back().second.store.num_blocks = 0;
  }
  for (const RoutePolicy policy : {RoutePolicy::kLeastQueue, RoutePolicy::kAdaptive}) {
    cases.emplace_back(fmt::format("{} + shared store", route_policy_name(policy)), cluster);
    cases.back().second.policy = policy;
    if (cluster.store.num_blocks == 0) cases.back().second.store.num_blocks = int64_t{1} << 40;
  }
  return cases;
}

Status find_smallest(const SimulateOptions& options, const Cluster& cluster, const simulator::Traffic& traffic) {
  ASSIGN_OR_RETURN(const simulator::Objective objective, parse_objectives(options.objectives));
  ASSIGN_OR_RETURN(auto cases, cases_of(options, cluster));
  if (!options.json) print_header();
  for (auto& [name, one] : cases) {
    ASSIGN_OR_RETURN(const auto sized, smallest_cluster(one, traffic, objective, options.most_workers));
    if (!sized) {
      print_output("{:<26} not met with {} workers\n", name, options.most_workers);
      continue;
    }
    const Case found{fmt::format("{}: {} workers", name, sized->workers), sized->results, 0};
    if (!options.json) {
      print_case(found);
      continue;
    }
    std::string line;
    JsonWriter writer(line);
    write_case(writer, found, sized->workers);
    write_output(line + "\n");
  }
  return {};
}

Status run_simulate(const SimulateOptions& options) {
  Cluster cluster = options.cluster;
  if (options.queue_cap > 0) cluster.max_waiting = options.queue_cap;
  cluster.worker.mode = *context_mode_of(options.mode);
  cluster.store.retention_s = options.retention_hours * 3600;
  ASSIGN_OR_RETURN(cluster.times, read_step_times(options));
  ASSIGN_OR_RETURN(simulator::Traffic traffic, read_traffic(options));
  if (options.prefill_rate > 0)  // the rest of an answer comes from elsewhere
    for (simulator::Request& request : traffic.requests) request.output = 1;
  if (!options.objectives.empty()) return find_smallest(options, cluster, traffic);
  ASSIGN_OR_RETURN(const auto cases, cases_of(options, cluster));
  if (!options.json) {
    print_output("{} requests in {:.0f} s on {} workers of {} ({} KV blocks, {} answers at a time); seconds\n\n",
                 traffic.requests.size(), traffic.requests.back().arrival_s, cluster.workers,
                 options.prefill_rate > 0   ? fmt::format("{} tokens/s of prefill", options.prefill_rate)
                 : options.measured.empty() ? options.hardware
                                            : options.measured,
                 cluster.worker.num_blocks, cluster.worker.max_running);
    print_header();
  }
  for (const auto& [name, one] : cases) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(Results results, simulate(one, traffic));
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const Case done{name, std::move(results), wall_s};
    if (options.json) {
      std::string line;
      JsonWriter writer(line);
      write_case(writer, done, one.workers);
      write_output(line + "\n");
    } else {
      print_case(done);
      RETURN_IF_ERROR(flush_output());
      print_note("  {}: {} events in {:.1f} s\n", name, done.results.events, wall_s);
    }
  }
  return {};
}

void add_cluster_options(CLI::App& parser, SimulateOptions& options) {
  Cluster& cluster = options.cluster;
  parser.add_option("--workers", cluster.workers, "servers")->capture_default_str();
  parser.add_option("--hardware", options.hardware, "what a worker is, as for plan: a profile or cpu:...")
      ->capture_default_str();
  add_path_option(parser, "--measured", options.measured, "step times measured on a machine, a JSON file");
  parser.add_option("--prefill-rate", options.prefill_rate, "workers that only prefill, at this many tokens a second");
  parser.add_option("--kv-blocks", cluster.worker.num_blocks, "128-token KV blocks of a worker")->capture_default_str();
  parser.add_option("--max-running", cluster.worker.max_running, "answers that a worker advances at once")
      ->capture_default_str();
  parser.add_option("--batch-tokens", cluster.worker.max_rows, "rows of a step")->capture_default_str();
  parser
      .add_option("--prefill-tokens", cluster.worker.prefill_rows, "rows of prefill in a step in which answers advance")
      ->capture_default_str();
  parser.add_option("--kept-states", cluster.worker.kept_states, "window states kept of earlier requests")
      ->capture_default_str();
  parser
      .add_option("--context-mode", options.mode, "what a hit may change: nothing (exact, stable) or little (bounded)")
      ->check(CLI::IsMember({"exact", "stable", "bounded"}))
      ->capture_default_str();
  parser.add_option("--queue-cap", options.queue_cap,
                    "requests that may wait in a worker; others wait in front (default: no limit)");
  parser.add_option("--store-blocks", cluster.store.num_blocks,
                    "blocks of a store that all workers share (default: none)");
  parser.add_option("--retention-hours", options.retention_hours,
                    "how long the store promises to keep a block (default: first in, first out)");
}

}  // namespace

Command add_simulate_command(CLI::App& program) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* parser = program.add_subcommand(
      "simulate", "Run a cluster in virtual time: latencies, hits, utilisation under a trace; compare policies");
  parser->footer(kExamples);
  add_path_option(*parser, "--trace", options->trace, "recorded traffic, see below; default: sessions are drawn");
  parser->add_option("--scale", options->copies, "that many times the trace's traffic, at its own hit ratio")
      ->capture_default_str();
  parser->add_option("--sessions", options->sessions.sessions_per_s, "sessions that begin in a second")
      ->capture_default_str();
  parser->add_option("--hours", options->sessions.hours, "hours in which sessions begin")->capture_default_str();
  parser->add_option("--agents", options->sessions.agent_share, "share of sessions that are an agent's")
      ->capture_default_str();
  parser->add_option("--policy", options->policy, "how requests are routed, or all")->capture_default_str();
  parser->add_option("--slo", options->objectives, "NAME=SECONDS; find the fewest workers that meet it")->take_all();
  parser->add_option("--most-workers", options->most_workers, "where that search ends")->capture_default_str();
  parser->add_option("--seed", options->cluster.seed, "of everything that is drawn")->capture_default_str();
  parser->add_flag("--json", options->json, "one JSON object a line");
  add_cluster_options(*parser, *options);
  return {parser, [options] {
            const Status done = run_simulate(*options);
            if (done.ok()) return static_cast<int>(kExitOk);
            const int failed = fail(done.error());
            return done.error().code() == Code::kInvalidArgument || done.error().code() == Code::kNotFound
                       ? static_cast<int>(kExitUsage)
                       : failed;
          }};
}

}  // namespace deepinfer
