// No past changes an answer: servers with random pasts (shared beginnings, cancels, pre-emption, restarts with and without
// windows, drafts, constraints, tenants) answer random requests, and every answer is that of a fresh cold server, text and
// log probabilities, bit for bit, in the exact and the stable mode (docs/context-modes.md). In bounded mode the same hit
// is the same answer. A seed that fails is shrunk to a short past and printed.
#include <algorithm>
#include <cstdio>
#include <set>

#include "../engine/engine_store_support.h"

namespace deepinfer {
namespace {

#ifndef HISTORIES_SEEDS
#define HISTORIES_SEEDS 5
#endif

// Draws only ids that leave a remainder when halved, or only those that leave none: two that neighbours would notice.
class ParityConstraint : public OutputConstraint {
 public:
  ParityConstraint(int64_t vocab, int parity) : vocab_(vocab), parity_(parity) {}
  std::unique_ptr<ConstraintState> start() const override { return std::make_unique<State>(*this); }

 private:
  struct State : ConstraintState {
    explicit State(const ParityConstraint& of) : of(of) {}
    bool fill_mask(TokenMask mask) override {
      std::fill(mask.begin(), mask.end(), 0);
      for (int64_t id = of.parity_; id < of.vocab_; id += 2) mask[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
      return true;
    }
    Status accept(int32_t) override { return {}; }
    void rollback(int64_t) override {}
    int64_t max_rollback() const override { return 16; }
    const ParityConstraint& of;
  };
  int64_t vocab_;
  int parity_;
};

// A request by what it is made of, so that it can be printed and made again.
struct Ask {
  uint32_t topic = 0;          // which conversation
  int64_t common = 0;          // tokens of it
  uint32_t own = 0;            // seed of what comes behind
  int64_t own_tokens = 0;
  bool opens_turn = false;     // ends with an assistant token
  ContextMode mode = ContextMode::kStable;
  int64_t answer = 4;
  int32_t n = 1;
  double temperature = 0;
  uint64_t seed = 0;
  int parity = -1;
  int tenant = 0;
  int32_t priority = 1;

  std::string text() const {
    return fmt::format("topic {}[:{}] + {} of seed {}{}, {}, answer {}, n {}, temperature {}, seed {}, parity {}, tenant {}, "
                       "priority {}",
                       topic, common, own_tokens, own, opens_turn ? " + assistant" : "", context_mode_name(mode), answer, n,
                       temperature, seed, parity, tenant, priority);
  }
};

struct Event {
  enum class Kind { kAsk, kRestart } kind = Kind::kAsk;
  std::vector<Ask> asks;              // at the same time
  std::vector<int64_t> cancel_after;  // tokens of each, 0: not cancelled
  bool forget_windows = false;        // of a restart
};

struct Server {
  int depth = 0;
  bool drafts = false;
  int64_t states = 8, blocks = 60, batch = 256, prefill = 64, swap = -1;
  int threads = 1;
  bool store_windows = true;
};

struct Answer {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> logprobs;  // of the token, then of the likeliest
  std::string error;
  int64_t cached = 0;
};

class HistoriesTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = model_directory(GetParam());
    if (!std::filesystem::exists(directory_ + "/config.json")) {
      GTEST_SKIP() << directory_ << " is absent: this model was not checked";
    }
    const auto checkpoint = Checkpoint::open(directory_);
    ASSERT_TRUE(checkpoint.ok());
    vocab_ = checkpoint->config().vocab_size;
    context_ = std::min<int64_t>(1400, checkpoint->config().max_position_embeddings);
    turns_ = {.assistant = {static_cast<int32_t>(vocab_) - 3},
              .end = {static_cast<int32_t>(vocab_) - 4, static_cast<int32_t>(vocab_) - 5}};
    cold_ = make_engine({}, nullptr, /*cache=*/false);
    ASSERT_NE(cold_, nullptr);
  }

  std::unique_ptr<Engine> make_engine(const Server& server, StoreOnDisk* disk, bool cache) {
    auto model = load_model(directory_, {.num_threads = server.threads,
                                         .max_context_tokens = context_,
                                         .max_sequences = server.states,
                                         .num_blocks = server.blocks,
                                         .max_batch_tokens = server.batch});
    if (model == nullptr) return nullptr;
    EngineOptions options{.prefill_rows = server.prefill,
                          .reserve_tokens = 1,
                          .turn_tokens = turns_,
                          .prefix_cache = cache,
                          .swap_blocks = server.swap,
                          .store_windows = server.store_windows,
                          .scheduling_depth = server.depth};
    if (!server.drafts) options.speculation.proposer = DraftProposer::kOff;
    if (disk != nullptr) options.store = disk->open(*model);
    return std::make_unique<Engine>(std::move(model), options, counters_);
  }

