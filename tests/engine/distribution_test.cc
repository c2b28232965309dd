// What the engine draws with drafts has the target's distribution: chi-square over the first three tokens of many
// seeds, the second and third of which drafts reach, against probabilities computed from the mini's own logits. Both
// modes (docs/spec/decisions.md 5), and proposers that break what they promise, which the same test catches.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "engine_support.h"
#include "json/json.h"
#include "source_path.h"
#include "speculate/chi_square.h"
#include "speculate/proposer.h"

namespace deepinfer {
namespace {

constexpr int kKept = 4, kTokens = 3, kCells = kKept * kKept * kKept;
constexpr int32_t kAnswers = 48;      // of one request, all at once
constexpr int64_t kRequests = 300;    // so 14,400 seeds
constexpr double kTemperature = 5.0;  // so that many cells are likely

// A held-out text of the mini up to the third token of an answer.
std::vector<int32_t> held_out_prompt() {
  constexpr int kText = 8, kAssistant = 2034;
  std::ifstream file(source_path("models/mini/golden/teacher.jsonl"));
  std::string line;
  for (int i = 0; i <= kText; ++i) std::getline(file, line);
  const auto document = parse_json(line);
  if (!document.ok()) ADD_FAILURE() << document.error().message();
  std::vector<int32_t> ids;
  for (const JsonValue& id : *document->find("ids")->array()) {
    ids.push_back(static_cast<int32_t>(*id.int64()));
    if (ids.size() > 3 && ids[ids.size() - 3] == kAssistant) break;
  }
  return ids;
}

EngineRequest request_behind(std::vector<int32_t> ids) {
  EngineRequest request;
  request.prompt_ids = std::move(ids);
  request.max_tokens = 1;
  request.sampling.temperature = kTemperature;
  request.sampling.top_k = kKept;
  return request;
}

// The likeliest ids of a row, best first, with their probabilities among themselves.
struct Row {
  std::array<int32_t, kKept> ids = {};
  std::array<double, kKept> p = {};
};
Row row_of(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::partial_sort(order.begin(), order.begin() + kKept, order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
  Row row;
  double sum = 0;
  for (size_t i = 0; i < kKept; ++i) {
    row.ids[i] = order[i];
    const double above =
        static_cast<double>(logits[static_cast<size_t>(order[i])]) - logits[static_cast<size_t>(order[0])];
    sum += row.p[i] = std::exp(above / kTemperature);
  }
  for (double& p : row.p) p /= sum;
  return row;
}

// The model's own distribution of the first tokens behind the prompt, one row for each beginning of them.
struct Target {
  std::map<std::vector<int32_t>, Row> rows;
  std::vector<double> cells;  // of the three tokens, by their ranks in their rows

  int64_t cell_of(std::span<const int32_t> tokens) const {
    int64_t cell = 0;
    std::vector<int32_t> before;
    for (const int32_t token : tokens) {
      const auto& ids = rows.at(before).ids;
      const auto rank = std::find(ids.begin(), ids.end(), token) - ids.begin();
      if (rank == kKept) return -1;  // can't be drawn
      cell = cell * kKept + rank;
      before.push_back(token);
    }
    return cell;
  }
};

class DistributionTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> open(const SpeculationOptions& speculation, LogitsProbe probe = {}) {
    auto model =
        load_model(model_directory("mini"), {.max_context_tokens = 128, .max_sequences = 64, .max_batch_tokens = 384});
    EngineOptions options;
    options.prefix_cache = false;
    options.max_running = kAnswers;
    options.speculation = speculation;
    options.logits_probe = std::move(probe);
    return std::make_unique<Engine>(std::move(model), options, counters_);
  }

  void SetUp() override {
    LogitsRecord record;
    const auto engine = open({.proposer = DraftProposer::kOff}, record.probe());
    std::vector<std::vector<int32_t>> beginnings = {{}};
    for (int depth = 0; depth < kTokens; ++depth) {
      std::vector<std::vector<int32_t>> longer;
      for (const auto& before : beginnings) {
        std::vector<int32_t> ids = prompt_;
        ids.insert(ids.end(), before.begin(), before.end());
        Receiver receiver;
        const auto id = engine->submit(request_behind(ids), receiver.sink());
        ASSERT_TRUE(id.ok()) << id.error().message();
        receiver.wait();
        const Row row = row_of(record.rows(*id).begin()->second);
        target_.rows[before] = row;
        for (const int32_t next : row.ids) {
          longer.push_back(before);
          longer.back().push_back(next);
        }
      }
      beginnings = std::move(longer);
    }
    for (const auto& tokens : beginnings) {
      double p = 1;
      std::vector<int32_t> before;
      for (const int32_t token : tokens) {
        const Row& row = target_.rows.at(before);
        p *= row.p[static_cast<size_t>(std::find(row.ids.begin(), row.ids.end(), token) - row.ids.begin())];
        before.push_back(token);
      }
      target_.cells.push_back(p);
    }
    ASSERT_EQ(target_.cells.size(), static_cast<size_t>(kCells));
  }

  // The p-value of the three tokens together.
  double test(const char* name, SpeculationOptions speculation, int64_t requests = kRequests) {
    speculation.fixed_drafts = 2;
    const auto engine = open(speculation);
    std::vector<int64_t> seen(kCells);
    std::array<std::vector<int64_t>, kTokens> seen_at;
    for (auto& counts : seen_at) counts.resize(kCells);
    int64_t impossible = 0;
    for (int64_t i = 0; i < requests; ++i) {
      EngineRequest request = request_behind(prompt_);
      request.n = kAnswers;
      request.max_tokens = kTokens + 1;  // so that the third is still drafted for behind a second that was not
      request.sampling.seed = static_cast<uint64_t>(i * kAnswers);
      Receiver receiver(kAnswers);
      const auto id = engine->submit(std::move(request), receiver.sink());
      if (!id.ok()) {
        ADD_FAILURE() << id.error().message();
        return 0;
      }
      receiver.wait();
      for (const auto& tokens : receiver.tokens) {
        const int64_t cell = target_.cell_of(std::span(tokens).first(kTokens));
        if (cell < 0) {
          ++impossible;
          continue;
        }
        ++seen[static_cast<size_t>(cell)];
        // Of a position: the tokens before it with it, so that its row is one row.
        int64_t part = cell;
        for (int at = kTokens - 1; at >= 0; --at, part /= kKept)
          ++seen_at[static_cast<size_t>(at)][static_cast<size_t>(part)];
      }
    }
    EXPECT_EQ(impossible, 0);
    const ChiSquare all = chi_square(seen, target_.cells);
    std::printf("%s: %lld seeds, chi-square %.1f with %lld degrees of freedom, p = %.4g; by token", name,
                static_cast<long long>(requests * kAnswers), all.statistic, static_cast<long long>(all.degrees), all.p);
    std::vector<double> expected = target_.cells;
    std::array<double, kTokens> p_at = {};
    for (int at = kTokens - 1; at >= 0; --at) {
      const auto cells = static_cast<size_t>(std::pow(kKept, at + 1));
      p_at[static_cast<size_t>(at)] = chi_square(std::span(seen_at[static_cast<size_t>(at)]).first(cells), expected).p;
      std::vector<double> shorter(cells / kKept);
      for (size_t i = 0; i < cells; ++i) shorter[i / kKept] += expected[i];
      expected = std::move(shorter);
    }
    const EngineStats stats = engine->stats();
    std::printf(" %.3g, %.3g, %.3g; first draft accepted %lld of %lld, second %lld of %lld\n", p_at[0], p_at[1],
                p_at[2], static_cast<long long>(stats.accepted[0]), static_cast<long long>(stats.verified[0]),
                static_cast<long long>(stats.accepted[1]), static_cast<long long>(stats.verified[1]));
    EXPECT_GT(stats.accepted[0], stats.verified[0] / 20);
    EXPECT_LT(stats.accepted[0], stats.verified[0]);
    EXPECT_GT(stats.accepted[1], 0);
    return all.p;
  }

  Counters counters_;
  std::vector<int32_t> prompt_ = held_out_prompt();
  Target target_;
};

TEST_F(DistributionTest, OfDeterministicMode) {
  EXPECT_GT(test("deterministic", {}), 1e-3);
}

TEST_F(DistributionTest, OfRejectionMode) {
  EXPECT_GT(test("rejection", {.sampling = SpeculationSampling::kRejection}), 1e-3);
}

// The draft stages' distributions, with drafts drawn from them in another way.
class Redrawing : public Proposer {
 public:
  using Draw = std::function<int32_t(const Masses&, uint64_t seed, int64_t position, int64_t place)>;
  Redrawing(Model& model, Draw draw)
      : stages_(make_dspark_proposer(model, {.sampling = SpeculationSampling::kRejection})), draw_(std::move(draw)) {}
  Status propose(std::span<const DraftTask> tasks) override {
    RETURN_IF_ERROR(stages_->propose(tasks));
    for (const DraftTask& task : tasks) {
      Draft& out = *task.out;
      for (size_t k = 0; k < out.ids.size(); ++k) {
        const auto place = static_cast<int64_t>(k);
        out.ids[k] = draw_(out.masses[k], task.sampling->seed, out.position + place, place);
      }
    }
    return {};
  }

