#include "apps/plan_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/read_file.h"
#include "gateway/planner_page.h"
#include "planner/planner.h"
#include "planner/trace.h"

namespace deepinfer {
namespace {

using planner::Model;
using planner::Values;

constexpr char kExamples[] =
    R"(Lengths are a mean, or the middle and the 99th percentile of a log-normal: --input p50=7000,p99=85000.
HARDWARE is a measured profile (published, gb300, b300, dgx-spark, rtx-3090, m3-ultra) or a CPU server:
cpu:SOCKETSxCORESc-MEMORY[-GIGABYTESg],nvme:DRIVES[xTERABYTESt]; MEMORY is ddr4, ddr5, ddr5-8ch, ddr5-6400 or mrdimm.

Examples:
  deepinfer plan --profile published
  deepinfer plan --profile published --explain mean_revenue
  deepinfer plan --requests 50 --input 12000 --output 350 --hit 0.6 --hardware cpu:2x64c-ddr5,nvme:2
  deepinfer plan --trace conversation_trace.jsonl --hardware published --sensitivity cost_token
  deepinfer plan --set 'chat_days=7 d' --set 'rent=$2.50 per card-hour' --csv
  deepinfer plan --page planner.html)";

struct PlanOptions {
  std::string profile, hardware = "published", input, output, trace, inputs_file, explain, sensitivity, page;
  std::optional<double> requests, hit, user_speed, long_input;
  std::vector<std::string> settings;
  bool json = false, csv = false;
};

// Mean and 99th percentile of a length.
struct Length {
  double mean = 0;
  std::optional<double> long_one;
};

Result<Length> parse_length(const std::string& text, const std::string& option) {
  const auto refuse = [&] {
    return Error(Code::kInvalidArgument,
                 "{}: found '{}', expected a number of tokens above 0, or p50=N,p99=N with p99 above p50", option,
                 text);
  };
  const auto number = [](std::string_view digits) -> std::optional<double> {
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value) || value <= 0)
      return std::nullopt;
    return value;
  };
  const size_t comma = text.find(",p99=");
  if (!text.starts_with("p50=") || comma == std::string::npos) {
    const auto mean = number(text);
    if (!mean) return refuse();
    return Length{*mean, std::nullopt};
  }
  const auto middle = number(std::string_view(text).substr(4, comma - 4));
  const auto high = number(std::string_view(text).substr(comma + 5));
  if (!middle || !high || *high <= *middle) return refuse();
  const double sigma = std::log(*high / *middle) / 2.3263478740408408;  // standard deviations to the 99th percentile
  return Length{*middle * std::exp(sigma * sigma / 2), *high};
}

Result<std::map<std::string, double>> read_given(const PlanOptions& options, const Model& model) {
  std::map<std::string, double> given;
  if (!options.inputs_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile::read_text(options.inputs_file, 16 << 20));
    auto read = options.inputs_file.ends_with(".csv") ? planner::read_inputs_csv(text, model)
                                                      : planner::read_inputs_json(text, model);
    if (!read.ok()) return read.error().in(options.inputs_file);
    given = std::move(*read);
  }
  for (const std::string& setting : options.settings) {
    const size_t equals = setting.find('=');
    const planner::Input* input = model.find_input(std::string_view(setting).substr(0, equals));
    if (equals == std::string::npos || input == nullptr) {
      std::string names;
      for (const planner::Input& one : model.inputs()) names += (names.empty() ? "" : ", ") + one.id;
      return Error(Code::kInvalidArgument,
                   "--set: found '{}', expected NAME=VALUE, as in 'fill=80 %'; NAME is one of {}", setting, names);
    }
    ASSIGN_OR_RETURN(given[input->id], planner::parse_value(std::string_view(setting).substr(equals + 1), *input));
  }
  return given;
}

