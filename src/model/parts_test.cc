// Published vectors and edge cases of the small parts: rotary tables, choices, Engram hashes, memory layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "model/engram_hash.h"
#include "model/kv_arena.h"
#include "model/rope.h"
#include "model/select.h"

namespace deepinfer {
namespace {

ModelConfig flash_engram_config() {
  ModelConfig config;
  config.engram_layer_ids = {1, 14};
  config.engram_num_embeddings = {384006168, 384016682};
  config.engram_max_ngram_size = 4;
  config.engram_vocab_size = 16000000;
  config.engram_n_heads = 8;
  config.engram_compressed_vocab_size = 99092;
  return config;
}

// docs/spec/model.md 6.2 and A.3.
TEST(EngramHashTest, ConstantsAndRowsOfTheReleasedModel) {
  const auto hashes = make_engram_hashes(flash_engram_config());
  ASSERT_TRUE(hashes.ok()) << hashes.error().message();
  const EngramLayerHash& layer1 = (*hashes)[0];
  const EngramLayerHash& layer14 = (*hashes)[1];
  EXPECT_EQ(layer1.multipliers,
            (std::array<int64_t, 4>{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(layer14.multipliers,
            (std::array<int64_t, 4>{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(layer1.primes[0], 16000057);
  EXPECT_EQ(layer1.primes[23], 16000463);
  EXPECT_EQ(layer14.primes[23], 16000889);
  EXPECT_EQ(layer1.offsets[23], 368005705);

  std::vector<int64_t> rows(24);
  layer1.rows({0, 2, 2, 2}, rows);
  EXPECT_EQ(rows[0], 5702652);
  EXPECT_EQ(rows[23], 380066193);
  layer1.rows({237, 0, 2, 2}, rows);
  EXPECT_EQ(rows[0], 13754019);
  EXPECT_EQ(rows[23], 377641892);
  layer1.rows({16, 5327, 32356, 237}, rows);
  EXPECT_EQ(rows[0], 3997493);
  EXPECT_EQ(rows[15], 247438726);
  layer14.rows({18307, 9933, 4015, 237}, rows);
  EXPECT_EQ(rows[0], 7066053);
  EXPECT_EQ(rows[23], 376813552);
}

TEST(EngramHashTest, AWrongTableSizeIsRefused) {
  ModelConfig config = flash_engram_config();
  config.engram_num_embeddings[1] += 1;
  const auto hashes = make_engram_hashes(config);
  ASSERT_FALSE(hashes.ok());
  EXPECT_NE(hashes.error().message().find("engram_num_embeddings[1]"), std::string::npos);
}

// docs/spec/model.md A.1.
TEST(RopeTest, FrequenciesAndAnglesOfTheReleasedModel) {
  const auto plain = plain_frequencies(10000, 64);
  const auto compress = yarn_frequencies(160000, 64, {16, 32, 1, 65536});
  const auto near = [](float found, double expected) {
    EXPECT_NEAR(found, expected, std::fabs(expected) * 0x1p-23) << expected;
  };
  near(plain[1], 0.7498942017555237);
  near(plain[8], 0.10000000149011612);
  near(plain[31], 0.0001333521504420787);
  near(compress[1], 0.687656044960022);
  near(compress[15], 0.0036355385091155767);
  near(compress[18], 0.0008496897062286735);
  near(compress[24], 1.953125320142135e-05);
  near(compress[31], 5.680529397977807e-07);

  const auto table = RopeTable::make(compress, 65537);
  ASSERT_TRUE(table.ok());
  EXPECT_NEAR(table->row(127)[2], 0.80668622, 1e-6);
  EXPECT_NEAR(table->row(127)[3], -0.59097999, 1e-6);
  EXPECT_NEAR(table->row(65536)[2], -0.99680597, 1e-6);
  EXPECT_NEAR(table->row(65536)[41], 0.57547122, 1e-6);
}

TEST(SelectTest, TiesGoToTheLowestIndex) {
  const std::vector<float> scores = {1, 3, 3, 2, 3, 0};
  std::vector<int32_t> order(6), rows(2);
  select_top_rows(scores, 2, order, rows);
  EXPECT_EQ(rows, (std::vector<int32_t>{1, 2}));

  const std::vector<float> logits = {0.5f, 0.5f, 0.5f, -1.0f}, bias = {0, 0, 0, 0};
  std::vector<float> scratch(4), weights(2);
  std::vector<int32_t> experts(2);
  route_experts(logits, bias, 1.5f, scratch, experts, weights);
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 1}));
  EXPECT_FLOAT_EQ(weights[0] + weights[1], 1.5f);
}

TEST(SelectTest, ManyScoresGiveWhatSortingThemGives) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (const int64_t size : {4097, 20000, 131072}) {
    for (const int kind : {0, 1, 2}) {  // numbers, few different ones, all the same but for the sign of zero
      std::vector<float> scores(size);
      for (float& score : scores) {
        score = kind == 0   ? normal(rng)
                : kind == 1 ? static_cast<float>(static_cast<int>(rng() % 5) - 2)
                : rng() % 2 ? 0.0f
                            : -0.0f;
      }
      std::vector<int32_t> sorted(size), order(size), rows(512);
      std::iota(sorted.begin(), sorted.end(), 0);
      std::stable_sort(sorted.begin(), sorted.end(),
                       [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
      sorted.resize(512);
      std::sort(sorted.begin(), sorted.end());
      select_top_rows(scores, 512, order, rows);
      EXPECT_EQ(rows, sorted) << size << " scores of kind " << kind;
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(order[i], i);  // every row once
    }
  }
}

TEST(SelectTest, BiasChoosesButDoesNotWeigh) {
  const std::vector<float> logits = {2.0f, 0.0f, 1.0f}, bias = {0.0f, 5.0f, 0.0f};
  std::vector<float> scratch(3), weights(2);
  std::vector<int32_t> experts(2);
  route_experts(logits, bias, 1.0f, scratch, experts, weights);
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 0}));
  EXPECT_LT(weights[0], weights[1]);
}

TEST(SelectTest, TheNewestCandidateBlockIsAlwaysKept) {
  const std::vector<float> scores = {9, 9, 8, 8, 7, 7, 1};
  std::vector<float> block_scores(7);
  std::vector<int32_t> order(7), blocks(2);
  EXPECT_EQ(select_candidate_blocks(scores, 2, 2, block_scores, order, blocks), 2);
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 3}));
}

