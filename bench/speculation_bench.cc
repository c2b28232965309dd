// Drafts on and off in the same rounds: tokens a second at 1, 4, 16 and 64 streams for no drafts, every fixed number, and as
// many as pay, with what was accepted, the calibration error, and the predicted against the real time of a step.
// Usage: speculation_bench [--model DIR] [--threads N] [--rounds N] [--acceptance P...] [--streams N...] [--tokens N]
//   The mini's held-out texts are the prompts. With --acceptance the drafts are forced: the draft stages run, then each draft
//   is the true token with probability P, and the ideal beside the figures is the best (expected tokens) / (cost) over all
//   fixed numbers, from the costs measured here.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "json/json.h"
#include "machine_probe.h"
#include "model/model.h"
#include "source_path.h"
#include "speculate/calibration.h"
#include "speculate/proposer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

using Ids = std::vector<int32_t>;

// Time of this process on a CPU, so that neighbours on the machine don't count. Of one compute thread it is the time of
// a machine of its own.
class CpuClock : public Clock {
 public:
  time_point now() const override {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
  std::chrono::system_clock::time_point wall_now() const override { return system_clock().wall_now(); }
};
const CpuClock cpu_clock;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Setup {
  std::string directory = source_path("models/mini");
  std::string texts = source_path("models/mini/golden/teacher.jsonl");
  int threads = 1, rounds = 3, warm_rounds = 3;
  bool one_at_a_time = false, no_fixed = false;
  int64_t tokens = 64;
  double temperature = 0;
  std::vector<double> acceptance;
  std::vector<int64_t> streams = {1, 4, 16, 64};

  const Clock& clock() const { return threads == 1 ? static_cast<const Clock&>(cpu_clock) : system_clock(); }
  double now() const { return std::chrono::duration<double>(clock().now().time_since_epoch()).count(); }
};

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "speculation_bench: {}\n", message);
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) fail(result.error().message());
  return std::move(*result);
}

std::vector<Ids> read_prompts(const Setup& setup, size_t count) {
  std::vector<Ids> prompts;
  std::ifstream file(setup.texts);
  for (std::string line; std::getline(file, line) && prompts.size() < count;) {
    const JsonValue document = take(parse_json(line));
    Ids ids;
    for (const JsonValue& id : *document.find("ids")->array()) ids.push_back(static_cast<int32_t>(*id.int64()));
    // Where an answer begins: behind the assistant's mark and the one that follows it.
    const auto mark = std::find(ids.begin(), ids.end(), 2034);
    if (ids.end() - mark < 3) continue;
    prompts.emplace_back(ids.begin(), mark + 2);
  }
  if (prompts.size() < count) fail(fmt::format("{}: found {} prompts, expected {}", setup.texts, prompts.size(), count));
  return prompts;
}

// Drafts that are right with a given probability: the draft stages run for their cost, then the ids are replaced by the
// answers' known tokens or by wrong ones.
class ForcedProposer : public Proposer {
 public:
  ForcedProposer(Model& model, double acceptance, const std::map<Ids, Ids>& answers)
      : stages_(make_dspark_proposer(model, {})), acceptance_(acceptance), answers_(answers) {
    if (stages_ == nullptr) fail("--acceptance: this checkpoint has no draft stages");
  }
  bool wants_history() const override { return true; }
  Status propose(std::span<const DraftTask> tasks) override {
    RETURN_IF_ERROR(stages_->propose(tasks));
    for (const DraftTask& task : tasks) {
      const auto found = std::find_if(answers_.begin(), answers_.end(), [&](const auto& answer) {
        return answer.first.size() <= task.history.size() &&
               std::equal(answer.first.begin(), answer.first.end(), task.history.begin());
      });
      if (found == answers_.end()) continue;
      const auto& [prompt, tokens] = *found;
      for (size_t k = 0; k < task.out->ids.size(); ++k) {
        const size_t at = task.history.size() - prompt.size() + k;
        const uint64_t word = random_word(prompt.size(), static_cast<int64_t>(at), Purpose::kDraft, static_cast<int64_t>(k));
        const bool right = at < tokens.size() && static_cast<double>(word >> 11) * 0x1p-53 < acceptance_;
        task.out->ids[k] = right ? tokens[at] : (at < tokens.size() ? tokens[at] ^ 1 : 0);
        task.out->scores[k] = static_cast<float>(acceptance_);
      }
    }
    return {};
  }

