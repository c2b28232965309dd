// States as bytes: what comes back is what went in, on rings of any phase, and nothing else is taken.
#include "model/sequence_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace deepinfer {
namespace {

class SequenceStateTest : public testing::Test {
 protected:
  static ModelConfig config() {
    ModelConfig config;
    config.num_hidden_layers = 4;
    config.num_nextn_predict_layers = 1;
    config.head_dim = 64;
    config.index_head_dim = 32;
    config.sliding_window = 16;
    config.dspark_block_size = 5;
    config.compress_ratios = {0, 2, 1, 1, 0};
    config.kv_source_layer_ids = {1, 2};
    return config;
  }
  SequenceStateTest() : layout_(config()) {}

  // Every row, entry and id says where it belongs.
  Sequence filled(int64_t length) {
    Sequence sequence = *Sequence::make(layout_, 0);
    sequence.start(0, {}, {});
    for (int64_t p = std::max<int64_t>(0, length - 500); p < length; ++p) {
      for (int64_t layer = 0; layer < layout_.num_window_layers; ++layer) {
        std::memset(sequence.window_row(layer, p), static_cast<int>((layer * 31 + p * 7) & 0xFF),
                    static_cast<size_t>(layout_.window_row_bytes));
      }
      for (int64_t i = 0; i < layout_.compressor_entry_floats; ++i) {
        sequence.compressor_entry(0, p)[i] = static_cast<float>(p * 1000 + i);
      }
      sequence.engram_id(p) = static_cast<int32_t>(p + 5);
    }
    return sequence;
  }
  std::vector<std::byte> bytes_of(const Sequence& sequence, const StateExtent& extent) {
    std::vector<std::byte> bytes(static_cast<size_t>(serialized_state_bytes(layout_, extent)));
    serialize_state(layout_, sequence, extent, bytes);
    return bytes;
  }
  StateExtent random_extent(std::mt19937& rng, int64_t length) {
    const auto most = [&](int64_t limit) { return static_cast<int64_t>(rng() % (std::min(length, limit) + 1)); };
    return {.position = length,
            .encoder_rows = most(layout_.encoder_slots),
            .decoder_rows = most(layout_.decoder_slots),
            .pair_entries = most(layout_.compressor_slots),
            .engram_ids = most(layout_.num_engram_ids())};
  }

  KvLayout layout_;
};

TEST_F(SequenceStateTest, WhatComesBackIsWhatWentIn) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    const int64_t length = 1 + rng() % 900;
    const Sequence from = filled(length);
    const StateExtent extent = random_extent(rng, length);
    const auto bytes = bytes_of(from, extent);
    Sequence to = filled(1 + rng() % 900);  // of another past
    const auto restored = restore_state(layout_, bytes, to);
    ASSERT_TRUE(restored.ok()) << restored.error().message();
    EXPECT_EQ(*restored, extent);
    EXPECT_EQ(to.length, length);
    for (int64_t layer = 0; layer < layout_.num_window_layers; ++layer) {
      const int64_t rows = layer < layout_.windows.encoder_layers ? extent.encoder_rows : extent.decoder_rows;
      for (int64_t p = length - rows; p < length; ++p) {
        ASSERT_EQ(std::memcmp(to.window_row(layer, p), from.window_row(layer, p), static_cast<size_t>(layout_.window_row_bytes)), 0);
      }
    }
    for (int64_t p = length - extent.pair_entries; p < length; ++p) {
      ASSERT_EQ(to.compressor_entry(0, p)[1], from.compressor_entry(0, p)[1]);
    }
    for (int64_t p = length - extent.engram_ids; p < length; ++p) ASSERT_EQ(to.engram_id(p), from.engram_id(p));
    // The bytes say nothing of the ring they came from.
    EXPECT_EQ(bytes_of(to, extent), bytes);
  }
}

TEST_F(SequenceStateTest, EveryFlippedBitAndEveryTruncationIsRefused) {
  std::mt19937 rng(1);
  const Sequence from = filled(300);
  const auto bytes = bytes_of(from, {.position = 300, .encoder_rows = 3, .decoder_rows = 2, .pair_entries = 1, .engram_ids = 3});
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= static_cast<std::byte>(1u << (rng() % 8));
    ASSERT_FALSE(read_state_extent(layout_, damaged).ok()) << "byte " << i;
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(read_state_extent(layout_, std::span(bytes).first(size)).ok()) << size;
  }
}

TEST_F(SequenceStateTest, AStateOfAnotherModelIsNamed) {
  const auto bytes = bytes_of(filled(300), {.position = 300, .encoder_rows = 3});
  ModelConfig other = config();
  other.compress_ratios = {0, 2, 2, 1, 0};
  other.kv_source_layer_ids = {1, 3};
  const auto read = read_state_extent(KvLayout(other), bytes);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message().find("encoder layers: found 2, expected 3"), std::string::npos) << read.error().message();
  Sequence untouched = filled(20);
  EXPECT_FALSE(restore_state(KvLayout(other), bytes, untouched).ok());
  EXPECT_EQ(untouched.length, 0);
}

}  // namespace
}  // namespace deepinfer
