// Path invariance through the engine: the logits rows that the tokens of a request are drawn from, and the
// tokens, are the same bits whatever runs beside it, however it is cut, paused, moved or resumed, with drafts
// and without (docs/context-modes.md). The reference of each mode is a lone cold run, itself held to an oracle
// that runs every row through every layer under the same window cut. Prints how many rows were compared.
#include <cstdio>
#include "../engine/engine_store_support.h"
#include "model/kv_arena.h"

namespace deepinfer {
namespace {

struct Subject {
  const char* model;
  ContextMode mode;
  int depth;
  int64_t prompt;  // long enough for real selections and, in stable and bounded mode, for a cut
  bool drafts;     // five behind every token; the reference has none
};

constexpr int64_t kAnswer = 10;

class EngineInvarianceTest : public testing::TestWithParam<Subject> {
 protected:
  struct Setup {
    int64_t states = 48, blocks = 0, batch_tokens = 256, prefill_rows = 64, swap_blocks = -1;
    int threads = 1;
    bool drafts = GetParam().drafts;
    bool cache = false, keep_states = true, store = false;
  };

  void SetUp() override {
    directory_ = model_directory(GetParam().model);
    if (!std::filesystem::exists(directory_ + "/config.json")) {
      GTEST_SKIP() << directory_ << " is absent: this model was not checked";
    }
    const auto checkpoint = Checkpoint::open(directory_);
    ASSERT_TRUE(checkpoint.ok());
    config_ = checkpoint->config();
    prompt_ = random_ids(7, GetParam().prompt, config_.vocab_size);
    // A turn of the model in the middle, and its next one begins with the answer.
    turns_ = {.assistant = {static_cast<int32_t>(config_.vocab_size) - 3},
              .end = {static_cast<int32_t>(config_.vocab_size) - 4}};
    prompt_[prompt_.size() / 2] = turns_.assistant[0];
    prompt_[prompt_.size() / 2 + 20] = turns_.end[0];
    prompt_.back() = turns_.assistant[0];
    // The reference of a subject, held to the oracle once.
    static std::map<std::string, Outcome> references;
    Outcome& reference = references[fmt::format("{} {}", GetParam().model, context_mode_name(GetParam().mode))];
    if (reference.tokens.empty()) {
      open({.drafts = false});
      reference = run(prompt_);
      ASSERT_EQ(std::ssize(reference.tokens), kAnswer);
      compare_with_oracle(prompt_, reference, {}, 0);
    }
    expected_ = reference;
  }
  void TearDown() override {
    std::printf("%s, %s mode, depth %d%s: %lld logit rows compared\n", GetParam().model,
                std::string(context_mode_name(GetParam().mode)).c_str(), GetParam().depth, GetParam().drafts ? ", drafts" : "",
                static_cast<long long>(comparisons_));
    if (engine_ != nullptr && GetParam().drafts && longest_answer_ > 2) {
      EXPECT_GT(engine_->stats().verified[0], 0);
    }
  }

