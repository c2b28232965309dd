// How a subcommand joins the program `deepinfer`.
//
// One command is one pair of files, NAME_command.{h,cc}, with one function
//   Command add_NAME_command(CLI::App& program);
// It declares the subcommand with its options, its examples (footer) and nothing else; the work starts in
// `run`, after the whole command line was parsed (--log-level may follow the command as well). main.cc lists
// the functions; adding a command is one include and one line there, and one file in CMakeLists.txt.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/ops.h"

namespace deepinfer {

// What the process returns to the shell.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // the command line was right, the work failed; one line on stderr says why
  kExitUsage = 2,          // the command line was wrong
  kExitInterrupted = 130,  // Ctrl-C; what was done until then has been printed
};

struct Command {
  CLI::App* parser;          // owned by the program's CLI::App
  std::function<int()> run;  // called once if this command was chosen; returns an ExitCode
};

// Prints "deepinfer: message" on stderr and returns kExitFailed: `return fail(result.error());`
int fail(const Error& error);

// Results go to standard output through these. What can't be written is lost, and main() says so at the end;
// a command that writes for long looks at flush_output() itself.
void write_output(std::string_view text);
template <typename... Args>
void print_output(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}
Status flush_output();  // kIo, once anything could not be written

// Progress and speeds, on standard error.
void write_note(std::string_view text);
template <typename... Args>
void print_note(fmt::format_string<Args...> format, Args&&... args) {
  write_note(fmt::format(format, std::forward<Args>(args)...));
}

// An option that takes a path. An empty one (a shell variable that was not set) is wrong usage: joined with a
// file's name it would mean the root directory.
CLI::Option* add_path_option(CLI::App& parser, const std::string& name, std::string& path,
                             const std::string& description);
// --threads, 0 for one a core.
CLI::Option* add_threads_option(CLI::App& parser, int& threads);
// --weights-cache, a directory (apps/weights_cache.h).
CLI::Option* add_weights_cache_option(CLI::App& parser, std::string& directory);
// An option whose value is one of these names; help shows them.
template <typename T>
CLI::Option* add_choice_option(CLI::App& parser, const std::string& name, T& value,
                               const std::map<std::string, T>& choices, const std::string& description) {
  std::vector<std::string> names;
  for (const auto& [choice, meaning] : choices) names.push_back(choice);
  return parser
      .add_option_function<std::string>(
          name, [&value, choices](const std::string& choice) { value = choices.at(choice); }, description)
      ->check(CLI::IsMember(names));
}
// --numerics exact or fast (docs/numerics.md).
CLI::Option* add_numerics_option(CLI::App& parser, Numerics& numerics);

}  // namespace deepinfer