 private:
  std::unique_ptr<Proposer> stages_;
  const double acceptance_;
  const std::map<Ids, Ids>& answers_;
};

struct Case {
  std::string name;
  SpeculationOptions speculation;
  std::vector<double> rates = {};
  EngineStats stats = {};
  std::unique_ptr<Engine> engine = {};
};

struct Bench {
  const Setup& setup;
  std::shared_ptr<Counters> counters = std::make_shared<Counters>();

  std::unique_ptr<Engine> open(const SpeculationOptions& speculation, int64_t streams) const {
    const auto checkpoint = take(Checkpoint::open(setup.directory));
    const auto tokenizer = take(Tokenizer::load(setup.directory + "/tokenizer.json"));
    auto model = take(Model::load(checkpoint, engram_token_map(tokenizer, checkpoint.config().vocab_size),
                                  {.num_threads = setup.threads,
                                   .max_context_tokens = 512,
                                   .max_sequences = streams,
                                   .max_batch_tokens = std::max<int64_t>(64, streams * 6)}));
    EngineOptions options;
    options.max_running = streams;
    options.prefix_cache = false;
    options.clock = &setup.clock();
    options.speculation = speculation;
    return std::make_unique<Engine>(std::move(model), options, *counters);
  }

  // Answers of `tokens` tokens each, all at once; tokens a second, prompts included.
  double run(Engine& engine, std::span<const Ids> prompts, std::vector<Ids>* answers = nullptr) const {
    struct Stream {
      Ids tokens;
      std::promise<void> done;
    };
    std::vector<Stream> streams(prompts.size());
    const double begin = setup.now();
    for (size_t i = 0; i < prompts.size(); ++i) {
      EngineRequest request;
      request.prompt_ids = prompts[i];
      request.max_tokens = setup.tokens;
      request.sampling.temperature = setup.temperature;
      request.sampling.seed = i;
      const auto id = engine.submit(std::move(request), [&stream = streams[i]](const EngineEvent& event) {
        if (event.kind == EngineEvent::Kind::kFinished) return stream.done.set_value();
        stream.tokens.push_back(event.token_id);
      });
      if (!id.ok()) fail(id.error().message());
    }
    int64_t tokens = 0;
    for (Stream& stream : streams) {
      stream.done.get_future().wait();
      tokens += std::ssize(stream.tokens);
      if (answers != nullptr) answers->push_back(std::move(stream.tokens));
    }
    return static_cast<double>(tokens) / (setup.now() - begin);
  }
};

// The median over the rounds of this case's rate beside the other's in the same round.
double times_of(const Case& c, const Case& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < c.rates.size(); ++i) ratios.push_back(c.rates[i] / other.rates[i]);
  return median(ratios);
}

void print_case(const Case& c, const Case& off) {
  int64_t verified = 0, accepted = 0;
  std::string places;
  for (size_t k = 0; k < c.stats.verified.size(); ++k) {
    verified += c.stats.verified[k];
    accepted += c.stats.accepted[k];
    if (c.stats.verified[k] > 0) {
      places += fmt::format(" {:.2f}", static_cast<double>(c.stats.accepted[k]) / static_cast<double>(c.stats.verified[k]));
    }
  }
  fmt::print("  {:<10}{:9.1f} tokens/s = {:6.3f}x off", c.name, median(c.rates), times_of(c, off));
  if (c.stats.drafted > 0) {
    fmt::print("; drafts in {:.1f} % of steps, {:.2f} verified and {:.2f} accepted each time, by place{}, calibration error {:.3f}",
               100 * static_cast<double>(c.stats.draft_passes) / static_cast<double>(c.stats.steps),
               static_cast<double>(verified) / static_cast<double>(c.stats.draft_passes),
               static_cast<double>(accepted) / static_cast<double>(c.stats.draft_passes), places,
               1e-6 * static_cast<double>(c.stats.calibration_error_ppm));
  }
  if (c.stats.predicted_ns > 0) {
    fmt::print("; predicted {:.2f} of the real time",
               static_cast<double>(c.stats.predicted_ns) / static_cast<double>(c.stats.predicted_real_ns));
  }
  fmt::print("\n");
}

