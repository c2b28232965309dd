// Path invariance: the logits of a token are the same bits on every path that leads to it. Compared with one-shot prefill
// on one thread, for a model directory: chunks of every awkward size, one token at a time, drafts written and
// overwritten, several sequences in one call, two threads, another instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "../model_support.h"
#include "model/kv_arena.h"

namespace deepinfer {
namespace {

struct Subject {
  const char* name;
  int64_t num_tokens;  // enough that every selection of the model is a real one
};

int32_t greedy_draft(size_t, int64_t, std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class InvarianceTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    directory_ = model_directory(GetParam().name);
    REQUIRE_DATA(directory_ + "/config.json");
    num_tokens_ = GetParam().num_tokens;
    model_ = load_model(directory_, options(1));
    ASSERT_NE(model_, nullptr);
    vocab_ = model_->config().vocab_size;
    ids_ = random_ids(7, num_tokens_);
    expected_ = one_shot(*model_, ids_);
  }

  ModelOptions options(int threads, std::string isa = "auto") const {
    return {.isa = std::move(isa),
            .num_threads = threads,
            .max_context_tokens = num_tokens_ + 8,
            .max_sequences = 3,
            .max_batch_tokens = 2 * num_tokens_ + 16};
  }

  std::vector<int32_t> random_ids(uint32_t seed, int64_t count) const {
    std::mt19937 rng(seed);
    std::vector<int32_t> ids;
    // Repeats make n-grams and favoured successors likely, as in text.
    std::uniform_int_distribution<int32_t> pick(3, static_cast<int32_t>(model_->config().vocab_size) - 16);
    for (int64_t i = 0; i < count; ++i) ids.push_back(i % 5 == 4 ? ids[i - 4] : pick(rng));
    return ids;
  }

  static std::vector<float> one_shot(Model& model, std::span<const int32_t> ids) {
    auto sequence = model.make_sequence();
    EXPECT_TRUE(sequence.ok());
    const SequenceSpan span{sequence->get(), 0, ids, LogitsRows::kAll};
    const auto logits = model.forward({&span, 1});
    EXPECT_TRUE(logits.ok()) << logits.error().message();
    return {logits->begin(), logits->end()};
  }

  // Logits rows of positions first, first + 1, ... must equal the one-shot rows.
  void expect_rows(std::span<const float> logits, int64_t first, const std::string& what) {
    ASSERT_EQ(logits.size() % vocab_, 0u);
    const auto rows = static_cast<int64_t>(logits.size()) / vocab_;
    for (int64_t row = 0; row < rows; ++row) {
      ++comparisons_;
      ASSERT_EQ(std::memcmp(logits.data() + row * vocab_, expected_.data() + (first + row) * vocab_,
                            static_cast<size_t>(vocab_) * sizeof(float)),
                0)
          << what << ", position " << first + row;
    }
  }

  void feed(Model& model, Sequence* sequence, int64_t first, int64_t count, const std::string& what) {
    const SequenceSpan span{sequence, first, std::span<const int32_t>(ids_).subspan(first, count), LogitsRows::kAll};
    const auto logits = model.forward({&span, 1});
    ASSERT_TRUE(logits.ok()) << logits.error().message();
    expect_rows(*logits, first, what);
  }

  void TearDown() override {
    if (comparisons_ > 0) std::printf("%s: %lld logit rows compared\n", GetParam().name, comparisons_);
  }

