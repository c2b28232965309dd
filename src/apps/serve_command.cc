#include "apps/serve_command.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/api_key.h"
#include "apps/checkpoint_digest.h"
#include "apps/engine_flags.h"
#include "apps/kv_store.h"
#include "apps/load_model.h"
#include "apps/scripted_engine.h"
#include "apps/stop_signals.h"
#include "base/log.h"
#include "base/random.h"
#include "base/read_file.h"
#include "gateway/gateway.h"
#include "gateway/kv_admin.h"
#include "json/json.h"
#include "speculate/calibration.h"

namespace deepinfer {
namespace {

constexpr std::chrono::seconds kStopTimeout{10};
// What a client's share is worth in waiting: those within it pass those beyond it for so long (docs/scheduling.md).
constexpr std::chrono::minutes kShareAgeing{10};

struct ServeOptions {
  std::string model_directory, weights_cache_directory;
  std::string served_model_name;
  int threads = 0;
  Numerics numerics = Numerics::kExact;
  int64_t max_context_tokens = 8192;
  std::string engine = "model";
  EngineFlags engine_flags;
  KvStoreFlags kv_store;
  std::optional<uint16_t> admin_port;
  ApiKeyFlags api_key;
  bool insecure = false;
  GatewayOptions gateway;
};

constexpr char kServeExamples[] = R"(Serves Chat Completions, Responses, Messages and Completions, and a page at /;
/openapi.json says all of it. The first Ctrl-C ends running answers cleanly, the second the program.

Examples:
  deepinfer serve --model models/mini
  deepinfer serve --model /data/DeepSeek-V4.1-Flash --host 0.0.0.0 --api-key-file key.txt --threads 32
  deepinfer serve --model DIR --tls-certificate cert.pem --tls-key key.pem --api-key-file key.txt
  deepinfer serve --model DIR --response-store responses.sqlite
  deepinfer serve --model DIR --kv-dir /var/lib/deepinfer/kv --kv-size 200G
  curl -N http://127.0.0.1:8000/v1/chat/completions -d '{"model": "deepinfer-mini", "stream": true,
    "messages": [{"role": "user", "content": "What is 34 + 57?"}]}')";

// The name that the checkpoint gives itself ("_name_or_path" of config.json), else that of its directory.
std::string default_name(const std::string& directory) {
  if (const auto text = ReadFile::read_text(directory + "/config.json", kSmallFile); text.ok()) {
    const auto config = parse_json(*text);
    const JsonValue* name = config.ok() ? config->find("_name_or_path") : nullptr;
    const std::string own =
        name != nullptr && name->string() != nullptr ? std::filesystem::path(*name->string()).filename().string() : "";
    if (!own.empty()) return own;
  }
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
  return host.find(':') == std::string::npos ? fmt::format("://{}:{}", host, port)
                                             : fmt::format("://[{}]:{}", host, port);
}

// Whether nobody but programs on this machine can come to the address. A host that has no address is told of later.
bool is_loopback(const std::string& host) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return true;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> freed(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET) {
      const auto& address = reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr;
      if ((ntohl(address.s_addr) >> 24) != 127) return false;
    } else if (one->ai_family == AF_INET6) {
      if (!IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(one->ai_addr)->sin6_addr)) return false;
    }
  }
  return true;
}

// A server that others can reach asks for a key, unless somebody said that it need not.
Status check_exposure(const ServeOptions& options, const std::string& api_key) {
  const std::string& host = options.gateway.http.host;
  const bool is_exposed = !host.empty() && !is_loopback(host);
  if (!api_key.empty()) {
    log::info("keys: on; clients must send the key");
    return {};
  }
  if (!is_exposed) {
    log::info("keys: off; whoever is on this machine may ask");
    return {};
  }
  if (!options.insecure) {
    return Error(
        Code::kInvalidArgument,
        "--host {}: others can reach this address, and clients need no key; name a key with --api-key-file, or "
        "say --insecure to serve everyone (TLS alone keeps nobody out)",
        host);
  }
  log::warn("keys: off; whoever reaches {} may ask (--insecure)", host);
  return {};
}

// What answers, with all it stands on.
struct ServedEngine {
  Counters counters;
  OpenedKvStore kv_store;
  OpenedEngine opened;
  std::unique_ptr<TokenSource> tokens;
};