void compare(const Setup& setup, int64_t streams, std::optional<double> acceptance) {
  const Bench bench{setup};
  const auto prompts = read_prompts(setup, static_cast<size_t>(streams));
  std::map<Ids, Ids> answers;
  std::vector<Case> cases;
  cases.push_back({.name = "off", .speculation = {.proposer = DraftProposer::kOff}});
  for (int64_t drafts = 1; drafts <= (setup.no_fixed ? 0 : 5); ++drafts) {
    cases.push_back({.name = fmt::format("fixed {}", drafts), .speculation = {.fixed_drafts = drafts}});
  }
  cases.push_back({.name = "scheduled", .speculation = {.temperatures = take(load_calibration(setup.directory))}});
  if (acceptance) {
    std::vector<Ids> found;
    auto engine = bench.open(cases[0].speculation, streams);
    bench.run(*engine, prompts, &found);
    for (size_t i = 0; i < prompts.size(); ++i) answers[prompts[i]] = found[i];
    for (Case& c : cases) {
      if (c.name == "off") continue;
      c.speculation.custom = [&answers, p = *acceptance](Model& model) {
        return std::make_unique<ForcedProposer>(model, p, answers);
      };
    }
  }
  const auto measure = [&](Case& c) {
    if (c.engine == nullptr) {
      c.engine = bench.open(c.speculation, streams);
      for (int i = 0; i < setup.warm_rounds; ++i) bench.run(*c.engine, prompts);  // costs are learnt
    }
    c.rates.push_back(bench.run(*c.engine, prompts));
    c.stats = c.engine->stats();
  };
  if (setup.one_at_a_time) {
    for (Case& c : cases) {
      for (int round = 0; round < setup.rounds; ++round) measure(c);
      c.engine.reset();
    }
  } else {
    for (int round = 0; round < setup.rounds; ++round) {
      for (Case& c : cases) measure(c);
    }
  }
  fmt::print("\n{} stream(s){}\n", streams, acceptance ? fmt::format(", each draft right with {:.1f}", *acceptance) : "");
  const Case& off = cases[0];
  for (const Case& c : cases) print_case(c, off);
  if (!acceptance || setup.no_fixed) return;
  // The same costs with exactly the expected tokens: rate of a fixed number times expected / seen tokens a step.
  double ideal = 1;
  for (size_t i = 1; i <= 5; ++i) {
    const Case& c = cases[i];
    double expected = 1, survival = 1;
    for (size_t k = 0; k < i; ++k) expected += survival *= *acceptance;
    int64_t seen = 0;
    for (const int64_t accepted : c.stats.accepted) seen += accepted;
    const double per_step = 1 + static_cast<double>(seen) / static_cast<double>(c.stats.verified[0]);
    ideal = std::max(ideal, times_of(c, off) * expected / per_step);
  }
  fmt::print("  ideal     {:6.3f}x off; scheduled reaches {:.0f} % of it\n", ideal,
             100 * times_of(cases.back(), off) / ideal);
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  using namespace deepinfer;
  Setup setup;
  CLI::App parser("Drafts on and off.");
  parser.add_option("--model", setup.directory)->capture_default_str();
  parser.add_option("--texts", setup.texts, "lines of JSON, each with \"ids\"")->capture_default_str();
  parser.add_option("--threads", setup.threads)->capture_default_str();
  parser.add_option("--rounds", setup.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  parser.add_option("--warm-rounds", setup.warm_rounds, "before them, in which costs are learnt")
      ->capture_default_str();
  parser.add_flag("--one-at-a-time", setup.one_at_a_time, "for checkpoints of which memory holds one");
  parser.add_flag("--no-fixed", setup.no_fixed, "only the schedule beside no drafts");
  parser.add_option("--tokens", setup.tokens, "of each answer")->check(CLI::Range(8, 400))->capture_default_str();
  parser.add_option("--temperature", setup.temperature)->capture_default_str();
  parser.add_option("--acceptance", setup.acceptance, "force drafts to be right with these probabilities");
  parser.add_option("--streams", setup.streams)->capture_default_str();
  CLI11_PARSE(parser, argc, argv);
  fmt::print(
      "speculation_bench: {}, {} compute thread(s), {}, priority {}; medians of {} rounds, {} tokens an answer, "
      "temperature {}\n",
      setup.directory, setup.threads, setup.threads == 1 ? "CPU times" : "wall times", bench::raise_priority(),
      setup.rounds, setup.tokens, setup.temperature);
  for (const int64_t streams : setup.streams) {
    if (setup.acceptance.empty()) compare(setup, streams, std::nullopt);
    for (const double acceptance : setup.acceptance) compare(setup, streams, acceptance);
  }
}