// What the options say of the traffic; later ones win: trace, file and --set, the options themselves.
Result<std::map<std::string, double>> read_traffic(const PlanOptions& options) {
  std::map<std::string, double> traffic;
  if (!options.trace.empty()) {
    ASSIGN_OR_RETURN(const planner::Trace trace, planner::read_trace(options.trace));
    const planner::TraceSummary summary = planner::summarize(trace);
    traffic = {{"requests", summary.requests_per_s},
               {"input", summary.mean_input},
               {"output", std::max(1.0, summary.mean_output)},
               {"long_input", summary.long_input}};
    if (summary.has_prefixes) traffic["hit"] = summary.best_hit;
  }
  ASSIGN_OR_RETURN(const auto given, read_given(options, planner::deployment_model()));
  for (const auto& [id, value] : given) traffic[id] = value;
  if (!options.input.empty()) {
    ASSIGN_OR_RETURN(const Length length, parse_length(options.input, "--input"));
    traffic["input"] = length.mean;
    traffic["long_input"] = length.long_one.value_or(std::min(7 * length.mean, 1048576.0));
  }
  if (!options.output.empty()) {
    ASSIGN_OR_RETURN(const Length length, parse_length(options.output, "--output"));
    traffic["output"] = length.mean;
  }
  for (const auto& [id, value] :
       {std::pair("requests", options.requests), std::pair("hit", options.hit),
        std::pair("user_speed", options.user_speed), std::pair("long_input", options.long_input)})
    if (value) traffic[id] = *value;
  return traffic;
}

// A model with its values, and what stands above and below its figures.
struct Plan {
  const Model* model = nullptr;
  Values values;
  planner::Hardware hardware;
  std::vector<std::string> notes;
};

Result<Plan> make_plan(const PlanOptions& options) {
  if (!options.profile.empty()) {
    const Model& model = options.profile == "published" ? planner::production_model() : planner::machine_model();
    ASSIGN_OR_RETURN(auto given, read_given(options, model));
    if (options.profile == "server" && options.hardware.find(':') != std::string::npos) {
      ASSIGN_OR_RETURN(const auto machine, planner::parse_machine(options.hardware));
      given.insert(machine.begin(), machine.end());
    }
    Values inputs = model.defaults();
    for (const auto& [id, value] : given) inputs[*model.place(id)] = value;
    RETURN_IF_ERROR(model.check(inputs));
    return Plan{&model, model.compute(std::move(inputs)), {}, {}};
  }
  ASSIGN_OR_RETURN(const auto traffic, read_traffic(options));
  const Model& model = planner::deployment_model();
  const double speed =
      traffic.contains("user_speed") ? traffic.at("user_speed") : model.find_input("user_speed")->value;
  ASSIGN_OR_RETURN(planner::Hardware hardware, planner::find_hardware(options.hardware, speed));
  ASSIGN_OR_RETURN(Values values, planner::plan_deployment(hardware, traffic));
  std::vector<std::string> notes = planner::plan_notes(hardware, values);
  return Plan{&model, std::move(values), std::move(hardware), std::move(notes)};
}

std::string findings_of(const planner::Figure& figure) {
  std::string letters;
  for (const char letter : figure.findings) letters += fmt::format("({}) ", letter);
  return letters;
}

void print_published(const Plan& plan) {
  print_output("{:>3}  {:<52} {:<30} {:<16} {}\n", "", "figure", "computed", "the source says", "");
  const auto line = [&](const planner::Figure& figure) {
    std::string verdict;
    if (figure.claim) {
      const double computed = plan.model->value(plan.values, figure.id) / figure.scale;
      const double by = computed / figure.claim->value - 1;
      verdict = planner::agrees(figure, plan.model->value(plan.values, figure.id))
                    ? "agrees"
                    : fmt::format("{:.1f} % {}", std::abs(by) * 100, by > 0 ? "high" : "low");
    }
    print_output("{:>3}  {:<52} {:<30} {:<16} {:<12} {}\n", figure.number == 0 ? "" : std::to_string(figure.number),
                 figure.label, plan.model->text(plan.values, figure.id), figure.claim ? figure.claim->text : "-",
                 verdict, findings_of(figure));
  };
  for (int number = 1; number <= 28; ++number)
    for (const planner::Figure& figure : plan.model->figures())
      if (figure.number == number) line(figure);
  print_output("\nWhat else follows\n");
  for (const planner::Figure& figure : plan.model->figures())
    if (figure.number == 0)
      print_output("     {:<52} {:<30} {}\n", figure.label, plan.model->text(plan.values, figure.id),
                   findings_of(figure));
  print_output("\nFindings\n");
  for (const planner::Finding& finding : plan.model->findings())
    print_output("({}) {}\n", finding.letter, planner::fill(*plan.model, plan.values, finding.text));
}

