// The whole model on one checkpoint: decode at several contexts and numbers of streams, prefill, time per part, bytes per
// token against the bandwidth measured in the same rounds. The checkpoint is usually one of deepinfer make-checkpoint.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/weights_cache.h"
#include "checkpoint/tensor_list.h"
#include "json/json.h"
#include "machine_probe.h"
#include "model/kv_arena.h"
#include "model/model.h"
#include "source_path.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::bench {
namespace {

struct Options {
  std::string model;
  std::string isa = "auto";
  Numerics numerics = Numerics::kExact;
  int threads = 2;
  int rounds = 9;
  std::vector<int64_t> contexts = {32, 1024, 8192, 32768, 131072};
  std::vector<int64_t> streams = {1, 4, 16, 64};
  std::vector<int64_t> prefills = {512, 2048};
  std::string json_path, weights_cache;
  bool shared = false;       // leave the priority as it is
  int load = 0;              // processes that compute beside a decode step, at the same priority
  std::string rival_python;  // one that has ftllm
};

// Bytes of weights that one token of one stream needs; for more streams see bytes_for().
struct PlannedBytes {
  explicit PlannedBytes(const ModelConfig& config) : config(config) {
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      const std::string& name = tensor.name;
      const auto bytes = static_cast<double>(tensor.size_bytes());
      const bool draft = name.starts_with("mtp.");
      // Of the draft stages every pass needs what makes their window rows.
      if (draft && name.find("main_proj") == std::string::npos && name.find("attn.wkv") == std::string::npos) continue;
      if (name == "embed.weight" || name.find("engram.embed") != std::string::npos || name.ends_with("bias_vl")) continue;
      if (name.find(".experts.") != std::string::npos) {
        experts += bytes;
      } else if (name == "head.weight") {
        head += bytes;
      } else {
        dense += bytes;
      }
      parameters_of(name, tensor);
    }
  }
  void parameters_of(const std::string& name, const ExpectedTensor& tensor) {
    const auto count = static_cast<double>(tensor.num_parameters());
    if (name.find(".experts.") != std::string::npos) {
      operations += 2 * count * static_cast<double>(config.num_experts_per_tok) / static_cast<double>(config.n_routed_experts);
    } else if (name != "head.weight") {
      operations += 2 * count;
    }
  }
  // Rows that are spread over the experts evenly touch 1 - (1 - k/n)^rows of them.
  double bytes_for(int64_t rows) const {
    const double share = static_cast<double>(config.num_experts_per_tok) / static_cast<double>(config.n_routed_experts);
    return dense + head + experts * (1 - std::pow(1 - share, static_cast<double>(rows)));
  }

  const ModelConfig& config;
  double dense = 0, head = 0, experts = 0;
  double operations = 0;  // of a row, without head and attention over the cache
};

// Time from part to part.
class Stopwatch : public ForwardObserver {
 public:
  void start() { last_ = now_seconds(); }
  void values(std::string_view name, int64_t, std::span<const Bf16>) override { lap(name); }
  void finish() { lap("head"); }
  std::map<std::string, double> seconds;

 private:
  void lap(std::string_view name) {
    const double now = now_seconds();
    static const std::map<std::string_view, std::string> kParts = {
        {"attn_in", "hyper-connections"}, {"attn_out", "attention"}, {"ffn_in", "hyper-connections"},
        {"ffn_out", "experts"}, {"h_out", "hyper-connections"}, {"engram_out", "Engram"},
        {"main_hidden", "drafts' rows and head"}, {"head", "drafts' rows and head"}};
    if (const auto part = kParts.find(name); part != kParts.end()) {
      seconds[part->second] += now - last_;
      last_ = now;
    }
  }
  double last_ = 0;
};

// Processes that do nothing but compute, stopped until they are let go. To be made before there is memory to copy.
class Competitors {
 public:
  explicit Competitors(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t process = fork();
      if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) asm volatile("");
      }
      if (process > 0) processes_.push_back(process);
    }
    send(SIGSTOP);
  }
  ~Competitors() {
    send(SIGKILL);
    for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  }
  Competitors(const Competitors&) = delete;
  void run() const { send(SIGCONT); }
  void stop() const { send(SIGSTOP); }

 private:
  void send(int signal) const {
    for (const pid_t process : processes_) kill(process, signal);
  }
  std::vector<pid_t> processes_;
};

struct Line {
  std::string kind;
  int64_t context = 0, streams = 0;
  Spread seconds, share;
  double bytes = 0, tokens = 0;
  double regions = 0, waits = 0;  // a step
};

