// A context of a million tokens: positions beyond 2^20, more than 16,384 visible rows for every query, blocks beyond
// 2^31 bytes. Nobody prefills that much with the scalar reference, so the caches are filled with random rows, and a few
// tokens run at the end of them: with the best table of this processor and with the reference, in blocks of other
// numbers; and the choice of rows is made again here, row by row, from what lies in the blocks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "model/kv_arena.h"
#include "model/model.h"
#include "model/rope.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kContext = (int64_t{1} << 20) + 2048;
constexpr int64_t kFirst = (int64_t{1} << 20) + 1021;  // odd: the first row finishes a pair
constexpr int64_t kRows = 3;

// The parts of a run that the choice of rows is made from, and the choice.
class Watcher final : public ForwardObserver {
 public:
  std::map<std::pair<std::string, int64_t>, std::vector<float>> numbers;
  std::map<std::pair<std::string, int64_t>, std::vector<int64_t>> lists;
  bool wants(std::string_view name) const override {
    return name == "index_query" || name == "index_weights" || name == "topk";
  }
  void values(std::string_view name, int64_t layer, std::span<const float> rows) override {
    numbers[{std::string(name), layer}].assign(rows.begin(), rows.end());
  }
  void indices(std::string_view name, int64_t layer, std::span<const int64_t> rows) override {
    lists[{std::string(name), layer}].assign(rows.begin(), rows.end());
  }
};

class LongContextTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "long_context_" + std::to_string(::getpid());
    const SyntheticOptions options{
        .preset = SyntheticPreset::kTiny, .num_layers = 10, .num_experts = 8, .seed = 11, .engram_classes = 200};
    const Status written = write_synthetic_checkpoint(directory_, options);
    ASSERT_TRUE(written.ok()) << written.error().message();
    lengthen_config();
    auto checkpoint = Checkpoint::open(directory_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    checkpoint_.emplace(std::move(*checkpoint));
    layout_.emplace(config());
    // As many blocks as it takes for the last of them to begin beyond 2^31 bytes.
    const int64_t in_use = kContext / kBlockTokens;
    far_blocks_ = std::max(2 * in_use, (int64_t{1} << 31) / layout_->block_bytes + in_use + 1);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void lengthen_config() {
    const std::string path = directory_ + "/config.json";
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    std::string config = text.str();
    for (const auto& [key, value] : {std::pair<std::string, int64_t>{"max_position_embeddings", kContext},
                                     {"original_max_position_embeddings", 65536}}) {
      const size_t at = config.find("\"" + key + "\":");
      ASSERT_NE(at, std::string::npos);
      const size_t first = config.find_first_of("0123456789", at), end = config.find_first_not_of("0123456789", first);
      config.replace(first, end - first, std::to_string(value));
    }
    std::ofstream(path) << config;
  }

  const ModelConfig& config() const { return checkpoint_->config(); }

  std::unique_ptr<Model> load(std::string isa, int threads, int64_t blocks) const {
    std::vector<int32_t> classes(static_cast<size_t>(config().vocab_size));
    for (size_t id = 0; id < classes.size(); ++id) {
      classes[id] =
          static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(id), config().engram_compressed_vocab_size - 1));
    }
    auto model = Model::load(*checkpoint_, classes,
                             {.isa = std::move(isa),
                              .num_threads = threads,
                              .max_context_tokens = kContext,
                              .num_blocks = blocks,
                              .max_batch_tokens = 16});
    if (!model.ok()) {
      ADD_FAILURE() << model.error().message();
      return nullptr;
    }
    return std::move(*model);
  }

  // Rows as the quantizers make them: any codes, scales of numbers about 1.
  void fill_block(std::span<std::byte> block, uint64_t seed) const {
    std::mt19937_64 rng(seed);
    for (size_t i = 0; i + 8 <= block.size(); i += 8) {
      const uint64_t word = rng();
      std::memcpy(block.data() + i, &word, 8);
    }
    const auto set_scales = [&](int64_t offset, int64_t count, int base, int range) {
      for (int64_t i = 0; i < count; ++i) {
        block[static_cast<size_t>(offset + i)] =
            static_cast<std::byte>(base + static_cast<int>(rng() % static_cast<uint64_t>(range)));
      }
    };
    const int64_t key_codes = config().index_head_dim / 2, key_scales = config().index_head_dim / 32;
    const int64_t row_codes = config().head_dim / 2, row_scales = config().head_dim / 16;
    for (const BlockGroup& group : layout_->groups) {
      set_scales(group.index_offset + group.rows * key_codes, group.rows * key_scales, 124, 4);  // E8M0
      for (int64_t row = 0; row < group.rows; ++row) {
        set_scales(group.rows_offset + row * layout_->compressed_row_bytes + row_codes, row_scales, 0x28, 16);  // E4M3
      }
    }
  }

  // Runs kRows tokens behind a context of random rows in blocks first_block, first_block + step, ...
  std::vector<float> run(Model& model, int64_t first_block, int64_t step, ForwardObserver* observer) const {
    std::vector<BlockId> table;
    for (int64_t b = 0; b * kBlockTokens < kContext; ++b) {
      table.push_back(static_cast<BlockId>(first_block + step * b));
      fill_block(model.block_bytes(table.back()), static_cast<uint64_t>(b) + 1);
    }
    Sequence& sequence = model.state(0);
    const std::vector<int32_t> before = {7, 8, 9}, ids = {21, 22, 23};
    model.start(sequence, kFirst, before, {});
    const SequenceSpan span{&sequence, kFirst, ids, LogitsRows::kAll, 0, table};
    const auto logits = model.forward({&span, 1}, observer);
    EXPECT_TRUE(logits.ok()) << logits.error().message();
    return logits.ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  std::vector<std::vector<float>> scores(Model& model, int64_t source, int64_t rows, std::span<const float> query,
                                         std::span<const float> weights) const;
  std::string directory_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<KvLayout> layout_;
  int64_t far_blocks_ = 0;
};