  std::string directory_;
  int64_t num_tokens_ = 0, vocab_ = 0;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
  std::vector<float> expected_;
  long long comparisons_ = 0;
};

TEST_P(InvarianceTest, ChunksOfAnySizeGiveTheSameBits) {
  for (const int64_t chunk : {1, 2, 3, 127, 128, 129}) {
    auto sequence = model_->make_sequence();
    ASSERT_TRUE(sequence.ok());
    for (int64_t first = 0; first < num_tokens_; first += chunk) {
      feed(*model_, sequence->get(), first, std::min(chunk, num_tokens_ - first), "chunks of " + std::to_string(chunk));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(InvarianceTest, RejectedDraftsLeaveNoTrace) {
  for (int64_t drafts = 1; drafts <= model_->max_step_back() - 1; ++drafts) {
    auto sequence = model_->make_sequence();
    ASSERT_TRUE(sequence.ok());
    const int64_t prompt = num_tokens_ / 3 + drafts;
    feed(*model_, sequence->get(), 0, prompt, "prompt");
    std::mt19937 rng(static_cast<uint32_t>(drafts));
    for (int64_t position = prompt; position + drafts < num_tokens_;) {
      // One true token and `drafts` wrong ones; then 1 .. drafts + 1 of the rows turn out accepted.
      const int64_t accepted = 1 + static_cast<int64_t>(rng() % static_cast<uint32_t>(drafts + 1));
      std::vector<int32_t> rows(ids_.begin() + position, ids_.begin() + position + accepted);
      while (std::ssize(rows) < drafts + 1) rows.push_back(3 + static_cast<int32_t>(rng() % 100));
      const SequenceSpan span{sequence->get(), position, rows, LogitsRows::kAll};
      const auto logits = model_->forward({&span, 1});
      ASSERT_TRUE(logits.ok()) << logits.error().message();
      expect_rows(logits->first(static_cast<size_t>(accepted * vocab_)), position,
                  std::to_string(drafts) + " drafts");
      if (HasFatalFailure()) return;
      position += accepted;
    }
  }
}

TEST_P(InvarianceTest, DraftingChangesNothing) {
  auto sequence = model_->make_sequence();
  ASSERT_TRUE(sequence.ok());
  feed(*model_, sequence->get(), 0, num_tokens_ / 2, "prompt");
  std::vector<float> first_logits;
  std::vector<int32_t> first_drafts;
  for (int round = 0; round < 2; ++round) {
    const DraftStart start{sequence->get(), ids_[num_tokens_ / 2]};
    const auto draft = model_->draft({&start, 1}, greedy_draft);
    ASSERT_TRUE(draft.ok()) << draft.error().message();
    ASSERT_EQ(std::ssize(draft->ids), model_->config().dspark_block_size);
    if (round == 0) first_drafts.assign(draft->ids.begin(), draft->ids.end());
    EXPECT_EQ(std::vector<int32_t>(draft->ids.begin(), draft->ids.end()), first_drafts);
  }
  for (int64_t position = num_tokens_ / 2; position < num_tokens_; ++position) {
    feed(*model_, sequence->get(), position, 1, "after a draft");
    if (HasFatalFailure()) return;
  }
}

TEST_P(InvarianceTest, NeighboursInADraftPassDoNotMatter) {
  constexpr int kSequences = 3;
  Model::SequencePtr sequences[kSequences];
  std::vector<DraftStart> starts;
  for (int i = 0; i < kSequences; ++i) {
    auto sequence = model_->make_sequence();
    ASSERT_TRUE(sequence.ok());
    sequences[i] = std::move(*sequence);
    const auto ids = random_ids(50 + static_cast<uint32_t>(i), 3 + 60 * i);
    const SequenceSpan span{sequences[i].get(), 0, ids, LogitsRows::kNone};
    ASSERT_TRUE(model_->forward({&span, 1}).ok());
    starts.push_back({sequences[i].get(), ids[1]});
  }
  const auto together = model_->draft(starts, greedy_draft);
  ASSERT_TRUE(together.ok()) << together.error().message();
  const std::vector<float> logits(together->logits.begin(), together->logits.end());
  const std::vector<float> confidence(together->confidence.begin(), together->confidence.end());
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto alone = model_->draft({&starts[i], 1}, greedy_draft);
    ASSERT_TRUE(alone.ok());
    EXPECT_EQ(std::memcmp(alone->logits.data(), logits.data() + i * alone->logits.size(),
                          alone->logits.size_bytes()),
              0);
    EXPECT_EQ(std::memcmp(alone->confidence.data(), confidence.data() + i * alone->confidence.size(),
                          alone->confidence.size_bytes()),
              0);
  }
}

TEST_P(InvarianceTest, NeighboursInACallDoNotMatter) {
  auto mine = model_->make_sequence(), other = model_->make_sequence(), third = model_->make_sequence();
  ASSERT_TRUE(mine.ok() && other.ok() && third.ok());
  const auto strangers = random_ids(99, num_tokens_);
  const std::span<const int32_t> ids(ids_), foreign(strangers);
  const int64_t half = num_tokens_ / 2;
  const SequenceSpan prefill[] = {{other->get(), 0, foreign.first(17), LogitsRows::kNone},
                                  {mine->get(), 0, ids.first(half), LogitsRows::kAll},
                                  {third->get(), 0, foreign.first(1), LogitsRows::kNone}};
  auto logits = model_->forward(prefill);
  ASSERT_TRUE(logits.ok()) << logits.error().message();
  expect_rows(*logits, 0, "prefill between strangers");
  const SequenceSpan mixed[] = {{third->get(), 1, foreign.subspan(1, 1), LogitsRows::kNone},
                                {other->get(), 17, foreign.subspan(17, 40), LogitsRows::kNone},
                                {mine->get(), half, ids.subspan(half, 1), LogitsRows::kLast}};
  logits = model_->forward(mixed);
  ASSERT_TRUE(logits.ok()) << logits.error().message();
  expect_rows(*logits, half, "decode beside a prefill");
}

TEST_P(InvarianceTest, ThreadsAndInstructionSetsGiveTheSameBits) {
  for (const auto& [threads, isa] : {std::pair{2, "auto"}, {3, "auto"}, {2, "ref"}}) {
    const auto model = load_model(directory_, options(threads, isa));
    ASSERT_NE(model, nullptr);
    const int64_t count = std::string_view(isa) == "ref" ? num_tokens_ / 4 : num_tokens_;
    auto sequence = model->make_sequence();
    ASSERT_TRUE(sequence.ok());
    feed(*model, sequence->get(), 0, count - 1, std::string(isa) + " with threads");
    feed(*model, sequence->get(), count - 1, 1, std::string(isa) + " with threads, one row");
    if (HasFatalFailure()) return;
  }
}

// Copies what it sees, by name and layer; all calls of a run one after another.
class Watcher final : public ForwardObserver {
 public:
  Watcher(bool all, bool replaces) : all_(all), replaces_(replaces) {}
  std::map<std::pair<std::string, int64_t>, std::string> seen;

  bool wants(std::string_view name) const override { return all_ || name == "h_out" || name == "pre_out"; }
  bool replaces() const override { return replaces_; }
  void values(std::string_view name, int64_t layer, std::span<const Bf16> rows) override { add(name, layer, rows); }
  void values(std::string_view name, int64_t layer, std::span<const float> rows) override { add(name, layer, rows); }

 private:
  template <typename T>
  void add(std::string_view name, int64_t layer, std::span<const T> rows) {
    seen[{std::string(name), layer}].append(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
  }
  const bool all_, replaces_;
};

// Layers end as they always do where one looks at their ends alone. So what such an observer sees, layer by layer, is
// what is served; and who looks everywhere, or puts back what he was given, must see the same.
TEST_P(InvarianceTest, WhatIsObservedIsWhatIsServed) {
  constexpr int64_t kMany = 40;
  const auto run = [&](Model& model, ForwardObserver* observer) {
    auto sequence = model.make_sequence();
    EXPECT_TRUE(sequence.ok());
    // Many rows, few rows and one: they mix in different ways.
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, kMany}, {kMany, 3}, {kMany + 3, 1}, {kMany + 4, 2}}) {
      const SequenceSpan span{sequence->get(), first, std::span<const int32_t>(ids_).subspan(first, count),
                              LogitsRows::kAll};
      const auto logits = model.forward({&span, 1}, observer);
      EXPECT_TRUE(logits.ok()) << logits.error().message();
      expect_rows(*logits, first, observer == nullptr ? "unobserved" : "observed");
    }
  };
  for (const int threads : {1, 3}) {
    const auto model = load_model(directory_, options(threads));
    ASSERT_NE(model, nullptr);
    Watcher ends(false, false), all(true, false), put_back(true, true);
    run(*model, nullptr);
    for (Watcher* watcher : {&ends, &all, &put_back}) run(*model, watcher);
    for (int64_t layer = 0; layer < model->config().num_hidden_layers; ++layer) {
      for (const char* name : {"h_out", "pre_out"}) {
        ASSERT_TRUE(ends.seen.contains({name, layer}));
        const std::string& served = ends.seen.at({name, layer});
        EXPECT_FALSE(served.empty());
        EXPECT_TRUE(all.seen.at({name, layer}) == served)
            << name << " of layer " << layer << ", " << threads << " threads";
        EXPECT_TRUE(put_back.seen.at({name, layer}) == served) << name << " of layer " << layer << ", put back";
      }
    }
    EXPECT_EQ(all.seen.size(), put_back.seen.size());
    for (const auto& [key, bytes] : all.seen)
      EXPECT_TRUE(put_back.seen.at(key) == bytes) << key.first << " " << key.second;
  }
}

TEST_P(InvarianceTest, BadSpansAreRefusedAndChangeNothing) {
  auto sequence = model_->make_sequence();
  ASSERT_TRUE(sequence.ok());
  feed(*model_, sequence->get(), 0, 20, "prompt");
  const std::vector<int32_t> one = {5}, none, bad = {static_cast<int32_t>(vocab_)};
  const auto code_of = [&](int64_t first, std::span<const int32_t> ids) {
    const SequenceSpan span{sequence->get(), first, ids, LogitsRows::kLast};
    const auto logits = model_->forward({&span, 1});
    return logits.ok() ? std::optional<Code>() : logits.error().code();
  };
  EXPECT_EQ(code_of(21, one), Code::kInvalidArgument);                              // a gap
  EXPECT_EQ(code_of(20 - model_->max_step_back() - 1, one), Code::kInvalidArgument);  // too far back
  EXPECT_EQ(code_of(20, none), Code::kInvalidArgument);
  EXPECT_EQ(code_of(20, bad), Code::kInvalidArgument);
  feed(*model_, sequence->get(), 20, 1, "after refusals");
}

TEST_P(InvarianceTest, MoreTokensBeforeAPositionThanItHasAreABugThatIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(model_->start(model_->state(0), 2, std::span(ids_).first(3), {}), "ids_before");
}

INSTANTIATE_TEST_SUITE_P(Models, InvarianceTest, testing::Values(Subject{"tiny", 300}, Subject{"mini", 560}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace deepinfer