  // Conversations with turns of the model, of lengths around the tail and the window.
  std::vector<int32_t> topic(uint32_t number) const {
    std::mt19937 rng(number);
    std::vector<int32_t> tokens;
    while (std::ssize(tokens) < context_) {
      const int64_t said = rng() % 3 == 0 ? rng() % 260 : rng() % 60;
      const auto text = random_ids(rng(), 8 + said, vocab_);
      tokens.insert(tokens.end(), text.begin(), text.end());
      tokens.push_back(tokens.size() % 2 == 0 ? turns_.end[rng() % 2] : turns_.assistant[0]);
    }
    return tokens;
  }

  EngineRequest request(const Ask& ask) const {
    EngineRequest request;
    request.prompt_ids = topic(ask.topic);
    request.prompt_ids.resize(static_cast<size_t>(ask.common));
    const auto own = random_ids(ask.own + 5000, ask.own_tokens, vocab_);
    request.prompt_ids.insert(request.prompt_ids.end(), own.begin(), own.end());
    if (ask.opens_turn) request.prompt_ids.push_back(turns_.assistant[0]);
    request.max_tokens = ask.answer;
    request.n = ask.n;
    request.top_logprobs = 3;
    request.sampling.temperature = ask.temperature;
    request.sampling.seed = ask.seed;
    request.tenant = ask.tenant == 0 ? "a" : "b";
    request.priority = ask.priority;
    request.context_mode = ask.mode;
    if (ask.parity >= 0) request.constraint = std::make_shared<ParityConstraint>(vocab_, ask.parity);
    return request;
  }

  struct Running {
    std::mutex mu;
    Answer answer;
    int left = 0;
    std::promise<void> done;
  };
  static void submit(Engine& engine, EngineRequest request, int64_t cancel_after, Running& running) {
    const auto n = static_cast<size_t>(request.n);
    running.answer.tokens.resize(n);
    running.answer.logprobs.resize(n);
    running.left = request.n;
    const auto id = std::make_shared<std::atomic<uint64_t>>(0);
    const auto sink = [&running, &engine, cancel_after, id](const EngineEvent& event) {
      Answer& answer = running.answer;
      const auto index = static_cast<size_t>(event.answer_index);
      if (event.kind == EngineEvent::Kind::kToken) {
        answer.tokens[index].push_back(event.token_id);
        answer.logprobs[index].push_back(event.logprobs->chosen.logprob);
        for (const auto& other : event.logprobs->top) answer.logprobs[index].push_back(other.logprob);
        if (cancel_after > 0 && std::ssize(answer.tokens[index]) == cancel_after && id->load() != 0) {
          engine.cancel(id->load() + index);
        }
      }
      if (event.kind != EngineEvent::Kind::kFinished) return;
      if (event.finish_reason == FinishReason::kCancelled) answer.error = "cancelled";
      if (event.error) answer.error = event.error->message();
      if (index == 0) answer.cached = event.cached_tokens;
      if (--running.left == 0) running.done.set_value();
    };
    const auto submitted = engine.submit(std::move(request), sink);
    if (submitted.ok()) {
      *id = *submitted;
      return;
    }
    running.answer.error = submitted.error().message();
    running.done.set_value();
  }

  const Answer& cold(const Ask& ask) {
    Answer& known = cold_answers_[ask.text()];
    if (known.tokens.empty()) {
      Running running;
      submit(*cold_, request(ask), 0, running);
      running.done.get_future().wait();
      EXPECT_EQ(running.answer.error, "") << ask.text();
      known = std::move(running.answer);
    }
    return known;
  }

