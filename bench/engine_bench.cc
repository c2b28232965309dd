// What the engine adds to the model, and what batching gives. Every figure stands beside its baseline of the same run:
// the bare model called in a loop, one stream, the same load without a prompt beside it, the cold prompt.
// Usage: engine_bench [MODEL_DIRECTORY [THREADS [PART]]]   (models/mini, 1, all; a PART is the name of a function below)
#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "crypto/crypto.h"
#include "engine/block_shape.h"
#include "engine/engine.h"
#include "json/json.h"
#include "machine_probe.h"
#include "model/kv_arena.h"
#include "model/model.h"
#include "recipe/recipe.h"
#include "source_path.h"
#include "store/store.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using Seconds = std::chrono::duration<double>;
double now() { return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Setup {
  std::string directory;
  int threads = 1;
};

std::unique_ptr<Model> load(const Setup& setup, ModelOptions options) {
  options.num_threads = setup.threads;
  const auto fail = [](const Error& error) {
    fmt::print(stderr, "engine_bench: {}\n", error.message());
    std::exit(1);
  };
  auto checkpoint = Checkpoint::open(setup.directory);
  if (!checkpoint.ok()) fail(checkpoint.error());
  auto tokenizer = Tokenizer::load(setup.directory + "/tokenizer.json");
  if (!tokenizer.ok()) fail(tokenizer.error());
  auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, checkpoint->config().vocab_size), options);
  if (!model.ok()) fail(model.error());
  return std::move(*model);
}

std::vector<int32_t> random_ids(uint32_t seed, int64_t count) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = 3 + static_cast<int32_t>(rng() % 1000);
  return ids;
}

// One answer and the times of its tokens.
struct Stream {
  std::vector<double> times;
  double submitted = 0;
  std::vector<int32_t> tokens;
  std::promise<void> done;
  int64_t cached = 0;

  void start(Engine& engine, std::vector<int32_t> prompt, int64_t answer) {
    EngineRequest request;
    request.prompt_ids = std::move(prompt);
    request.max_tokens = answer;
    request.sampling.temperature = 0;
    submitted = now();
    const auto id = engine.submit(std::move(request), [this](const EngineEvent& event) {
      if (event.kind == EngineEvent::Kind::kToken) {
        times.push_back(now());
        tokens.push_back(event.token_id);
      }
      if (event.kind != EngineEvent::Kind::kFinished) return;
      cached = event.cached_tokens;
      done.set_value();
    });
    if (!id.ok()) {
      fmt::print(stderr, "engine_bench: {}\n", id.error().message());
      std::exit(1);
    }
  }
  void wait() { done.get_future().wait(); }
  double first_token() const { return times.front() - submitted; }
  std::vector<double> gaps(double from = 0, double to = 1e300) const {
    std::vector<double> gaps;
    for (size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] >= from && times[i] <= to) gaps.push_back(times[i] - times[i - 1]);
    }
    return gaps;
  }
};

double tokens_per_second(Engine& engine, int streams, int64_t answer) {
  std::vector<std::unique_ptr<Stream>> all;
  for (int i = 0; i < streams; ++i) {
    all.push_back(std::make_unique<Stream>());
    all.back()->start(engine, random_ids(static_cast<uint32_t>(i), 8), answer);
  }
  double first = 0, last = 0;
  int64_t tokens = 0;
  for (auto& stream : all) {
    stream->wait();
    first = std::max(first, stream->times.front());
  }
  for (auto& stream : all) {
    for (const double time : stream->times) tokens += time > first ? 1 : 0;
    last = std::max(last, stream->times.back());
  }
  return static_cast<double>(tokens) / (last - first);
}