Status open_engine(const ServeOptions& options, const Tokenizer& tokenizer, ServedEngine& served) {
  constexpr std::string_view kScripted = "scripted:";
  if (options.engine.starts_with(kScripted)) {
    ASSIGN_OR_RETURN(served.tokens, open_scripted_engine(options.engine.substr(kScripted.size()), tokenizer));
    return {};
  }
  if (options.engine != "model") {
    return Error(Code::kInvalidArgument, "--engine: found '{}', expected model or scripted:FILE",
                 options.engine);
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(options.model_directory));
  ModelOptions model_options;
  model_options.num_threads = options.threads;
  model_options.numerics = options.numerics;
  model_options.max_context_tokens = options.max_context_tokens;
  if (settle_options(checkpoint.config(), model_options)) {
    log::warn("--max-context-tokens {}: the context of this model ends at {}, which is used",
              options.max_context_tokens, model_options.max_context_tokens);
  }
  apply(options.engine_flags, model_options);
  ASSIGN_OR_RETURN(const StartNeeds needs,
                   plan_start(checkpoint, model_options, options.engine_flags, options.gateway.http.num_threads + 8));
  log::info("{}", needs.plan.text());
  RETURN_IF_ERROR(check_start(needs, read_start_limits()));
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   load_model(checkpoint, tokenizer, model_options, options.weights_cache_directory));
  ASSIGN_OR_RETURN(served.kv_store, open_kv_store(options.kv_store, options.model_directory, *model,
                                                  options.weights_cache_directory));
  EngineFlags flags = options.engine_flags;
  flags.engine.turn_tokens = turn_tokens_of(tokenizer);
  flags.engine.ageing = kShareAgeing;
  flags.engine.store = served.kv_store.store.get();
  flags.engine.store_windows = options.kv_store.windows;
  flags.engine.store_tier = served.kv_store.tier.get();
  ASSIGN_OR_RETURN(flags.engine.speculation.temperatures, load_calibration(options.model_directory));
  ASSIGN_OR_RETURN(served.opened, open_engine(std::move(model), flags, served.counters));
  served.tokens = make_token_source(*served.opened.engine);
  return {};
}

Status print_addresses(const GatewayOptions& options, uint16_t port) {
  print_output("serving {}\n", options.served_model_name);
  if (!options.http.host.empty()) {
    const bool tls = !options.http.tls_certificate_path.empty();
    print_output("listening on {}{}\n", tls ? "https" : "http", shown_address(options.http.host, port));
  }
  if (!options.http.unix_socket_path.empty()) print_output("listening on {}\n", options.http.unix_socket_path);
  return flush_output();
}

// What would refuse to listen is told before the weights are read.
Status check_addresses(const ServeOptions& options) {
  RETURN_IF_ERROR(HttpServer::check(options.gateway.http));
  if (!options.admin_port) return {};
  if (options.kv_store.directories.empty()) {
    return Error(Code::kInvalidArgument, "--admin-port: there is no KV store to look after; name one with --kv-dir");
  }
  HttpServerOptions admin;
  admin.port = *options.admin_port;
  return HttpServer::check(admin);
}

Status serve(const ServeOptions& options, StopSignals& signals) {
  GatewayOptions gateway_options = options.gateway;
  ASSIGN_OR_RETURN(gateway_options.api_key, read_api_key(options.api_key));
  RETURN_IF_ERROR(check_exposure(options, gateway_options.api_key));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(options.model_directory));
  RETURN_IF_ERROR(check_addresses(options));
  ServedEngine served;
  RETURN_IF_ERROR(open_engine(options, tokenizer, served));

  gateway_options.running_answers = options.engine_flags.max_running;
  gateway_options.waiting_answers = options.engine_flags.engine.max_queued_requests;
  gateway_options.served_model_name =
      options.served_model_name.empty() ? default_name(options.model_directory) : options.served_model_name;
  gateway_options.system_fingerprint = "deepinfer-" DEEPINFER_VERSION;
  gateway_options.context_mode = options.engine_flags.engine.context_mode;
  gateway_options.grammar_worker = {"/proc/self/exe", "grammar-worker"};
  if (options.numerics != Numerics::kExact) {
    gateway_options.system_fingerprint += "-fast";
    log::warn("numerics: fast ({}): answers differ from those of the exact mode",
              summation_order(options.numerics));
  }
  signals.expect();  // before a client can know that we listen
  ASSIGN_OR_RETURN(const auto gateway,
                   Gateway::start(gateway_options, {*served.tokens, tokenizer, system_clock(), system_seed,
                                                    served.kv_store.store.get(), served.kv_store.tier.get()}));
  std::unique_ptr<KvAdmin> admin;
  if (options.admin_port) {
    if (options.kv_store.directories.empty()) {
      return Error(Code::kInvalidArgument, "--admin-port: there is no KV store to look after (no --kv-dir)");
    }
    if (served.kv_store.store == nullptr) log::warn("--admin-port: not opened, the KV store is {}", served.kv_store.state);
  }
  if (options.admin_port && served.kv_store.store != nullptr) {
    ASSIGN_OR_RETURN(admin, KvAdmin::start(*options.admin_port, *served.kv_store.store, served.kv_store.tier.get(),
                                           *served.tokens, system_clock()));
    print_output("admin on http://127.0.0.1:{}\n", admin->port());
  }
  RETURN_IF_ERROR(print_addresses(gateway_options, gateway->port()));

  signals.wait();
  log::info("stopping: ending running answers; Ctrl-C again ends the program at once");
  if (!gateway->stop(kStopTimeout)) {
    log::warn("connections were still open {} s after the signal, and are cut", kStopTimeout.count());
  }
  return {};
}