  // What differs first; empty: nothing.
  std::string play(const Server& server, const std::vector<Event>& events, bool count) {
    StoreOnDisk disk;
    auto engine = make_engine(server, &disk, true);
    std::string fault;
    for (const Event& event : events) {
      if (event.kind == Event::Kind::kRestart) {
        if (count) loaded_states_ += engine->stats().store_states_loaded;
        engine.reset();
        Server next = server;
        if (event.forget_windows) next.store_windows = false;
        engine = make_engine(next, &disk, true);
        continue;
      }
      std::vector<std::unique_ptr<Running>> all;
      for (size_t i = 0; i < event.asks.size(); ++i) {
        all.push_back(std::make_unique<Running>());
        submit(*engine, request(event.asks[i]), event.cancel_after[i], *all.back());
      }
      for (size_t i = 0; i < all.size(); ++i) {
        all[i]->done.get_future().wait();
        if (fault.empty()) fault = compare(event.asks[i], all[i]->answer, count);
      }
      if (!fault.empty()) break;
    }
    if (count) {
      const EngineStats stats = engine->stats();
      loaded_states_ += stats.store_states_loaded;
      preempted_ += stats.preempted_swap + stats.preempted_recompute;
    }
    return fault;
  }

  std::string compare(const Ask& ask, const Answer& got, bool count) {
    if (got.error == "cancelled") return "";
    if (!got.error.empty()) return fmt::format("{}: {}", ask.text(), got.error);
    if (ask.mode == ContextMode::kBounded) return "";  // others' pasts only
    const Answer& expected = cold(ask);
    if (count) {
      ++compared_;
      hits_ += got.cached > 0 ? 1 : 0;
    }
    if (got.tokens != expected.tokens) return fmt::format("{}: other tokens, {} cached", ask.text(), got.cached);
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      if (got.logprobs[i].size() != expected.logprobs[i].size() ||
          std::memcmp(got.logprobs[i].data(), expected.logprobs[i].data(), got.logprobs[i].size() * sizeof(float)) != 0) {
        return fmt::format("{}: other log probabilities, {} cached", ask.text(), got.cached);
      }
    }
    return "";
  }

  Ask random_ask(std::mt19937& rng, std::vector<Ask>& before, bool again_at_best) const {
    if (!before.empty() && (again_at_best || rng() % 4 == 0)) {  // the same again, perhaps in another mode
      Ask again = before[rng() % before.size()];
      if (rng() % 2 == 0) again.mode = static_cast<ContextMode>(rng() % 3);
      return again;
    }
    Ask ask;
    ask.topic = rng() % 2;
    ask.mode = rng() % 8 == 0 ? ContextMode::kBounded : rng() % 4 == 0 ? ContextMode::kExact : ContextMode::kStable;
    ask.own_tokens = rng() % 3 == 0 ? 0 : rng() % 5 == 0 ? rng() % 300 : rng() % 40;
    ask.opens_turn = rng() % 2 == 0;
    ask.answer = rng() % 6 == 0 ? 60 + rng() % 100 : 1 + rng() % 12;
    const int64_t most = context_ - ask.own_tokens - ask.answer - 2;
    // Often near what another asked for, so that they part close to a state, a border or a mark.
    ask.common = 1 + rng() % most;
    if (!before.empty() && rng() % 2 == 0) {
      const Ask& other = before[rng() % before.size()];
      ask.topic = other.topic;
      ask.common = std::clamp<int64_t>(other.common + static_cast<int64_t>(rng() % 300) - 150, 1, most);
      if (rng() % 3 == 0) {
        ask.common = std::min(other.common, most);
        ask.own = other.own;
        ask.own_tokens = std::min<int64_t>(other.own_tokens, ask.own_tokens);
      }
    }
    if (rng() % 3 == 0) ask.common = std::clamp<int64_t>(ask.common / kBlockTokens * kBlockTokens + rng() % 3 - 1, 1, most);
    if (ask.own == 0) ask.own = rng() % 4;
    ask.n = rng() % 6 == 0 ? 2 : 1;
    ask.temperature = rng() % 2 == 0 ? 0 : 1;
    ask.seed = rng() % 5;
    ask.parity = rng() % 6 == 0 ? static_cast<int>(rng() % 2) : -1;
    ask.tenant = rng() % 6 == 0 ? 1 : 0;
    ask.priority = static_cast<int32_t>(rng() % 4);
    before.push_back(ask);
    return ask;
  }

