// The program: parses the command line and runs one subcommand. See command.h for how a command is added.
#include <csignal>
#include <cstdlib>
#include <new>
#include <system_error>
#include <vector>

#include "apps/calibrate_command.h"
#include "apps/command.h"
#include "apps/generate_command.h"
#include "apps/inspect_command.h"
#include "apps/kv_command.h"
#include "apps/make_checkpoint_command.h"
#include "apps/plan_command.h"
#include "apps/recipe_check_command.h"
#include "apps/serve_command.h"
#include "apps/simulate_command.h"
#include "apps/tokenize_command.h"
#include "apps/verify_command.h"
#include "base/log.h"
#include "grammar/grammar.h"

namespace deepinfer {
namespace {

using AddCommand = Command (*)(CLI::App& program);
constexpr AddCommand kCommands[] = {
    add_serve_command,
    add_generate_command,
    add_inspect_command,
    add_verify_command,
    add_kv_command,
    add_plan_command,
    add_simulate_command,
    add_calibrate_command,
    add_make_checkpoint_command,
    add_tokenize_command,
    add_detokenize_command,
    add_recipe_check_command,
};

constexpr char kFooter[] = R"(Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted.
'deepinfer COMMAND --help' shows the options and examples of a command.)";

int run_program(int argc, char** argv) {
  CLI::App program("Runs and serves DeepSeek-V4.1-Flash on CPUs.", "deepinfer");
  program.set_version_flag("--version", "deepinfer " DEEPINFER_VERSION);
  program.footer(kFooter);
  program.require_subcommand(1);
  std::string log_level = "info";
  program.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();

  std::vector<Command> commands;
  for (const AddCommand add : kCommands) {
    commands.push_back(add(program));
    commands.back().parser->fallthrough();  // options of the program may follow the command
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && argv[1][0] != '-' && program.get_subcommands().empty()) {
      fail(Error(Code::kInvalidArgument, "unknown command '{}'; 'deepinfer --help' lists them", argv[1]));
      return kExitUsage;
    }
    return program.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  if (const Status status = init_logging(log_level); !status.ok()) {
    fail(status.error());
    return kExitUsage;
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return command.run();
  }
  return kExitUsage;
}

// What the standard library throws when the system refuses memory or a thread.
int run_or_say_why(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail(Error(Code::kResourceExhausted, "out of memory"));
  } catch (const std::system_error& error) {
    return fail(Error(Code::kResourceExhausted,
                      "the system refuses a thread or a file: {}; see ulimit -a, and lower --threads", error.what()));
  }
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  // What `serve` starts for itself; no command of the user's.
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return deepinfer::run_grammar_worker();
  std::signal(SIGXFSZ, SIG_IGN);  // a file at the limit of its size is an error of the write, as a full disk is
  const int exit_code = deepinfer::run_or_say_why(argc, argv);
  const deepinfer::Status written = deepinfer::flush_output();
  return written.ok() ? exit_code : deepinfer::fail(written.error());
}
