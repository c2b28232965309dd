#include "apps/verify_command.h"

#include <fmt/format.h>

#include <memory>

#include "apps/weights_cache.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "kernels/tables.h"
#include "verify/verify.h"

namespace deepinfer {
namespace {

constexpr char kVerifyExamples[] = R"(Examples:
  deepinfer verify --model models/mini --golden models/mini/golden
  deepinfer verify --model golden/tiny --golden golden --isa ref --json)";

// A line a check as soon as it is known, then the summary; with --json one object at the end.
int run_verify(VerifyOptions options, const std::string& weights_cache_directory, bool json) {
  if (!weights_cache_directory.empty()) {
    const auto checkpoint = Checkpoint::open(options.model_directory);
    if (!checkpoint.ok()) return fail(checkpoint.error());
    options.weights_cache = find_weights_cache(weights_cache_directory, *checkpoint, options.threads);
  }
  const auto print_check = [](const VerifyCheck& check) {
    print_output("{}\n", printable(verify_line(check)));
    static_cast<void>(flush_output());  // main() says when it fails
  };
  const auto report = json ? verify_golden(options) : verify_golden(options, print_check);
  if (!report.ok()) return fail(report.error());
  print_output("{}\n", json ? verify_json(*report) : verify_summary(*report));
  return report->passed() ? kExitOk : kExitFailed;
}

}  // namespace

Command add_verify_command(CLI::App& program) {
  auto options = std::make_shared<VerifyOptions>();  // shared by the parser's targets and the run function
  auto json = std::make_shared<bool>(false);
  auto weights_cache_directory = std::make_shared<std::string>();
  CLI::App* parser = program.add_subcommand("verify", "check the engine against reference outputs");
  parser->footer(kVerifyExamples);
  add_path_option(*parser, "--model", options->model_directory, "directory of the checkpoint")->required();
  add_path_option(*parser, "--golden", options->golden_directory, "directory of the reference outputs")
      ->required();
  parser->add_option("--isa", options->isa, fmt::format("auto, {}", fmt::join(table_names(), ", ")))
      ->capture_default_str();
  add_numerics_option(*parser, options->numerics);
  parser->add_option("--threads", options->threads, "compute threads")
      ->check(CLI::Range(1, ThreadPool::kMostThreads))
      ->capture_default_str();
  add_weights_cache_option(*parser, *weights_cache_directory);
  parser->add_flag("--json", *json, "print one JSON object");
  return {parser, [options, weights_cache_directory, json] { return run_verify(*options, *weights_cache_directory, *json); }};
}

}  // namespace deepinfer