 private:
  std::unique_ptr<Proposer> stages_;
  const Draw draw_;
};

SpeculationOptions redrawing(Redrawing::Draw draw) {
  return {.sampling = SpeculationSampling::kRejection,
          .custom = [draw = std::move(draw)](Model& model) { return std::make_unique<Redrawing>(model, draw); }};
}

TEST_F(DistributionTest, AWrongRuleIsCaught) {
  constexpr int64_t kFew = kRequests / 3;
  const auto redrawn = redrawing([](const Masses& masses, uint64_t seed, int64_t position, int64_t place) {
    return masses.draw(random_word(seed, position, Purpose::kDraft, place));
  });
  EXPECT_GT(test("redrawn, as promised", redrawn, kFew), 1e-3);
  const auto one_word = redrawing([](const Masses& masses, uint64_t seed, int64_t position, int64_t) {
    return masses.draw(random_word(seed, position, Purpose::kAccept));
  });
  EXPECT_LT(test("planted: one word for draft and test", one_word, kFew), 1e-9);
  const auto likeliest = redrawing([](const Masses& masses, uint64_t, int64_t, int64_t) {
    return std::max_element(masses.entries.begin(), masses.entries.end(),
                            [](const auto& a, const auto& b) { return a.mass < b.mass; })
        ->id;
  });
  EXPECT_LT(test("planted: the likeliest draft, said to be drawn", likeliest, kFew), 1e-9);
}

}  // namespace
}  // namespace deepinfer
