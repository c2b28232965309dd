// How a subcommand joins the program `deepinfer`.
//
// One command is one pair of files, NAME_command.{h,cc}, with one function
//   Command add_NAME_command(CLI::App& program);
// It declares the subcommand with its options, its examples (footer) and nothing else; the work starts in
// `run`, after the whole command line was parsed. main.cc lists the functions; adding a command is one
// include and one line there, and one file in CMakeLists.txt.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

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

}  // namespace deepinfer