// docs/spec/model.md 12.1: the canonical block of the released model.
TEST(KvLayoutTest, OffsetsOfTheReleasedModel) {
  ModelConfig config;
  config.num_hidden_layers = 40;
  config.num_nextn_predict_layers = 3;
  config.head_dim = 512;
  config.index_head_dim = 128;
  config.sliding_window = 128;
  config.dspark_block_size = 5;
  config.compress_ratios.assign(43, 2);
  config.compress_ratios[20] = 1;
  config.kv_source_layer_ids = {2, 8, 14, 20};
  const KvLayout layout(config);
  EXPECT_EQ(layout.block_bytes, 113920);
  EXPECT_EQ(layout.groups[1].index_offset, 22784);
  EXPECT_EQ(layout.groups[1].rows_offset, 27136);
  EXPECT_EQ(layout.groups[3].index_offset, 68352);
  EXPECT_EQ(layout.groups[3].rows_offset, 77056);
  EXPECT_EQ(layout.encoder_slots, 402);
  EXPECT_EQ(layout.decoder_slots, 134);
  EXPECT_EQ(layout.compressor_slots, 7);
  // (20 layers x 402 + 23 x 134) x 528 and 3 x 7 x 2 x 512 x 4; the windows are padded to 64 bytes.
  EXPECT_EQ(layout.sequence_state_bytes(), (20 * 402 + 23 * 134) * 528 + 32 + 86016);
}

}  // namespace
}  // namespace deepinfer