// The floor of one stream: the model alone, one row a call.
double bare_tokens_per_second(Model& model, int64_t answer) {
  auto sequence = model.make_sequence();
  auto ids = random_ids(0, 8);
  SequenceSpan span{sequence->get(), 0, ids};
  auto logits = model.forward({&span, 1});
  const double begin = now();
  for (int64_t i = 0; i < answer; ++i) {
    const auto token = static_cast<int32_t>(std::max_element(logits->begin(), logits->end()) - logits->begin());
    span = {sequence->get(), 8 + i, {&token, 1}};
    logits = model.forward({&span, 1});
  }
  return static_cast<double>(answer) / (now() - begin);
}

EngineOptions options_of(int depth) {
  EngineOptions options;
  options.scheduling_depth = depth;
  return options;
}

void overhead(const Setup& setup) {
  fmt::print("\nplan and bookkeeping a step, kernels apart (goal: 20 us at 32, 200 us at 256)\n");
  for (const int64_t streams : {1, 32, 256}) {
    Counters counters;
    Engine engine(load(setup, {.max_context_tokens = 256, .max_sequences = 288, .max_batch_tokens = 256}),
                  [] {
                    EngineOptions options = options_of(1);
                    options.max_running = 256;
                    return options;
                  }(),
                  counters);
    std::vector<std::unique_ptr<Stream>> all;
    for (int64_t i = 0; i < streams; ++i) {
      all.push_back(std::make_unique<Stream>());
      all.back()->start(engine, random_ids(static_cast<uint32_t>(i), 4), 100);
    }
    for (auto& stream : all) stream->wait();
    const EngineStats s = engine.stats();
    const auto per_step = [&](int64_t ns) { return static_cast<double>(ns) / static_cast<double>(s.steps) / 1000; };
    fmt::print("  {:>3} sequences: plan {:6.1f} us, commit {:6.1f} us (with the receivers), step {:8.1f} us, draws {:7.1f} us\n",
               streams, per_step(s.plan_ns), per_step(s.commit_ns), per_step(s.execute_ns), per_step(s.sample_ns));
  }
}

void throughput(const Setup& setup) {
  fmt::print("\nthroughput, tokens a second (goal: 16 streams >= 3x one)\n");
  const int64_t answer = 120;
  std::vector<double> bare, one[2], sixteen[2];
  auto model = load(setup, {.max_context_tokens = 256});
  Counters counters;
  const ModelOptions shape = {.max_context_tokens = 256, .max_sequences = 24};
  Engine depth0(load(setup, shape), options_of(0), counters), depth1(load(setup, shape), options_of(1), counters);
  for (int round = 0; round < 5; ++round) {
    bare.push_back(bare_tokens_per_second(*model, answer));
    for (int depth = 0; depth < 2; ++depth) {
      Engine& engine = depth == 0 ? depth0 : depth1;
      one[depth].push_back(tokens_per_second(engine, 1, answer));
      sixteen[depth].push_back(tokens_per_second(engine, 16, answer));
    }
  }
  fmt::print("  bare model, one stream {:9.0f}\n", median(bare));
  for (int depth = 0; depth < 2; ++depth) {
    fmt::print("  depth {}: one stream {:9.0f} ({:.2f} of bare), 16 streams {:9.0f} = {:.2f}x one\n", depth,
               median(one[depth]), median(one[depth]) / median(bare), median(sixteen[depth]),
               median(sixteen[depth]) / median(one[depth]));
  }
}