  std::pair<Server, std::vector<Event>> random_past(uint32_t seed) const {
    std::mt19937 rng(seed);
    Server server;
    server.depth = static_cast<int>(rng() % 2);
    server.drafts = rng() % 2 == 0;
    server.states = 6 + rng() % 20;
    server.blocks = context_ / kBlockTokens + (rng() % 2 == 0 ? 2 + rng() % 6 : 4 + rng() % 50);
    server.batch = rng() % 3 == 0 ? 33 + rng() % 200 : 256;
    server.prefill = 5 + rng() % 120;
    server.swap = rng() % 3 == 0 ? 0 : -1;
    server.threads = 1 + static_cast<int>(rng() % 2);
    server.store_windows = rng() % 8 != 0;
    std::vector<Event> events;
    std::vector<Ask> before;
    for (int i = 0; i < 14; ++i) {
      Event event;
      const bool restarted = !events.empty() && events.back().kind == Event::Kind::kRestart;
      if (!before.empty() && !restarted && rng() % 5 == 0) {
        event.kind = Event::Kind::kRestart;
        event.forget_windows = rng() % 4 == 0;
      } else {
        const uint32_t together = rng() % 3 == 0 ? 2 + rng() % 5 : 1;
        for (uint32_t k = 0; k < together; ++k) {
          event.asks.push_back(random_ask(rng, before, restarted));
          event.cancel_after.push_back(rng() % 8 == 0 ? 1 + rng() % 8 : 0);
        }
      }
      events.push_back(std::move(event));
    }
    return {server, events};
  }

  static std::string text(const Server& server, const std::vector<Event>& events) {
    std::string out = fmt::format("server: depth {}, drafts {}, states {}, blocks {}, batch {}, prefill {}, swap {}, threads {}, store windows {}\n",
                                  server.depth, server.drafts, server.states, server.blocks, server.batch, server.prefill,
                                  server.swap, server.threads, server.store_windows);
    for (const Event& event : events) {
      if (event.kind == Event::Kind::kRestart) out += fmt::format("restart{}\n", event.forget_windows ? ", without windows" : "");
      for (size_t i = 0; i < event.asks.size(); ++i) {
        out += fmt::format("{} {}{}\n", i == 0 ? "ask" : "  +", event.asks[i].text(),
                           event.cancel_after[i] > 0 ? fmt::format(", cancelled after {}", event.cancel_after[i]) : "");
      }
    }
    return out;
  }

  // Drops events, then single asks, as long as something still differs.
  std::string shrink(const Server& server, std::vector<Event> events) {
    int tries = 0;
    const auto fails = [&](const std::vector<Event>& fewer) { return ++tries < 200 && !play(server, fewer, false).empty(); };
    for (size_t i = events.size(); i-- > 0;) {
      std::vector<Event> fewer = events;
      fewer.erase(fewer.begin() + static_cast<int64_t>(i));
      if (fails(fewer)) events = std::move(fewer);
    }
    for (size_t i = events.size(); i-- > 0;) {
      for (size_t k = events[i].asks.size(); k-- > 0 && events[i].asks.size() > 1;) {
        std::vector<Event> fewer = events;
        fewer[i].asks.erase(fewer[i].asks.begin() + static_cast<int64_t>(k));
        fewer[i].cancel_after.erase(fewer[i].cancel_after.begin() + static_cast<int64_t>(k));
        if (fails(fewer)) events = std::move(fewer);
      }
    }
    return text(server, events);
  }

  std::string directory_;
  int64_t vocab_ = 0, context_ = 0;
  TurnTokens turns_;
  Counters counters_;
  std::unique_ptr<Engine> cold_;
  std::map<std::string, Answer> cold_answers_;
  int64_t compared_ = 0, hits_ = 0, preempted_ = 0, loaded_states_ = 0;
};

TEST_P(HistoriesTest, EveryAnswerIsThatOfAFreshServer) {
  const char* from = std::getenv("DEEPINFER_HISTORIES_SEED");
  const uint32_t first = from != nullptr ? static_cast<uint32_t>(std::atoi(from)) : 1;
  const uint32_t count = from != nullptr ? 1 : HISTORIES_SEEDS;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const auto [server, events] = random_past(seed);
    const std::string fault = play(server, events, true);
    ASSERT_EQ(fault, "") << "seed " << seed << " (DEEPINFER_HISTORIES_SEED=" << seed << "), a short past that shows it:\n"
                         << shrink(server, events);
  }
  std::printf("%s: %lld answers compared, %lld with cache hits, %lld pre-emptions, %lld states from the store\n", GetParam().c_str(),
              static_cast<long long>(compared_), static_cast<long long>(hits_), static_cast<long long>(preempted_),
              static_cast<long long>(loaded_states_));
  if (from == nullptr) {
    EXPECT_GT(hits_ * 6, compared_);
    if (count > 20) {
      EXPECT_GT(preempted_, 0);
      EXPECT_GT(loaded_states_, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HistoriesTest, testing::Values("tiny", "mini"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace deepinfer