void print_figures(const Plan& plan) {
  std::string group;
  for (const planner::Figure& figure : plan.model->figures()) {
    if (figure.group != group) print_output("{}{}\n", group.empty() ? "" : "\n", figure.group);
    group = figure.group;
    print_output("  {:<50} {:<28} {}\n", figure.label, plan.model->text(plan.values, figure.id), figure.id);
  }
}

void print_deployment(const Plan& plan) {
  const auto text = [&](std::string_view id) { return plan.model->text(plan.values, id); };
  const auto count = [&](std::string_view id) {
    const double number = plan.model->value(plan.values, id);
    return fmt::format("{} {}{}", planner::write_value(number, "", 1), plan.hardware.card, number == 1 ? "" : "s");
  };
  print_output("{} for {} of {} in and {} out, {} of the input from the cache ({})\n", plan.hardware.name,
               text("requests"), text("input"), text("output"), text("hit"), plan.hardware.source);
  print_output("\n  {} for prefill, {} for decode ({} in all; {} without a cache)\n", count("prefill_cards"),
               count("decode_cards"), count("cards"), count("cards_without_cache"));
  print_output("  {} drives of {} for {} of KV, {} of memory for its index, {} for window states\n", text("drives"),
               text("drive_size"), text("store_size"), text("index_memory"), text("window_memory"));
  print_output("  first token after {} ({} for a long request), then one every {}\n", text("ttft"), text("ttft_long"),
               text("tbt"));
  print_output("  {} or {}; at the price list it earns {}\n\n", text("cost"), text("cost_token"), text("revenue"));
  print_figures(plan);
  if (!plan.notes.empty()) print_output("\nNote\n");
  for (const std::string& line : plan.notes) print_output("  - {}\n", line);
  print_output(
      "\n--explain NAME shows how a figure comes about, --sensitivity NAME what moves it, --set NAME=VALUE changes an "
      "input.\n");
}

Status print_sensitivity(const Plan& plan, const std::string& id) {
  const planner::Figure* figure = plan.model->find_figure(id);
  if (figure == nullptr)
    return planner::explain(*plan.model, plan.values, id).ok()
               ? Error(Code::kInvalidArgument, "--sensitivity: found the input '{}', expected a figure", id)
               : planner::explain(*plan.model, plan.values, id).error().in("--sensitivity");
  print_output("{}: {}\n  {:<22} {:>22} {:>22}   {:>22} {:>22}\n", figure->label, plan.model->text(plan.values, id),
               "input", "10 % less", "10 % more", "at its low end", "at its high end");
  for (const planner::Effect& effect : planner::sensitivity(*plan.model, plan.values, *plan.model->place(id))) {
    const auto text = [&](double value) { return planner::write_value(value, figure->unit, figure->scale); };
    const planner::Input& input = plan.model->inputs()[effect.input];
    print_output("  {:<22} {:>22} {:>22}   {:>22} {:>22}   {} to {}\n", input.id, text(effect.down), text(effect.up),
                 text(effect.at_low), text(effect.at_high), planner::write_value(input.low, input.unit, input.scale),
                 planner::write_value(input.high, input.unit, input.scale));
  }
  return {};
}