void mixed(const Setup& setup) {
  fmt::print("\ntime between tokens of 4 running answers, with a long prompt beside them (goal: <= 2x without)\n");
  for (const int64_t slice : {16, 64, 256}) {
    EngineOptions options = options_of(1);
    options.prefill_rows = slice;
    options.prefix_cache = false;
    options.context_mode = ContextMode::kExact;
    Counters counters;
    Engine engine(load(setup, {.max_context_tokens = 6000, .max_sequences = 8, .num_blocks = 400, .max_batch_tokens = 320}),
                  options, counters);
    std::vector<std::unique_ptr<Stream>> running;
    for (uint32_t i = 0; i < 4; ++i) {
      running.push_back(std::make_unique<Stream>());
      running.back()->start(engine, random_ids(i, 8), 1200);
    }
    while (engine.stats().completion_tokens == 0 && engine.stats().steps < 300) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Stream prompt;
    const double begin = now();
    prompt.start(engine, random_ids(77, 3000), 1);
    prompt.wait();
    const double end = now();
    for (auto& stream : running) stream->wait();
    std::vector<double> with, without;
    for (auto& stream : running) {
      for (const double gap : stream->gaps(begin, end)) with.push_back(gap);
      for (const double gap : stream->gaps(end)) without.push_back(gap);
      for (const double gap : stream->gaps(0, begin)) without.push_back(gap);
    }
    fmt::print("  slice of {:>3}: {:7.3f} ms with, {:7.3f} ms without = {:.2f}x; the prompt of 3,000 took {:.2f} s\n", slice,
               1e3 * median(with), 1e3 * median(without), median(with) / median(without), end - begin);
  }
}

void prefix_hit(const Setup& setup) {
  fmt::print("\ntime to first token with 4,000 tokens in the cache, and cold (goal: <= 10 %)\n");
  struct Case {
    const char* name;
    ContextMode mode;
    bool keep_states;
  };
  for (const Case& c : {Case{"stable, windows kept", ContextMode::kStable, true},
                        Case{"stable, windows lost", ContextMode::kStable, false},
                        Case{"bounded, windows kept", ContextMode::kBounded, true},
                        Case{"bounded, windows lost", ContextMode::kBounded, false},
                        Case{"exact, windows kept", ContextMode::kExact, true},
                        Case{"exact, windows lost", ContextMode::kExact, false}}) {
    EngineOptions options = options_of(1);
    options.context_mode = c.mode;
    options.keep_states = c.keep_states;
    Counters counters;
    Engine engine(load(setup, {.max_context_tokens = 5000, .max_sequences = 8, .num_blocks = 200}), options, counters);
    std::vector<double> cold, hit;
    int64_t cached = 0;
    for (uint32_t round = 0; round < 3; ++round) {
      const auto prompt = random_ids(round, 4030);
      Stream first, second;
      first.start(engine, {prompt.begin(), prompt.begin() + 4000}, 1);
      first.wait();
      cold.push_back(first.first_token());
      second.start(engine, prompt, 1);
      second.wait();
      hit.push_back(second.first_token());
      cached = second.cached;
    }
    fmt::print("  {:<22} cold {:8.1f} ms, hit {:8.1f} ms = {:5.1f} % ({} tokens cached)\n", c.name, 1e3 * median(cold),
               1e3 * median(hit), 100 * median(hit) / median(cold), cached);
  }
}

constexpr ContextMode kModes[] = {ContextMode::kExact, ContextMode::kStable, ContextMode::kBounded};
// Ids that no text holds, for turns.
const TurnTokens kTurns = {.assistant = {1002}, .end = {1001}};

// One kind of work: what is asked first, untimed, and what then, timed. `restart`: in a new engine on the same KV store.
struct ContextWork {
  const char* name;
  std::vector<int32_t> first, then;
  int64_t answer = 1;  // of the first
  bool restart = false;
};

std::vector<ContextWork> context_works(uint32_t round) {
  const auto text = [&](uint32_t seed, int64_t count) {
    auto ids = random_ids(1000 * round + seed, count);
    for (int32_t& id : ids) id = std::min<int32_t>(id, 1000);
    return ids;
  };
  const auto with = [](std::vector<int32_t> ids, const std::vector<int32_t>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  };
  const auto user = with(text(1, 3998), {1002});
  const auto shared = text(2, 2000);
  return {{"cold prompt of 4,000 tokens of user text", {}, user},
          // the answer itself is put behind the first prompt when it is known
          {"next turn of a chat, 30 new tokens, states kept", user, with(text(3, 28), {1002}), 60},
          {"30-token question behind a shared beginning of 2,000", with(shared, with(text(4, 29), {1002})),
           with(shared, with(text(5, 29), {1002}))},
          {"the 4,000 tokens after a restart with a KV store", user, user, 1, true}};
}