class Runner {
 public:
  Runner(Model& model, MachineProbe& probe, const Options& options)
      : model_(model), probe_(probe), options_(options), planned_(model.config()) {}

  const PlannedBytes& planned() const { return planned_; }

  // A prompt of one block, whose rows then stand for all older blocks.
  void fill_cache() {
    for (int64_t i = 0; i < kBlockTokens; ++i) ids_.push_back(random_id());
    run({{&model_.state(0), 0, ids_, LogitsRows::kNone, 0, table(0, 1)}});
    for (int64_t block = 1; block < model_.options().num_blocks; ++block) model_.copy_block(BlockId{0}, block_id(block));
  }

  // One token of each stream, all at the same position.
  Line decode(int64_t context, int64_t streams) {
    const int64_t blocks = static_cast<int64_t>(ceil_div(static_cast<size_t>(context + options_.rounds + 2), kBlockTokens));
    for (int64_t s = 0; s < streams; ++s) model_.start(model_.state(s), context, ids_before(context), {});
    Line line{"decode", context, streams, {}, {}, planned_.bytes_for(streams), static_cast<double>(streams)};
    std::vector<double> seconds, shares;
    uint64_t regions = 0, waits = 0;
    for (int round = -1; round < options_.rounds; ++round) {
      if (round == 0) regions = model_.num_regions(), waits = model_.num_waits();
      const double read = probe_.read_gbs(true) * 1e9;
      const double peak = std::max(probe_.bf16_gflops(), probe_.fp32_gflops()) * 1e9;
      std::vector<SequenceSpan> spans;
      tokens_.assign(static_cast<size_t>(streams), 0);
      for (int64_t s = 0; s < streams; ++s) {
        tokens_[s] = random_id();
        SequenceSpan span{&model_.state(s), context + round + 1, std::span(tokens_).subspan(s, 1), LogitsRows::kLast};
        if (round < 0) span.new_blocks = table(streams > 1 ? s * blocks : 0, blocks);
        spans.push_back(span);
      }
      const double time = run(spans);
      if (round < 0) continue;
      seconds.push_back(time);
      // Many streams are bound by arithmetic where few experts are spread over few cores.
      const double operations = (planned_.operations + planned_.head) * static_cast<double>(streams);  // head: 2 bytes a weight
      shares.push_back(std::max(line.bytes / read, operations / peak) / time);
      rest(time);
    }
    line.seconds = spread_of(seconds);
    line.share = spread_of(shares);
    line.regions = static_cast<double>(model_.num_regions() - regions) / options_.rounds;
    line.waits = static_cast<double>(model_.num_waits() - waits) / options_.rounds;
    return line;
  }

  // A decode step alone and beside `load` computing processes, in turn; the second as a share of its floor, which is the
  // first times what is left of the cores when all runnable threads get the same.
  void compete(int64_t context, const Competitors& competitors) {
    const int load = options_.load;
    const int64_t blocks = static_cast<int64_t>(ceil_div(static_cast<size_t>(context + 2 * options_.rounds + 2), kBlockTokens));
    const double threads = options_.threads, cores = std::thread::hardware_concurrency();
    const double fair = std::max(1.0, (threads + load) / cores);
    std::vector<double> alone, beside, ratios;
    model_.start(model_.state(0), context, ids_before(context), {});
    for (int i = 0; i < 2 * options_.rounds + 1; ++i) {
      tokens_.assign(1, random_id());
      SequenceSpan span{&model_.state(0), context + i, tokens_, LogitsRows::kLast};
      if (i == 0) span.new_blocks = table(0, blocks);
      const bool compete = i % 2 == 0;
      if (compete) competitors.run();
      const double time = run({span});
      competitors.stop();
      if (i == 0) continue;
      (compete ? beside : alone).push_back(time);
      if (compete) ratios.push_back(time / alone.back());
    }
    const Spread a = spread_of(alone), b = spread_of(beside), r = spread_of(ratios);
    fmt::print("beside {} computing processes, context {}: {:.2f} ms [{:.2f}, {:.2f}], alone {:.2f} ms [{:.2f}, {:.2f}]: {:.2f} times "
               "[{:.2f}, {:.2f}]; equal shares of {:.0f} cores would be {:.2f} times\n",
               load, context, b.median * 1e3, b.low * 1e3, b.high * 1e3, a.median * 1e3, a.low * 1e3, a.high * 1e3, r.median, r.low,
               r.high, cores, fair);
  }

