#include "cache/block_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace deepinfer {
namespace {

PrefixKey key_of(uint32_t number) {
  PrefixKey key = {};
  std::memcpy(key.data(), &number, sizeof(number));
  return key;
}

std::vector<int32_t> tokens_of(int32_t number) { return std::vector<int32_t>(kBlockTokens, number); }

class BlockCacheTest : public testing::Test {
 protected:
  BlockId publish(int32_t number) {
    const BlockId block = *cache_.allocate();
    cache_.publish(block, key_of(number), tokens_of(number));
    return block;
  }
  bool holds(int32_t number) { return cache_.find(key_of(number), tokens_of(number)).has_value(); }

  BlockCache cache_{4};
};

TEST_F(BlockCacheTest, AReleasedBlockIsFoundUntilItsRoomIsNeeded) {
  const BlockId block = publish(1);
  cache_.release(block);
  EXPECT_EQ(cache_.num_cached(), 1);
  EXPECT_EQ(cache_.num_available(), 4);
  ASSERT_TRUE(holds(1));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache_.allocate().ok());
  EXPECT_TRUE(holds(1));
  EXPECT_FALSE(cache_.was_evicted(key_of(1)));
  EXPECT_EQ(*cache_.allocate(), block);
  EXPECT_FALSE(holds(1));
  EXPECT_TRUE(cache_.was_evicted(key_of(1)));
  EXPECT_EQ(cache_.allocate().error().code(), Code::kResourceExhausted);
}

TEST_F(BlockCacheTest, TheTailOfAChainGoesBeforeItsBeginning) {
  const std::vector<BlockId> chain = {publish(1), publish(2), publish(3)};
  cache_.release_all(chain);
  ASSERT_TRUE(cache_.allocate().ok());  // the free one
  for (const int32_t gone : {3, 2, 1}) {
    ASSERT_TRUE(holds(gone));
    ASSERT_TRUE(cache_.allocate().ok());
    EXPECT_FALSE(holds(gone));
  }
}

TEST_F(BlockCacheTest, AUsedBlockIsNeverGivenAway) {
  const BlockId block = publish(1);
  cache_.release(block);
  cache_.add_ref(block);
  EXPECT_EQ(cache_.num_cached(), 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache_.allocate().ok());
  EXPECT_FALSE(cache_.allocate().ok());
  EXPECT_TRUE(holds(1));
}

TEST_F(BlockCacheTest, TheFirstHolderOfAKeyKeepsIt) {
  const BlockId first = publish(1);
  const BlockId second = publish(1);
  EXPECT_EQ(cache_.find(key_of(1), tokens_of(1)), first);
  cache_.release(second);
  EXPECT_EQ(cache_.num_free(), 3);
  EXPECT_EQ(cache_.find(key_of(1), tokens_of(1)), first);
}

TEST_F(BlockCacheTest, QB6_ACollisionOfKeysIsNoHit) {
  publish(1);
  EXPECT_FALSE(cache_.find(key_of(1), tokens_of(2)).has_value());
}

TEST_F(BlockCacheTest, RandomUseNeverLosesABlock) {
  std::mt19937 rng(11);
  BlockCache cache(40);
  std::vector<std::vector<BlockId>> sequences;
  for (int step = 0; step < 20'000; ++step) {
    if (rng() % 2 == 0 && cache.num_available() >= 6) {
      std::vector<BlockId> blocks;
      // Sequences share beginnings: the first blocks come from few keys.
      const uint32_t family = rng() % 4;
      for (uint32_t i = 0; i < 1 + rng() % 6; ++i) {
        const auto number = static_cast<int32_t>(family * 100 + i);
        if (const auto found = cache.find(key_of(number), tokens_of(number))) {
          cache.add_ref(*found);
          blocks.push_back(*found);
          continue;
        }
        blocks.push_back(*cache.allocate());
        if (rng() % 3 != 0) {
          cache.publish(blocks.back(), key_of(number), tokens_of(number));
        }
      }
      sequences.push_back(std::move(blocks));
    } else if (!sequences.empty()) {
      const size_t pick = rng() % sequences.size();
      cache.release_all(sequences[pick]);
      sequences.erase(sequences.begin() + static_cast<int64_t>(pick));
    }
    std::set<BlockId> used;
    for (const auto& blocks : sequences) used.insert(blocks.begin(), blocks.end());
    ASSERT_EQ(cache.num_used(), std::ssize(used));
    ASSERT_EQ(cache.num_free() + cache.num_cached() + cache.num_used(), 40);
  }
  for (const auto& blocks : sequences) cache.release_all(blocks);
  EXPECT_EQ(cache.num_available(), 40);
}

}  // namespace
}  // namespace deepinfer