std::unique_ptr<store::Store> open_bench_store(const Model& model, store::IoBackend& backend, const std::string& root) {
  store::StoreOptions options = block_shape(model);
  options.drives = {root};
  options.capacity_bytes = 256 << 20;
  options.fingerprint[0] = options.master_key[0] = std::byte{1};
  auto opened = store::Store::open(options, backend, system_clock());
  if (opened.ok() && (*opened)->wait_ready(system_clock().now() + std::chrono::seconds(30)).ok()) return std::move(*opened);
  fmt::print(stderr, "engine_bench: no KV store at {}\n", root);
  std::exit(1);
}

// Seconds to the first token of `work.then`, in a fresh engine.
double time_context_work(const Setup& setup, ContextMode mode, ContextWork work) {
  auto backend = store::make_io_backend(store::IoKind::kAuto);
  if (!backend.ok()) std::exit(1);
  const std::string root = std::filesystem::temp_directory_path() / fmt::format("engine_bench_context_{}", ::getpid());
  std::unique_ptr<store::Store> kv;
  std::unique_ptr<Engine> engine;
  Counters counters;
  const auto open = [&] {
    engine.reset();
    kv.reset();
    auto model = load(setup, {.max_context_tokens = 5000, .max_sequences = 8, .num_blocks = 200});
    EngineOptions options = options_of(0);
    options.context_mode = mode;
    options.turn_tokens = kTurns;
    if (work.restart) kv = open_bench_store(*model, **backend, root);
    options.store = kv.get();
    engine = std::make_unique<Engine>(std::move(model), options, counters);
    Stream warm;  // the first step of a process is slower
    warm.start(*engine, random_ids(99, 200), 2);
    warm.wait();
  };
  open();
  if (!work.first.empty()) {
    Stream first;
    first.start(*engine, work.first, work.answer);
    first.wait();
    if (work.answer > 1) {  // the next turn: what was said, its end, the new message
      auto turn = work.first;
      turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
      turn.push_back(1001);
      turn.insert(turn.end(), work.then.begin(), work.then.end());
      work.then = std::move(turn);
    }
  }
  if (work.restart) open();
  Stream timed;
  timed.start(*engine, work.then, 1);
  timed.wait();
  engine.reset();
  kv.reset();
  std::filesystem::remove_all(root);
  return timed.first_token();
}

