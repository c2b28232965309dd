#include "apps/serve_command.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "apps/load_model.h"
#include "apps/stop_signals.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/engine.h"
#include "gateway/gateway.h"

namespace deepinfer {
namespace {

constexpr std::chrono::seconds kStopTimeout{30};

struct ServeOptions {
  std::string model_directory;
  std::string served_model_name;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  int threads = 0;
  int64_t max_context_tokens = 8192;
};

constexpr char kExamples[] = R"(Serves POST /v1/chat/completions, GET /v1/models, GET /health and a page at /.
The first Ctrl-C ends running answers cleanly, the second the program.

Examples:
  deepinfer serve --model models/mini --served-model-name deepinfer-mini
  deepinfer serve --model /data/DeepSeek-V4.1-Flash --host 0.0.0.0 --port 80 --threads 32
  curl -N http://127.0.0.1:8000/v1/chat/completions -d '{"model": "deepinfer-mini", "stream": true,
    "messages": [{"role": "user", "content": "What is 34 + 57?"}]}')";

// "models/mini/" is served as "mini".
std::string directory_name(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

// Every open connection is a file.
void raise_open_file_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string shown_address(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

Status serve(const ServeOptions& options, StopSignals& signals) {
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(options.model_directory));
  ModelOptions model_options;
  model_options.num_threads = options.threads;
  model_options.max_context_tokens = options.max_context_tokens;
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   load_model(options.model_directory, tokenizer, model_options));
  Counters counters;
  Engine engine(std::move(model), EngineOptions{}, counters);
  const std::unique_ptr<TokenSource> tokens = make_token_source(engine);

  GatewayOptions gateway_options;
  gateway_options.http.host = options.host;
  gateway_options.http.port = options.port;
  gateway_options.served_model_name =
      options.served_model_name.empty() ? directory_name(options.model_directory) : options.served_model_name;
  gateway_options.system_fingerprint = "deepinfer-" DEEPINFER_VERSION;
  signals.expect();  // before a client can know that we listen
  ASSIGN_OR_RETURN(const auto gateway,
                   Gateway::start(gateway_options, {*tokens, tokenizer, system_clock(), system_seed}));
  print_output("serving {}\nlistening on {}\n", gateway_options.served_model_name,
               shown_address(options.host, gateway->port()));
  RETURN_IF_ERROR(flush_output());

  signals.wait();
  log::info("stopping: ending running answers; Ctrl-C again ends the program at once");
  if (!gateway->stop(kStopTimeout)) {
    return Error(Code::kDeadlineExceeded, "connections were still open {} s after the signal",
                 kStopTimeout.count());
  }
  return {};
}

int run_serve(const ServeOptions& options) {
  StopSignals signals;
  raise_open_file_limit();
  const Status status = serve(options, signals);
  return status.ok() ? kExitOk : fail(status.error());
}

}  // namespace

Command add_serve_command(CLI::App& program) {
  auto options = std::make_shared<ServeOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("serve", "answer chat requests over HTTP");
  parser->footer(kExamples);
  add_path_option(*parser, "--model", options->model_directory, "directory of the checkpoint")->required();
  parser->add_option("--served-model-name", options->served_model_name,
                     "name that clients use; the directory's name by default");
  parser->add_option("--host", options->host, "address to listen on")->capture_default_str();
  parser->add_option("--port", options->port, "port to listen on, 0 for any free one")->capture_default_str();
  add_threads_option(*parser, options->threads);
  parser
      ->add_option("--max-context-tokens", options->max_context_tokens,
                   "longest prompt and answer together; sizes the KV cache")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  return {parser, [options] { return run_serve(*options); }};
}

}  // namespace deepinfer