// Scores of keys [0, rows) of a source, for each of the kRows queries, in the order of docs/numerics.md.
std::vector<std::vector<float>> LongContextTest::scores(Model& model, int64_t source, int64_t rows,
                                                        std::span<const float> query,
                                                        std::span<const float> weights) const {
  const int64_t dim = config().index_head_dim, heads = config().index_n_heads;
  std::vector<std::vector<float>> all(kRows, std::vector<float>(static_cast<size_t>(rows)));
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<float> key = model.index_key(model.state(0), source, row);
    for (int64_t i = 0; i < kRows; ++i) {
      float score = 0;
      for (int64_t head = i * heads; head < (i + 1) * heads; ++head) {
        float dot = 0;
        for (int64_t block = 0; block < dim; block += 32) {
          float partial = 0;
          for (int64_t d = block; d < std::min(block + 32, dim); ++d) {
            partial = std::fma(query[head * dim + d], key[d], partial);
          }
          dot += partial;
        }
        score = std::fma(weights[head], std::max(0.0f, dot), score);
      }
      all[i][row] = score;
    }
  }
  return all;
}

// The `count` largest of the rows, ties to the smaller one, ascending.
std::vector<int64_t> best_rows(const std::vector<float>& scores, std::vector<int64_t> rows, int64_t count) {
  count = std::min<int64_t>(count, std::ssize(rows));
  std::partial_sort(rows.begin(), rows.begin() + count, rows.end(),
                    [&](int64_t a, int64_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  rows.resize(count);
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_F(LongContextTest, TheReferenceAgreesAtAMillionTokens) {
  const auto model = load("auto", 2, far_blocks_);
  ASSERT_NE(model, nullptr);
  ASSERT_GT((far_blocks_ - 1) * layout_->block_bytes, int64_t{1} << 31);
  Watcher watcher;
  const auto logits = run(*model, far_blocks_ - 1, -1, nullptr);
  const auto watched = run(*model, far_blocks_ - 1, -1, &watcher);
  {
    const auto reference = load("ref", 1, kContext / kBlockTokens + 1);
    ASSERT_NE(reference, nullptr);
    const auto expected = run(*reference, 0, 1, nullptr);
    ASSERT_EQ(logits.size(), static_cast<size_t>(kRows * config().vocab_size));
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(logits.data(), watched.data(), logits.size() * sizeof(float)), 0);
  }

  std::vector<std::vector<int64_t>> candidates(kRows);  // rows of the kept blocks
  int64_t real_choices = 0;
  for (const int64_t layer : config().index_source_layer_ids) {
    const int64_t source = *ModelConfig::source_of(config().kv_source_layer_ids, layer);
    const int64_t ratio = config().compress_ratios[source];
    const auto all_scores = scores(*model, source, (kFirst + kRows) / ratio, watcher.numbers.at({"index_query", layer}),
                                   watcher.numbers.at({"index_weights", layer}));
    const auto& chosen = watcher.lists.at({"topk", layer});
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t visible = (kFirst + i + 1) / ratio;
      ASSERT_GT(visible, 16384);
      const std::vector<float>& found = all_scores[i];
      if (layer == config().candidate_source_layer_id) {
        const int64_t size = config().candidate_block_size, blocks = (visible + size - 1) / size;
        std::vector<float> best(static_cast<size_t>(blocks), -INFINITY);
        for (int64_t row = 0; row < visible; ++row) best[row / size] = std::max(best[row / size], found[row]);
        best.back() = INFINITY;  // the newest block is always kept
        std::vector<int64_t> all(static_cast<size_t>(blocks));
        std::iota(all.begin(), all.end(), 0);
        for (const int64_t block : best_rows(best, all, config().candidate_topk_blocks)) {
          for (int64_t row = block * size; row < std::min((block + 1) * size, visible); ++row)
            candidates[i].push_back(row);
        }
      }
      std::vector<int64_t> among = candidates[i];
      if (layer <= config().candidate_source_layer_id) {
        among.resize(static_cast<size_t>(visible));
        std::iota(among.begin(), among.end(), 0);
      }
      const auto expected = best_rows(found, among, config().index_topk);
      const auto row = chosen.begin() + i * config().index_topk;
      EXPECT_EQ(std::vector<int64_t>(row, row + std::ssize(expected)), expected) << "layer " << layer << ", row " << i;
      real_choices += expected.back() > 16384 ? 1 : 0;
    }
  }
  EXPECT_GT(real_choices, 0);
}

TEST_F(LongContextTest, AnglesBeyondTwoToTheTwentyAreThoseOfTheirPositions) {
  const auto frequencies =
      yarn_frequencies(config().compress_rope_theta, config().qk_rope_head_dim, config().rope_scaling);
  const auto table = RopeTable::make(frequencies, kContext);
  ASSERT_TRUE(table.ok());
  for (const int64_t position : {int64_t{0}, kFirst - 1, kFirst, int64_t{1} << 20, kContext - 1}) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = static_cast<float>(position) * frequencies[i];  // the fp32 product
      EXPECT_EQ(table->row(position)[2 * i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table->row(position)[2 * i + 1], static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace
}  // namespace deepinfer