// Held-out text of the mini: the token behind a beginning, with the rows of each mode, against all rows through all layers.
void agreement(const Setup& setup) {
  std::ifstream file(setup.directory + "/golden/teacher.jsonl");
  auto model = load(setup, {.max_context_tokens = 2048, .max_sequences = 1, .max_batch_tokens = 2048});
  const auto tokenizer = Tokenizer::load(setup.directory + "/tokenizer.json");
  TurnTokens turns;
  if (const auto id = assistant_token_id(*tokenizer)) turns.assistant = {*id};
  if (const auto stops = stop_token_ids(*tokenizer); stops.ok()) {
    for (const int32_t id : *stops) {
      if (turns.assistant.empty() || id != turns.assistant[0]) turns.end.push_back(id);
    }
  }
  std::array<double, 3> loss = {};
  std::array<int64_t, 3> equal = {};
  int64_t count = 0;
  for (std::string line; std::getline(file, line);) {
    const auto json = parse_json(line);
    if (!json.ok()) continue;
    std::vector<int32_t> ids;
    for (const JsonValue& id : *json->find("ids")->array()) ids.push_back(static_cast<int32_t>(*id.int64()));
    for (int64_t n = 180; n < std::min<int64_t>(std::ssize(ids), 2000); n += 61) {
      ++count;
      int32_t exact = 0;
      for (size_t m = 0; m < 3; ++m) {
        const std::span<const int32_t> prompt(ids.data(), static_cast<size_t>(n));
        auto sequence = model->make_sequence();
        model->start(**sequence, 0, {}, {.decoder_first = first_decoder_row(kModes[m], prompt, turns, kDecoderTail)});
        const SequenceSpan span{sequence->get(), 0, prompt};
        const auto logits = model->forward({&span, 1});
        if (!logits.ok()) return fmt::print("  {}\n", logits.error().message());
        const auto likeliest = static_cast<int32_t>(std::max_element(logits->begin(), logits->end()) - logits->begin());
        if (m == 0) exact = likeliest;
        equal[m] += likeliest == exact;
        loss[m] -= token_logprobs(*logits, ids[static_cast<size_t>(n)], 0).chosen.logprob;
      }
    }
  }
  if (count == 0) return fmt::print("  no held-out text of more than 180 tokens in {}/golden/teacher.jsonl\n", setup.directory);
  for (size_t m = 0; m < 3; ++m) {
    fmt::print("  {:<8} likeliest token as in exact {:6.2f} % of {}, loss {:.5f}\n", context_mode_name(kModes[m]),
               100.0 * static_cast<double>(equal[m]) / static_cast<double>(count), count, loss[m] / static_cast<double>(count));
  }
}

void contexts(const Setup& setup) {
  constexpr int kRounds = 5;
  fmt::print("\ntime to first token by context mode, ms; beside it the ratio to exact and to bounded, paired\n");
  const size_t num_works = context_works(0).size();
  for (size_t w = 0; w < num_works; ++w) {
    std::array<std::vector<double>, 3> times;
    for (int round = 0; round < kRounds; ++round) {
      for (size_t m = 0; m < 3; ++m) {  // in turn, so that all see the same machine
        times[m].push_back(time_context_work(setup, kModes[m], context_works(static_cast<uint32_t>(round))[w]));
      }
    }
    const auto ratio = [&](size_t a, size_t b) {
      std::vector<double> ratios;
      for (int round = 0; round < kRounds; ++round) ratios.push_back(times[a][round] / times[b][round]);
      return median(ratios);
    };
    fmt::print("  {:<52} exact {:8.1f}  stable {:8.1f}  bounded {:8.1f}   stable/exact {:.2f}, stable/bounded {:.2f}\n",
               context_works(0)[w].name, 1e3 * median(times[0]), 1e3 * median(times[1]), 1e3 * median(times[2]), ratio(1, 0),
               ratio(1, 2));
  }
  agreement(setup);
}