  Line prefill(int64_t rows) {
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < rows; ++i) prompt.push_back(random_id());
    Line line{"prefill", rows, 1, {}, {}, planned_.bytes_for(rows), static_cast<double>(rows)};
    std::vector<double> seconds, shares;
    const int64_t chunk = model_.options().max_batch_tokens;
    for (int round = 0; round < std::max(1, options_.rounds / 4); ++round) {
      const double peak = std::max(probe_.bf16_gflops(), probe_.fp32_gflops()) * 1e9;
      model_.start(model_.state(0), 0, {}, {});
      double time = 0;
      for (int64_t first = 0; first < rows; first += chunk) {
        const int64_t count = std::min(chunk, rows - first);
        SequenceSpan span{&model_.state(0), first, std::span(prompt).subspan(first, count), LogitsRows::kLast};
        if (first == 0) span.new_blocks = table(0, static_cast<int64_t>(ceil_div(static_cast<size_t>(rows), kBlockTokens)));
        time += run({span});
      }
      seconds.push_back(time);
      shares.push_back(planned_.operations * static_cast<double>(rows) / peak / time);
    }
    line.seconds = spread_of(seconds);
    line.share = spread_of(shares);
    return line;
  }

  std::map<std::string, double> parts(int64_t context, int64_t rows) {
    Stopwatch watch;
    const int rounds = rows > 1 ? 1 : options_.rounds;
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < rows; ++i) prompt.push_back(random_id());
    model_.start(model_.state(0), context, ids_before(context), {});
    for (int round = 0; round < rounds; ++round) {
      SequenceSpan span{&model_.state(0), context + round, prompt, LogitsRows::kLast};
      if (round == 0) {
        span.new_blocks = table(0, static_cast<int64_t>(ceil_div(static_cast<size_t>(context + rows + rounds), kBlockTokens)));
      }
      watch.start();
      run({span}, &watch);
      watch.finish();
    }
    for (auto& [name, seconds] : watch.seconds) seconds /= rounds;
    return watch.seconds;
  }

 private:
  static BlockId block_id(int64_t block) { return static_cast<BlockId>(block); }
  std::span<const int32_t> ids_before(int64_t position) const {
    return std::span(ids_).last(std::min(ids_.size(), static_cast<size_t>(position)));
  }
  int32_t random_id() { return static_cast<int32_t>(rng_() % static_cast<uint64_t>(model_.config().vocab_size)); }

  std::span<const BlockId> table(int64_t first, int64_t count) {
    auto& ids = tables_.emplace_back();
    for (int64_t i = 0; i < count; ++i) ids.push_back(block_id((first + i) % model_.options().num_blocks));
    return ids;
  }

  // The kernel takes a real-time process off its core when it never sleeps.
  static void rest(double worked_seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, worked_seconds / 4)));
  }

  double run(const std::vector<SequenceSpan>& spans, ForwardObserver* observer = nullptr) {
    const double start = now_seconds();
    const auto output = model_.forward_batch(spans, observer);
    const double time = now_seconds() - start;
    if (!output.ok() || !output->faults.empty()) {
      fmt::print(stderr, "model_bench: {}\n", output.ok() ? "a row is not finite" : output.error().message());
      std::exit(1);
    }
    return time;
  }

  Model& model_;
  MachineProbe& probe_;
  const Options& options_;
  PlannedBytes planned_;
  std::mt19937_64 rng_{11};
  std::vector<int32_t> ids_, tokens_;
  std::deque<std::vector<BlockId>> tables_;  // the model keeps no copy while a call runs
};

void print_line(const Line& line) {
  const bool decode = line.kind == "decode";
  fmt::print("{:<8} context {:>6}  streams {:>3}  {:>9.2f} ms [{:>9.2f}, {:>9.2f}]  {:>8.2f} tokens/s  {:>6.2f} GB/s  {:>4.0f} % of {}\n",
             line.kind, line.context, line.streams, line.seconds.median * 1e3, line.seconds.low * 1e3,
             line.seconds.high * 1e3, line.tokens / line.seconds.median, line.bytes / line.seconds.median / 1e9,
             100 * line.share.median, decode ? "its floor" : "BF16 peak");
}

void print_parts(const std::string& title, const std::map<std::string, double>& parts) {
  double total = 0;
  for (const auto& [name, seconds] : parts) total += seconds;
  fmt::print("{}:", title);
  for (const auto& [name, seconds] : parts) fmt::print("  {} {:.2f} ms ({:.0f} %)", name, seconds * 1e3, 100 * seconds / total);
  fmt::print("\n");
}

double peak_rss_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

int fail(const Error& error) {
  fmt::print(stderr, "model_bench: {}\n", error.message());
  return 1;
}

