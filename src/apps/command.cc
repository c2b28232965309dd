#include "apps/command.h"

#include <cstdio>

#include "base/printable.h"
#include "base/thread_pool.h"

namespace deepinfer {

// A short write sets stdout's error flag, which flush_output() reads; fmt::print would throw.
void write_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

Status flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return Error(Code::kIo, "standard output cannot be written");
}

void write_note(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

int fail(const Error& error) {
  std::string text = "deepinfer: ";
  std::string_view rest = error.message();
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    text += printable(rest.substr(0, end)) + '\n';
    rest.remove_prefix(end + 1);
  }
  write_note(text + printable(rest) + '\n');
  return kExitFailed;
}

CLI::Option* add_path_option(CLI::App& parser, const std::string& name, std::string& path,
                             const std::string& description) {
  const auto check = [](const std::string& value) {
    return value.empty() ? std::string("found an empty string, expected a path") : std::string();
  };
  return parser.add_option(name, path, description)->check(CLI::Validator(check, ""));
}

CLI::Option* add_threads_option(CLI::App& parser, int& threads) {
  return parser.add_option("--threads", threads, "compute threads, 0 for one a core")
      ->check(CLI::Range(0, ThreadPool::kMostThreads))
      ->capture_default_str();
}

CLI::Option* add_weights_cache_option(CLI::App& parser, std::string& directory) {
  return add_path_option(parser, "--weights-cache", directory,
                         "keep the packed weights in this directory, as large as the checkpoint: the next start is quicker");
}

CLI::Option* add_numerics_option(CLI::App& parser, Numerics& numerics) {
  return add_choice_option<Numerics>(parser, "--numerics", numerics,
                                     {{"exact", Numerics::kExact}, {"fast", Numerics::kFast}},
                                     "exact, or fast: routed experts with INT8 activations, other numbers")
      ->default_str("exact");
}

}  // namespace deepinfer