int run_serve(const ServeOptions& options) {
  StopSignals signals(kExitOk);  // a service manager stops what it started: not a failure
  raise_open_file_limit();
  const Status status = serve(options, signals);
  return status.ok() ? kExitOk : fail(status.error());
}

void add_gateway_options(CLI::App& parser, GatewayOptions& options) {
  options.http.port = 8000;
  parser.add_option("--host", options.http.host, "address to listen on; empty for a Unix socket alone")
      ->capture_default_str();
  parser.add_option("--port", options.http.port, "port to listen on, 0 for any free one")
      ->capture_default_str();
  parser.add_option("--unix-socket", options.http.unix_socket_path, "listen on this socket file too");
  parser.add_option("--tls-certificate", options.http.tls_certificate_path,
                    "PEM file; the port then speaks TLS");
  parser.add_option("--tls-key", options.http.tls_key_path, "PEM file with the certificate's key");
  parser.add_option("--http-threads", options.http.num_threads, "threads that speak HTTP")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  parser
      .add_option("--allow-host", options.allow_hosts,
                  "name under which clients may ask, beside localhost and addresses, or *; may be repeated; only "
                  "looked at without a key")
      ->allow_extra_args(false);
  parser
      .add_option("--max-body", options.max_body_bytes, "longest request body, as 16M; by default as the context asks")
      ->transform(CLI::AsSizeValue(false));
  parser
      .add_option("--request-memory", options.http.max_memory_bytes,
                  "what bodies and whole answers may hold together, as 256M")
      ->transform(CLI::AsSizeValue(false));
  parser.add_option("--allow-origin", options.allow_origin,
                    "origin whose pages may ask, or *; by default only the page served here");
  add_choice_option<PromptProfile>(
      parser, "--prompt-profile", options.prompt_format.profile,
      {{"recipe", PromptProfile::kRecipe}, {"reference", PromptProfile::kReference}},
      "prompts as DeepSeek's service makes them (recipe), or the encoder beside the weights")
      ->default_str("recipe");
  add_choice_option<bool>(parser, "--effort-table", options.prompt_format.prerelease_efforts,
                          {{"release", false}, {"prerelease", true}},
                          "numbers of the efforts: 50, 75, 75, 100, or 25, 50, 75, 100 of the model's prerelease")
      ->default_str("release");
  parser.add_flag("--strict-max-tokens", options.strict_max_tokens,
                  "refuse a max_tokens that the context has no room for, as DeepSeek's service does; by default the "
                  "answer gets what is left");
  parser.add_flag("--split-call-markup", options.prompt_format.split_call_markup,
                  "put U+200B into a closing tag that stands in the arguments of an earlier call");
  parser.add_option("--response-store", options.response_store_path,
                    "SQLite file for stored responses; memory by default");
  parser
      .add_option_function<int64_t>(
          "--response-ttl-hours",
          [&options](int64_t hours) { options.response_time_to_live = std::chrono::hours(hours); },
          "how long a response can be asked for again (720)")
      ->check(CLI::Range(int64_t{1}, int64_t{24} * 3650));
  parser
      .add_option_function<int64_t>(
          "--keep-alive-seconds",
          [&options](int64_t seconds) { options.keep_alive_interval = std::chrono::seconds(seconds); },
          "silence after which a stream says that it lives (10)")
      ->check(CLI::Range(int64_t{1}, int64_t{3600}));
}

}  // namespace

Command add_serve_command(CLI::App& program) {
  auto options = std::make_shared<ServeOptions>();  // shared by the parser's targets and the run function
  CLI::App* parser = program.add_subcommand("serve", "answer chat requests over HTTP");
  parser->footer(kServeExamples);
  add_path_option(*parser, "--model", options->model_directory, "directory of the checkpoint")->required();
  parser->add_option(
      "--served-model-name", options->served_model_name,
      "name that clients use; that of the checkpoint (_name_or_path in config.json) or its directory by default");
  add_gateway_options(*parser, options->gateway);
  add_api_key_options(*parser, options->api_key);
  parser->add_flag("--insecure", options->insecure, "listen beyond this machine without a key");
  parser->add_option("--engine", options->engine, "model, or scripted:FILE in the test program")
      ->capture_default_str();
  add_threads_option(*parser, options->threads);
  add_weights_cache_option(*parser, options->weights_cache_directory);
  add_numerics_option(*parser, options->numerics);
  add_engine_flags(*parser, options->engine_flags);
  add_kv_store_flags(*parser, options->kv_store);
  parser->add_option("--admin-port", options->admin_port,
                     "port on 127.0.0.1 for looking after the KV store (/kv/...), 0 for any free one; off by default");
  parser
      ->add_option("--max-context-tokens", options->max_context_tokens,
                   "longest prompt and answer together; sizes the KV cache")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  return {parser, [options] { return run_serve(*options); }};
}

}  // namespace deepinfer