// The figures of ftllm_baseline.py on the same directory; null when it failed.
JsonValue run_rival(const Options& options) {
  const std::string command =
      fmt::format("'{}' '{}' '{}' 32 8", options.rival_python, source_path("bench/ftllm_baseline.py"), options.model);
  std::string line;
  if (FILE* pipe = popen(command.c_str(), "r"); pipe != nullptr) {
    char part[512];
    while (fgets(part, sizeof(part), pipe) != nullptr) line += part;
    if (pclose(pipe) != 0) line.clear();
  }
  auto figures = parse_json(line);
  if (!figures.ok()) {
    fmt::print("ftllm: gave no figures that can be\n");
    return {};
  }
  const JsonRef root(*figures);
  const auto value = [&root](std::string_view name) {
    const auto number = root[name].number();
    return number.ok() ? *number : 0.0;
  };
  fmt::print("ftllm 1.9.0, prompt 32, -t 1: prefill {:.2f} tokens/s, decode {:.2f} tokens/s, peak RSS {:.2f} GB\n",
             value("prefill_tokens_per_second"), value("decode_tokens_per_second"), value("peak_rss_bytes") / 1e9);
  return std::move(*figures);
}

int run(const Options& options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // lines appear as they come, in a pipe too
  const Competitors competitors(options.load);
  const std::string priority = options.shared || options.load > 0 ? "as started" : raise_priority();
  const auto checkpoint = Checkpoint::open(options.model);
  if (!checkpoint.ok()) return fail(checkpoint.error());
  const ModelConfig& config = checkpoint->config();
  const auto tokenizer = Tokenizer::load(options.model + "/tokenizer.json");
  if (!tokenizer.ok()) return fail(tokenizer.error());
  const int64_t longest = std::min<int64_t>(
      config.max_position_embeddings,
      std::max(*std::max_element(options.contexts.begin(), options.contexts.end()), int64_t{2048}) + 4096);
  const int64_t most = *std::max_element(options.streams.begin(), options.streams.end());
  ModelOptions model_options{.isa = options.isa,
                             .numerics = options.numerics,
                             .num_threads = options.threads,
                             .max_context_tokens = longest,
                             .max_sequences = most,
                             .num_blocks = std::max<int64_t>(longest / kBlockTokens + 2, most * 10),
                             .max_batch_tokens = 512};
  const double start = now_seconds();
  const auto cache = find_weights_cache(options.weights_cache, *checkpoint, options.threads);
  const double named = now_seconds();
  auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, config.vocab_size), model_options, {}, cache ? &*cache : nullptr);
  if (!model.ok()) return fail(model.error());
  const double load_seconds = now_seconds() - named;
  if (cache) fmt::print("digest of the checkpoint: {:.2f} s\n", named - start);
  const MemoryPlan plan = (*model)->memory_plan();
  const std::string isa((*model)->isa()), order((*model)->summation_order());
  fmt::print("load{}: {:.2f} GB in {:.2f} s, {:.2f} GB/s; peak RSS {:.2f} GB, {:.3f} x planned ({:.2f} GB)\n",
             (*model)->weights_from_cache() ? " from the weights cache" : "", static_cast<double>(plan.weight_bytes) / 1e9, load_seconds, static_cast<double>(plan.weight_bytes) / 1e9 / load_seconds,
             peak_rss_bytes() / 1e9, peak_rss_bytes() / static_cast<double>(plan.total_bytes()),
             static_cast<double>(plan.total_bytes()) / 1e9);

  ThreadPool pool(options.threads, ThreadPool::Pinning::kOneCorePerThread);
  auto probe = MachineProbe::make(pool);
  if (!probe.ok()) return fail(probe.error());
  const MachineFigures machine = probe->measure(options.rounds);
  fmt::print("{}", MachineProbe::text(machine, options.threads));
  Runner runner(**model, *probe, options);
  const PlannedBytes& planned = runner.planned();
  fmt::print(
      "{} layers x {} experts, table {}, order {}, priority {}; a token needs {:.3f} GB: dense {:.3f}, "
      "experts {:.3f}, head {:.3f}\n\n",
      config.num_hidden_layers, config.n_routed_experts, (*model)->isa(), (*model)->summation_order(),
      priority, planned.bytes_for(1) / 1e9, planned.dense / 1e9,
      (planned.bytes_for(1) - planned.dense - planned.head) / 1e9, planned.head / 1e9);
  runner.fill_cache();
  std::vector<Line> lines;
  const auto add = [&](Line line) {
    print_line(line);
    lines.push_back(std::move(line));
  };
  for (const int64_t context : options.contexts) add(runner.decode(context, 1));
  for (const int64_t streams : options.streams) {
    if (streams > 1) add(runner.decode(1024, streams));
  }
  for (const int64_t rows : options.prefills) add(runner.prefill(rows));
  if (options.load > 0) runner.compete(1024, competitors);
  const auto decode_parts = runner.parts(1024, 1);
  const auto prefill_parts = runner.parts(0, 512);
  print_parts("parts of a decode step at 1024", decode_parts);
  for (const Line& line : lines) {
    if (line.kind != "decode") continue;
    fmt::print("threads in a decode step at {}, {} streams: {:.0f} regions, {:.1f} waits a layer\n", line.context, line.streams,
               line.regions, line.waits / static_cast<double>(config.num_hidden_layers));
  }
  print_parts("parts of a prefill of 512", prefill_parts);
  const double peak_bytes = peak_rss_bytes();
  const double bytes_per_token = planned.bytes_for(1);
  JsonValue rival;
  if (!options.rival_python.empty()) {
    model->reset();  // memory for one of them
    rival = run_rival(options);
  }
  if (options.json_path.empty()) return 0;
  std::string text;
  JsonWriter writer(text);
  writer.begin_object().member("processor", MachineProbe::cpu_name()).member("isa", isa).member("summation_order", order);
  if (rival.object() != nullptr) writer.key("ftllm").raw(to_json(rival));
  writer.member("read_gbs_all", machine.read_all.median).member("bf16_gflops", machine.bf16.median);
  writer.member("load_seconds", load_seconds).member("peak_rss_bytes", peak_bytes);
  writer.member("planned_bytes", plan.total_bytes()).member("bytes_per_token", bytes_per_token).key("lines").begin_array();
  for (const Line& line : lines) {
    writer.begin_object().member("kind", line.kind).member("context", line.context).member("streams", line.streams);
    writer.member("seconds", line.seconds.median).member("seconds_p10", line.seconds.low).member("seconds_p90", line.seconds.high);
    writer.member("tokens_per_second", line.tokens / line.seconds.median).member("share", line.share.median);
    writer.member("regions", line.regions).member("waits", line.waits).end_object();
  }
  writer.end_array();
  for (const auto& [key, parts] : {std::pair{"decode_parts", &decode_parts}, {"prefill_parts", &prefill_parts}}) {
    writer.key(key).begin_object();
    for (const auto& [name, seconds] : *parts) writer.member(name, seconds);
    writer.end_object();
  }
  writer.end_object();
  std::ofstream(options.json_path) << text << '\n';
  return 0;
}

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> list;
  for (size_t at = 0; at < text.size(); at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1) {
    list.push_back(std::max<int64_t>(1, std::atoll(text.c_str() + at)));
  }
  return list.empty() ? std::vector<int64_t>{1} : list;
}