  void open(const Setup& setup) {
    engine_.reset();
    longest_answer_ = 0;
    const int64_t context = std::min<int64_t>(GetParam().prompt + 200, config_.max_position_embeddings);
    auto model = load_model(directory_, {.num_threads = setup.threads,
                                         .max_context_tokens = context,
                                         .max_sequences = setup.states,
                                         .num_blocks = setup.blocks > 0 ? setup.blocks : 40 * (context / 128 + 1),
                                         .max_batch_tokens = setup.batch_tokens});
    ASSERT_NE(model, nullptr);
    record_ = std::make_unique<LogitsRecord>();
    store::Store* store = setup.store ? disk_.open(*model) : nullptr;  // opened anew each time, as after a restart
    engine_ = std::make_unique<Engine>(std::move(model),
                                       EngineOptions{.prefill_rows = setup.prefill_rows,
                                                     .reserve_tokens = 1,
                                                     .context_mode = GetParam().mode,
                                                     .turn_tokens = turns_,
                                                     .prefix_cache = setup.cache,
                                                     .keep_states = setup.keep_states,
                                                     .swap_blocks = setup.swap_blocks,
                                                     .store = store,
                                                     // the oracle of bounded mode is that of lost windows
                                                     .store_windows = GetParam().mode != ContextMode::kBounded,
                                                     .scheduling_depth = GetParam().depth,
                                                     .speculation = {.fixed_drafts = setup.drafts ? 5 : 0},
                                                     .logits_probe = record_->probe()},
                                       counters_);
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    LogitsRecord::Rows rows;
    int64_t cached = 0;
  };
  EngineRequest request(std::vector<int32_t> ids, int64_t answer = kAnswer) {
    longest_answer_ = std::max(longest_answer_, answer);
    EngineRequest request;
    request.prompt_ids = std::move(ids);
    request.max_tokens = answer;
    request.sampling.temperature = 1.0;
    request.sampling.seed = 99;
    return request;
  }
  Outcome run(const std::vector<int32_t>& ids, int64_t answer = kAnswer) {
    Receiver receiver;
    const auto id = engine_->submit(request(ids, answer), receiver.sink());
    EXPECT_TRUE(id.ok()) << id.error().message();
    receiver.wait();
    EXPECT_EQ(receiver.end().finish_reason, FinishReason::kLength)
        << (receiver.end().error ? receiver.end().error->message() : "");
    return {receiver.tokens[0], record_->rows(*id), receiver.end().cached_tokens};
  }

  void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
    EXPECT_EQ(got.tokens, expected.tokens) << what;
    ASSERT_EQ(got.rows.size(), expected.rows.size()) << what;
    for (const auto& [position, row] : expected.rows) {
      const auto found = got.rows.find(position);
      ASSERT_NE(found, got.rows.end()) << what << ", position " << position;
      ++comparisons_;
      ASSERT_EQ(std::memcmp(found->second.data(), row.data(), row.size() * sizeof(float)), 0)
          << what << ", position " << position;
    }
  }

  // The model alone, one call for the prompt and one for each token, every row through every layer.
  // `cached`: tokens whose blocks an earlier cold run left; `start`: where rows are computed from.
  void compare_with_oracle(const std::vector<int32_t>& prompt, const Outcome& got, SequenceCut cut, int64_t start) {
    const auto n = std::ssize(prompt);
    auto model = load_model(directory_, {.max_context_tokens = n + kAnswer, .max_sequences = 2, .max_batch_tokens = n + 8});
    ASSERT_NE(model, nullptr);
    std::vector<BlockId> table;
    for (int64_t i = 0; i <= (n + kAnswer) / kBlockTokens; ++i) table.push_back(static_cast<BlockId>(i));
    cut.decoder_first = first_decoder_row(GetParam().mode, prompt, turns_, 140);
    cut.mask_decoder = true;
    const std::span<const int32_t> ids(prompt);
    if (cut.write_first > 0) {  // what stands in the cache: a cold run of the stored part
      model->start(model->state(1), 0, {}, {});
      const SequenceSpan stored{&model->state(1), 0, ids.first(cut.write_first), LogitsRows::kNone, 0, table};
      ASSERT_TRUE(model->forward({&stored, 1}).ok());
    }
    model->start(model->state(0), start, ids.first(start), cut);
    SequenceSpan span{&model->state(0), start, ids.subspan(start), LogitsRows::kLast, 0, table};
    for (int64_t i = 0; i < kAnswer; ++i) {
      const auto logits = model->forward({&span, 1});
      ASSERT_TRUE(logits.ok()) << logits.error().message();
      ++comparisons_;
      const auto row = got.rows.find(n + i);
      ASSERT_NE(row, got.rows.end());
      ASSERT_EQ(std::memcmp(logits->data(), row->second.data(), logits->size_bytes()), 0) << "oracle, token " << i;
      span = {&model->state(0), n + i, {&got.tokens[i], 1}};
    }
  }