// Decode steps while a KV store of full-size blocks writes and reads as fast as it can, beside the same steps without: in
// turn, so that both see the same machine. The store's threads need processor time of their own; on two shared cores that
// is most of what is seen.
void busy_disk(const Setup& setup) {
  fmt::print("\ndecode steps of 4 answers while the KV store's disk is busy (goal: median <= +3 %)\n");
  const std::string root = std::filesystem::temp_directory_path() / fmt::format("engine_bench_kv_{}", ::getpid());
  auto backend = store::make_io_backend(store::IoKind::kAuto);
  if (!backend.ok()) return fmt::print("  no I/O: {}\n", backend.error().message());
  store::StoreOptions options;
  options.drives = {root};
  options.capacity_bytes = 2ull << 30;
  options.segment_bytes = 128 << 20;
  options.payload_bytes = 113'920;
  options.group_bytes = {22'784, 22'784, 22'784, 45'568};
  options.fingerprint[0] = options.master_key[0] = std::byte{1};
  auto opened = store::Store::open(options, **backend, system_clock());
  if (!opened.ok()) return fmt::print("  no store: {}\n", opened.error().message());
  store::Store& kv = **opened;
  const auto domain = kv.domain("bench");
  if (!domain.ok()) return fmt::print("  no store: {}\n", domain.error().message());
  std::atomic<bool> busy{false}, end{false};
  std::atomic<uint64_t> moved{0};
  std::jthread load_thread([&] {
    std::vector<std::byte> payload(options.payload_bytes);
    std::vector<Digest> keys;
    for (uint64_t number = 1; !end;) {
      if (!busy) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const size_t first = keys.size();
      for (int i = 0; i < 64; ++i, ++number) {
        store::BlockInfo info;
        info.domain = *domain;
        info.retention = store::RetentionClass::kBestEffort;
        info.key = sha256(std::as_bytes(std::span(&number, 1)));
        info.block_index = static_cast<uint32_t>(keys.size());
        if (kv.put(info, payload) != store::PutResult::kQueued) break;
        keys.push_back(info.key);
        moved += payload.size();
      }
      (void)kv.flush(system_clock().now() + std::chrono::seconds(5));
      const auto hit = kv.lookup(*domain, std::span(keys).subspan(first), Lineage::kExact,
                                 static_cast<uint32_t>(first));
      moved += options.payload_bytes * kv.load(hit, 0, system_clock().now() + std::chrono::seconds(5),
                                               [](size_t, std::span<const std::byte>) {}).num_blocks;
    }
  });
  Counters counters;
  Engine engine(load(setup, {.max_context_tokens = 2000, .max_sequences = 8, .num_blocks = 100}), options_of(0), counters);
  std::vector<double> with, without, ratios, tails;
  double seconds = 0;
  for (int round = 0; round < 10; ++round) {
    busy = round % 2 == 1;
    const double begin = now();
    std::vector<std::unique_ptr<Stream>> all;
    for (uint32_t i = 0; i < 4; ++i) {
      all.push_back(std::make_unique<Stream>());
      all.back()->start(engine, random_ids(i, 8), 250);
    }
    std::vector<double> gaps;
    for (auto& stream : all) {
      stream->wait();
      for (const double gap : stream->gaps()) gaps.push_back(gap);
    }
    if (busy) seconds += now() - begin;
    std::sort(gaps.begin(), gaps.end());
    (busy ? with : without).push_back(gaps[gaps.size() / 2]);
    if (busy) ratios.push_back(with.back() / without.back());
    tails.push_back(gaps[gaps.size() * 99 / 100]);
  }
  end = true;
  busy = false;
  load_thread.join();
  opened->reset();
  std::filesystem::remove_all(root);
  std::vector<double> tails_with, tails_without;
  for (size_t i = 0; i < tails.size(); ++i) (i % 2 == 1 ? tails_with : tails_without).push_back(tails[i]);
  fmt::print("  median {:7.3f} ms with {:.2f} GB/s of blocks beside it, {:7.3f} ms without = {:+.1f} %; p99 {:.3f} and {:.3f} ms\n",
             1e3 * median(with), static_cast<double>(moved) / seconds / 1e9, 1e3 * median(without),
             100 * (median(ratios) - 1), 1e3 * median(tails_with), 1e3 * median(tails_without));
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  using namespace deepinfer;
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: engine_bench [MODEL [THREADS [overhead | throughput | mixed | prefix_hit | busy_disk]]]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const Setup setup = {argc > 1 ? argv[1] : source_path("models/mini"), argc > 2 ? std::atoi(argv[2]) : 1};
  fmt::print("engine_bench: {}, {} compute thread(s), priority {}; medians\n", setup.directory, setup.threads,
             bench::raise_priority());
  const std::string_view only = argc > 3 ? argv[3] : "";
  const auto run = [&](std::string_view name, void (*part)(const Setup&)) {
    if (only.empty() || only == name) part(setup);
  };
  run("overhead", overhead);
  run("throughput", throughput);
  run("mixed", mixed);
  run("prefix_hit", prefix_hit);
  run("contexts", contexts);
  run("busy_disk", busy_disk);
}