constexpr char kUsage[] =
    "model_bench --model DIR [--isa NAME] [--numerics exact|fast] [--threads N] [--rounds N] [--contexts "
    "A,B] [--streams A,B] [--prefills A,B] "
    "[--weights-cache DIR] [--shared] [--load PROCESSES] [--ftllm PYTHON] [--json FILE]\n"
    "DIR: a checkpoint, for example of deepinfer make-checkpoint --layers 8 --experts 32 --out "
    "build/flash-8x32\n";

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) {
  deepinfer::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--shared") {
      options.shared = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    ++i;
    if (option == "--model") {
      options.model = value;
    } else if (option == "--isa") {
      options.isa = value;
    } else if (option == "--numerics" && (value == "exact" || value == "fast")) {
      options.numerics = value == "fast" ? deepinfer::Numerics::kFast : deepinfer::Numerics::kExact;
    } else if (option == "--threads") {
      options.threads = std::max(1, std::atoi(value.c_str()));
    } else if (option == "--rounds") {
      options.rounds = std::max(1, std::atoi(value.c_str()));
    } else if (option == "--contexts") {
      options.contexts = deepinfer::bench::numbers(value);
    } else if (option == "--streams") {
      options.streams = deepinfer::bench::numbers(value);
    } else if (option == "--prefills") {
      options.prefills = deepinfer::bench::numbers(value);
    } else if (option == "--load") {
      options.load = std::max(0, std::atoi(value.c_str()));
    } else if (option == "--ftllm") {
      options.rival_python = value;
    } else if (option == "--weights-cache") {
      options.weights_cache = value;
    } else if (option == "--json") {
      options.json_path = value;
    } else {
      options.model.clear();
      break;
    }
  }
  if (options.model.empty()) {
    fmt::print(stderr, "{}", deepinfer::bench::kUsage);
    return 2;
  }
  return deepinfer::bench::run(options);
}