  std::vector<int32_t> stranger(uint32_t seed, int64_t length) { return random_ids(1000 + seed, length, config_.vocab_size); }

  std::string directory_;
  ModelConfig config_;
  std::vector<int32_t> prompt_;
  TurnTokens turns_;
  StoreOnDisk disk_;
  Counters counters_;
  std::unique_ptr<LogitsRecord> record_;
  std::unique_ptr<Engine> engine_;
  Outcome expected_;
  int64_t comparisons_ = 0;
  int64_t longest_answer_ = 0;  // of the engine at hand
};

TEST_P(EngineInvarianceTest, BatchesWithStrangersAndCancelledNeighbours) {
  for (const int64_t batch : {2, 7, 32}) {
    open({});
    std::vector<std::unique_ptr<Receiver>> strangers;
    for (int64_t i = 1; i < batch; ++i) {
      strangers.push_back(std::make_unique<Receiver>());
      const auto id = engine_->submit(request(stranger(static_cast<uint32_t>(i), 5 + 13 * (i % 9)), 5 + i % 30),
                                      strangers.back()->sink());
      ASSERT_TRUE(id.ok());
      if (i % 3 == 0) {
        strangers.back()->on_token = [this, id = *id] { engine_->cancel(id); };
      }
    }
    expect_same(run(prompt_), expected_, "batch of " + std::to_string(batch));
    for (auto& other : strangers) other->wait();
    if (HasFatalFailure()) return;
  }
}

TEST_P(EngineInvarianceTest, ChunksAndThreads) {
  for (const int64_t rows : {6, 48, 129, 512}) {
    open({.batch_tokens = rows});
    expect_same(run(prompt_), expected_, "chunks of " + std::to_string(rows));
    if (HasFatalFailure()) return;
  }
  // A slice beside decoding rows.
  open({.prefill_rows = 5});
  Receiver beside;
  ASSERT_TRUE(engine_->submit(request(stranger(1, 10), 150), beside.sink()).ok());
  expect_same(run(prompt_), expected_, "slices of 5");
  beside.wait();
  open({.threads = 2});
  expect_same(run(prompt_), expected_, "two threads");
}

TEST_P(EngineInvarianceTest, PreemptionBySwapAndByRecomputation) {
  const int64_t own = (GetParam().prompt + kAnswer) / kBlockTokens + 1;
  for (const int64_t swap_blocks : {int64_t{64}, int64_t{0}}) {
    // Room for the request and a little more; others come first and keep taking it back.
    open({.states = 12, .blocks = own + 3, .swap_blocks = swap_blocks});
    std::vector<std::unique_ptr<Receiver>> others;
    for (uint32_t i = 0; i < 6; ++i) {
      others.push_back(std::make_unique<Receiver>());
      EngineRequest other = request(stranger(i, 100), 90);
      other.priority = 0;
      ASSERT_TRUE(engine_->submit(std::move(other), others.back()->sink()).ok());
    }
    Receiver receiver;
    EngineRequest mine = request(prompt_);
    mine.priority = 3;
    std::vector<std::unique_ptr<Receiver>> late;
    bool sent = false;
    receiver.on_token = [&] {
      if (sent) return;
      sent = true;
      for (uint32_t i = 0; i < 3; ++i) {
        late.push_back(std::make_unique<Receiver>());
        EngineRequest other = request(stranger(20 + i, 300), 8);
        other.priority = 0;
        ASSERT_TRUE(engine_->submit(std::move(other), late.back()->sink()).ok());
      }
    };
    const auto id = engine_->submit(std::move(mine), receiver.sink());
    ASSERT_TRUE(id.ok()) << id.error().message();
    receiver.wait();
    for (auto& other : others) other->wait();
    for (auto& other : late) other->wait();
    EXPECT_EQ(record_->changed(), 0);
    expect_same({receiver.tokens[0], record_->rows(*id)}, expected_, "swap blocks " + std::to_string(swap_blocks));
    const EngineStats stats = engine_->stats();
    EXPECT_GT(swap_blocks > 0 ? stats.preempted_swap : stats.preempted_recompute, 0) << describe(stats);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EngineInvarianceTest, ForksAreTheAnswersOfRequestsOfTheirOwn) {
  open({});
  EngineRequest several = request(prompt_);
  several.n = 3;
  Receiver receiver(3);
  const auto id = engine_->submit(several, receiver.sink());
  ASSERT_TRUE(id.ok());
  receiver.wait();
  for (uint64_t i = 0; i < 3; ++i) {
    EngineRequest one = request(prompt_);
    one.sampling.seed += i;
    Receiver alone;
    const auto alone_id = engine_->submit(one, alone.sink());
    ASSERT_TRUE(alone_id.ok());
    alone.wait();
    expect_same({receiver.tokens[i], record_->rows(*id + i)}, {alone.tokens[0], record_->rows(*alone_id)},
                "answer " + std::to_string(i));
  }
}

TEST_P(EngineInvarianceTest, WarmPrefixHits) {
  // A state was kept at every length, and resuming it gives the cold bits.
  open({.cache = true});
  const int64_t n = GetParam().prompt;
  const int64_t decoder_first = first_decoder_row(GetParam().mode, prompt_, turns_, 140);
  for (int64_t length = 40; length < n - 1; length += 61) {
    run({prompt_.begin(), prompt_.begin() + length}, 1);
    const Outcome got = run(prompt_);
    EXPECT_GE(got.cached, GetParam().mode == ContextMode::kExact ? length : std::min(length, decoder_first) - 1);
    expect_same(got, expected_, "hit at " + std::to_string(length));
    if (HasFatalFailure()) return;
    // A neighbour prompt pushes the states of this one out now and then; the next round must not care.
    run(stranger(static_cast<uint32_t>(length), 60), 2);
    open({.cache = true});
  }
}

TEST_P(EngineInvarianceTest, AHitAtEveryLength) {
  if (GetParam().mode != ContextMode::kExact) GTEST_SKIP() << "the cut of a prompt moves with its length";
  const int64_t longest = std::min<int64_t>(1024, config_.max_position_embeddings - 2);
  const auto ids = random_ids(3, longest, config_.vocab_size);
  auto model = load_model(directory_, {.max_context_tokens = longest + 1, .max_batch_tokens = longest});
  ASSERT_NE(model, nullptr);
  auto sequence = model->make_sequence();
  const SequenceSpan span{sequence->get(), 0, ids, LogitsRows::kAll};
  const auto cold = model->forward({&span, 1});
  ASSERT_TRUE(cold.ok());

  engine_.reset();
  record_ = std::make_unique<LogitsRecord>();
  auto second = load_model(directory_, {.max_context_tokens = longest + 2, .max_sequences = 8});
  ASSERT_NE(second, nullptr);
  engine_ = std::make_unique<Engine>(std::move(second),
                                     EngineOptions{.context_mode = ContextMode::kExact, .logits_probe = record_->probe()}, counters_);
  const int64_t vocab = config_.vocab_size;
  for (int64_t length = 1; length <= longest; ++length) {
    const Outcome got = run({ids.begin(), ids.begin() + length}, 1);
    ASSERT_EQ(got.cached, length - 1);
    ++comparisons_;
    ASSERT_EQ(std::memcmp(got.rows.at(length).data(), cold->data() + (length - 1) * vocab,
                          static_cast<size_t>(vocab) * sizeof(float)),
              0)
        << "a hit of " << length - 1 << " tokens";
  }
}

TEST_P(EngineInvarianceTest, AfterEvictionAndReuse) {
  const int64_t own = (GetParam().prompt + kAnswer) / kBlockTokens + 1;
  open({.states = 6, .blocks = own + 2, .cache = true});
  expect_same(run(prompt_), expected_, "cold");
  for (uint32_t i = 0; i < 6; ++i) run(stranger(i, GetParam().prompt - 20 - i), 4);
  EXPECT_GT(engine_->stats().misses_absent, 0);
  const Outcome again = run(prompt_);
  if (GetParam().mode != ContextMode::kBounded || again.cached == 0) expect_same(again, expected_, "after eviction");
}

// Bounded mode: a hit without its windows is a result of its own. It equals its oracle and itself.
TEST_P(EngineInvarianceTest, ReplayedHitsEqualTheirOracle) {
  if (GetParam().mode != ContextMode::kBounded) GTEST_SKIP() << "no hit of the other modes has bits of its own";
  const int64_t n = GetParam().prompt, window = config_.sliding_window;
  for (const int64_t stored : {int64_t{128}, n / kBlockTokens * kBlockTokens}) {
    open({.cache = true, .keep_states = false});
    run({prompt_.begin(), prompt_.begin() + stored + 1}, 1);
    const Outcome first = run(prompt_);
    EXPECT_EQ(first.cached, std::min(stored, (n - 1) / kBlockTokens * kBlockTokens));
    const int64_t start = std::max<int64_t>(0, std::min(first.cached, n - 140) - window);
    compare_with_oracle(prompt_, first, {.encoder_first = start, .write_first = first.cached}, start);
    if (HasFatalFailure()) return;
    if (stored == first.cached && (n - 1) / kBlockTokens * kBlockTokens == stored) {
      expect_same(run(prompt_), first, "the same hit again");
    }
  }
}

// After a restart windows are gone and blocks come from disk. Exact and stable mode: the bits of a cold run, by a replay of
// the reach or as a miss. Bounded mode: its own oracle, the same as that of a hit in memory whose windows are lost.
TEST_P(EngineInvarianceTest, T01_AfterARestartFromTheStore) {
  const int64_t n = GetParam().prompt, full = (n - 1) / kBlockTokens * kBlockTokens;
  open({.cache = true, .store = true});
  expect_same(run(prompt_), expected_, "cold, with a store");
  open({.cache = true, .store = true});
  const Outcome first = run(prompt_);
  if (GetParam().mode != ContextMode::kBounded) {
    expect_same(first, expected_, "after a restart");
  } else {
    EXPECT_EQ(first.cached, full);
    const int64_t start = std::max<int64_t>(0, std::min(full, n - 140) - config_.sliding_window);
    compare_with_oracle(prompt_, first, {.encoder_first = start, .write_first = full}, start);
  }
  if (HasFatalFailure()) return;
  // A longer prompt hits what both left, and does so the same way after a second restart.
  auto longer = prompt_;
  for (const int32_t id : stranger(77, 30)) longer.push_back(id);
  open({.cache = true, .store = true});
  const Outcome once = run(longer);
  open({.cache = true, .store = true});
  expect_same(run(longer), once, "the same hit after another restart");
}

INSTANTIATE_TEST_SUITE_P(Models, EngineInvarianceTest,
                         testing::Values(Subject{"tiny", ContextMode::kBounded, 0, 300, true},
                                         Subject{"tiny", ContextMode::kStable, 1, 300, false},
                                         Subject{"tiny", ContextMode::kExact, 1, 300, false},
                                         Subject{"mini", ContextMode::kBounded, 1, 330, false},
                                         Subject{"mini", ContextMode::kExact, 0, 330, true},
                                         Subject{"mini", ContextMode::kStable, 1, 330, false},
                                         Subject{"mini", ContextMode::kStable, 0, 330, true}),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + std::string(context_mode_name(info.param.mode)) +
                                  "Depth" + std::to_string(info.param.depth) +
                                  (info.param.drafts ? "Drafts" : "");
                         });

}  // namespace
}  // namespace deepinfer