// The figure may be one of the plan, or of the server that it is made of.
Status print_explanation(const Plan& plan, const PlanOptions& options) {
  auto text = planner::explain(*plan.model, plan.values, options.explain);
  if (!text.ok() && options.profile.empty() && options.hardware.find(':') != std::string::npos) {
    PlanOptions server = options;
    server.profile = "server";
    server.settings.clear();
    server.inputs_file.clear();
    ASSIGN_OR_RETURN(const Plan machine, make_plan(server));
    if (auto found = planner::explain(*machine.model, machine.values, options.explain); found.ok())
      text = std::move(found);
  }
  if (!text.ok()) return text.error().in("--explain");
  write_output(*text);
  return {};
}

Status write_page(const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << planner_page();
  file.close();
  if (!file) return Error(Code::kIo, "--page: {}: can't be written", path);
  return {};
}

Status run_plan(const PlanOptions& options) {
  if (!options.page.empty()) return write_page(options.page);
  ASSIGN_OR_RETURN(const Plan plan, make_plan(options));
  if (!options.explain.empty()) return print_explanation(plan, options);
  if (!options.sensitivity.empty()) return print_sensitivity(plan, options.sensitivity);
  if (options.json) {
    write_output(planner::write_json(*plan.model, plan.values) + "\n");
  } else if (options.csv) {
    write_output(planner::write_csv(*plan.model, plan.values));
  } else if (options.profile == "published") {
    print_published(plan);
  } else if (options.profile == "server") {
    print_figures(plan);
  } else {
    print_deployment(plan);
  }
  return {};
}

void add_traffic_options(CLI::App& parser, PlanOptions& options) {
  parser.add_option("--requests", options.requests, "requests a second");
  parser.add_option("--input", options.input, "tokens of input: a mean, or p50=N,p99=N");
  parser.add_option("--long-input", options.long_input,
                    "tokens of a long request (99th percentile); default 7 times the mean");
  parser.add_option("--output", options.output, "tokens of output: a mean, or p50=N,p99=N");
  parser.add_option("--hit", options.hit, "share of the input that is found in the cache, 0 to 1");
  parser.add_option("--user-speed", options.user_speed, "tokens a second wanted for an answer");
  add_path_option(parser, "--trace", options.trace,
                  "take traffic and best hit rate from a trace: JSON lines or CSV, plain or gzip");
}

}  // namespace

Command add_plan_command(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* parser = program.add_subcommand(
      "plan", "Plan a deployment: cards or servers, store, latency, cost; and check published figures");
  parser->footer(kExamples);
  parser
      ->add_option("--profile", options->profile,
                   "a model as it stands: published (the service's figures recomputed) or server")
      ->check(CLI::IsMember({"published", "server"}));
  parser->add_option("--hardware", options->hardware, "what it runs on, see below")->capture_default_str();
  add_traffic_options(*parser, *options);
  parser->add_option("--set", options->settings, "NAME=VALUE of any input, with its unit")->take_all();
  add_path_option(*parser, "--inputs", options->inputs_file,
                  "inputs from a .json or .csv file, as --json and --csv write them");
  parser->add_option("--explain", options->explain, "how a figure comes about: formula, numbers, source");
  parser->add_option("--sensitivity", options->sensitivity, "which inputs move a figure, strongest first");
  auto* json = parser->add_flag("--json", options->json, "inputs and figures as JSON");
  parser->add_flag("--csv", options->csv, "inputs and figures as CSV")->excludes(json);
  add_path_option(*parser, "--page", options->page, "write the planner's page as one file that opens without a server");
  return {parser, [options] {
            const Status done = run_plan(*options);
            if (done.ok()) return static_cast<int>(kExitOk);
            const int failed = fail(done.error());
            return done.error().code() == Code::kInvalidArgument || done.error().code() == Code::kNotFound
                       ? static_cast<int>(kExitUsage)
                       : failed;
          }};
}

}  // namespace deepinfer
