// The hit function with integers. QA and QB numbers are cases of public bug reports (docs/spec/kv.md 11).
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

using std::chrono::seconds;

// Chain keys that depend on every token before them, as real ones do.
std::vector<PrefixKey> chain(std::span<const int32_t> tokens, uint64_t root) {
  std::vector<PrefixKey> keys;
  uint64_t hash = root;
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    hash = (hash ^ static_cast<uint64_t>(tokens[i] + 1)) * 0x9E3779B97F4A7C15u + 1;
    if ((i + 1) % kBlockTokens != 0) continue;
    PrefixKey key = {};
    std::memcpy(key.data(), &hash, sizeof(hash));
    keys.push_back(key);
  }
  return keys;
}

PrefixKey root_key(uint64_t root) {
  PrefixKey key = {};
  key[31] = std::byte{1};
  std::memcpy(key.data(), &root, sizeof(root));
  return key;
}

std::vector<int32_t> prompt(int64_t count, int32_t seed = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>((i * 31 + seed) % 1000);
  return tokens;
}

constexpr int64_t kWindow = 128, kTail = 140;

class PrefixCacheTest : public testing::Test {
 protected:
  // What a request leaves behind: its full blocks, published and released, and a state at its end when asked.
  void leave(const std::vector<int32_t>& tokens, bool with_state, uint64_t root = 0,
             Lineage lineage = Lineage::kExact, int64_t decoder_first = 0) {
    const auto keys = chain(tokens, root);
    std::vector<BlockId> blocks;
    for (size_t i = 0; i < keys.size(); ++i) {
      blocks.push_back(*cache_.allocate_block());
      cache_.blocks().publish(blocks.back(), keys[i], std::span(tokens).subspan(i * kBlockTokens, kBlockTokens), lineage);
    }
    if (with_state) {
      KeptState kept{.key = keys.empty() ? root_key(root) : keys.back(),
                     .position = std::ssize(tokens),
                     .tail = {tokens.begin() + static_cast<int64_t>(keys.size()) * kBlockTokens, tokens.end()},
                     .lineage = lineage,
                     .decoder_first = decoder_first};
      if (!kept.tail.empty()) kept.tail_block = *cache_.allocate_block();
      cache_.keep_state(*cache_.allocate_state(), kept, now_);
    }
    cache_.blocks().release_all(blocks);
  }

  Hit find(const std::vector<int32_t>& tokens, bool exact, uint64_t root = 0) {
    const auto keys = chain(tokens, root);
    return cache_.find({.tokens = tokens,
                        .root = root_key(root),
                        .keys = keys,
                        .exact = exact,
                        .window = kWindow,
                        .reach = 1270,
                        .decoder_tail = kTail});
  }

  PrefixCache cache_{PrefixCache::Options{.num_blocks = 64, .num_states = 4}};
  Clock::time_point now_;
};

TEST_F(PrefixCacheTest, WithoutAStateABoundedHitReplaysOneWindowAndWritesNothingStored) {
  leave(prompt(1000), false);
  const Hit hit = find(prompt(1100), false);
  EXPECT_EQ(hit.tokens, 896);
  EXPECT_EQ(hit.write_first, 896);
  EXPECT_EQ(hit.decoder_first, 1100 - kTail);
  EXPECT_EQ(hit.start, 896 - kWindow);
  EXPECT_EQ(hit.encoder_first, hit.start);
  EXPECT_EQ(hit.lineage, Lineage::kDerived);
  EXPECT_EQ(hit.reason, MissReason::kAbsent);
  // The decoder's tail needs encoder rows from its beginning on.
  const Hit deep = find(prompt(1000), false);
  EXPECT_EQ(deep.tokens, 896);
  EXPECT_EQ(deep.start, 1000 - kTail - kWindow);
}

TEST_F(PrefixCacheTest, AKeptStateIsResumedExactlyWhereItStands) {
  leave(prompt(1000), true);
  for (const bool exact : {false, true}) {
    const Hit hit = find(prompt(1500), exact);
    EXPECT_EQ(hit.tokens, 1000);
    EXPECT_EQ(hit.start, 1000);
    EXPECT_TRUE(hit.state.has_value());
    EXPECT_TRUE(hit.tail_block.has_value());
    EXPECT_EQ(std::ssize(hit.blocks), 7);
    EXPECT_EQ(hit.lineage, Lineage::kExact);
    EXPECT_TRUE(hit.same_as_cold);
  }
}

TEST_F(PrefixCacheTest, ExactModeWithoutItsWindowsReplaysTheReachOrNothing) {
  leave(prompt(1000), false);
  const Hit lost = find(prompt(1100), true);
  EXPECT_EQ(lost.tokens, 0);
  EXPECT_EQ(lost.start, 0);
  EXPECT_TRUE(lost.blocks.empty());
  EXPECT_EQ(lost.reason, MissReason::kWindowLost);
  leave(prompt(2000, 5), false);
  const Hit replayed = find(prompt(2100, 5), true);
  EXPECT_EQ(replayed.tokens, 1920);
  EXPECT_EQ(replayed.start, 1920 - 1270);
  EXPECT_EQ(replayed.decoder_first, replayed.start);
  EXPECT_EQ(replayed.lineage, Lineage::kExact);
}

TEST_F(PrefixCacheTest, ExactRequestsNeverReadDerivedBlocks) {
  leave(prompt(2000), true, 0, Lineage::kDerived);
  EXPECT_GT(find(prompt(2100), false).tokens, 0);
  const Hit hit = find(prompt(2100), true);
  EXPECT_EQ(hit.tokens, 0);
  EXPECT_FALSE(hit.state.has_value());
  EXPECT_EQ(hit.reason, MissReason::kLineage);
}

TEST_F(PrefixCacheTest, AStateWithACutDecoderServesNoExactRequestAndNoShorterTail) {
  leave(prompt(1000), true, 0, Lineage::kExact, 860);
  EXPECT_FALSE(find(prompt(1010), true).state.has_value());
  EXPECT_TRUE(find(prompt(1010), false).state.has_value());
  EXPECT_FALSE(find(prompt(1010), false).same_as_cold);
  EXPECT_TRUE(find(prompt(1500), false).same_as_cold);  // its tail does not reach back to the state
}

TEST_F(PrefixCacheTest, StatesExpireAndGiveTheirTailBlockBack) {
  leave(prompt(200), true);
  const int64_t used = cache_.blocks().num_used();
  EXPECT_EQ(used, 1);
  EXPECT_EQ(cache_.num_available_blocks(), 64);
  cache_.expire_states(now_ + seconds(179));
  EXPECT_EQ(cache_.num_kept_states(), 1);
  cache_.expire_states(now_ + seconds(180));
  EXPECT_EQ(cache_.num_kept_states(), 0);
  EXPECT_EQ(cache_.blocks().num_used(), 0);
}

TEST_F(PrefixCacheTest, RunningSequencesTakeTheStateThatWasUsedLeastRecently) {
  for (int32_t seed = 0; seed < 4; ++seed) leave(prompt(200, seed), true);
  cache_.use(find(prompt(300, 0), false), now_);  // touches the oldest
  ASSERT_TRUE(cache_.allocate_state().ok());
  EXPECT_TRUE(find(prompt(300, 0), false).state.has_value());
  EXPECT_FALSE(find(prompt(300, 1), false).state.has_value());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache_.allocate_state().ok());
  EXPECT_EQ(cache_.allocate_state().error().code(), Code::kResourceExhausted);
}

TEST_F(PrefixCacheTest, BlocksThatOnlyStatesHoldAreGivenUpLast) {
  leave(prompt(60), true);
  std::vector<BlockId> all;
  for (int i = 0; i < 63; ++i) all.push_back(*cache_.allocate_block());
  EXPECT_EQ(cache_.num_kept_states(), 1);
  ASSERT_TRUE(cache_.allocate_block().ok());
  EXPECT_EQ(cache_.num_kept_states(), 0);
  EXPECT_FALSE(cache_.allocate_block().ok());
}

// ---- cases ----

TEST_F(PrefixCacheTest, QA3_PromptsOfFewBlocksHit) {
  leave(prompt(128), false);
  EXPECT_EQ(find(prompt(129), false).tokens, 128);
  leave(prompt(40, 3), true);
  EXPECT_EQ(find(prompt(41, 3), true).tokens, 40);
}

TEST_F(PrefixCacheTest, QA4_QA14_WhatWasWrittenIsHitTheSecondTime) {
  EXPECT_EQ(find(prompt(900), false).tokens, 0);
  leave(prompt(900), false);
  EXPECT_EQ(find(prompt(900), false).tokens, 896);
}

TEST_F(PrefixCacheTest, QA5_ALostStateNeverMakesTheHitZero) {
  leave(prompt(900), true);
  cache_.drop_kept_states();
  EXPECT_EQ(find(prompt(950), false).tokens, 896);
}

TEST_F(PrefixCacheTest, QA6_PromptsThatDivergeInTheLastBlockShareTheBlocksBefore) {
  auto first = prompt(500), second = prompt(500);
  second[450] = 7777;
  leave(first, true);
  EXPECT_EQ(find(second, false).tokens, 384);
  second[100] = 7777;
  EXPECT_EQ(find(second, false).tokens, 0);
}

TEST_F(PrefixCacheTest, QA12_AHitInsideABlockReplaysFromTheBlocksEnd) {
  leave(prompt(255), true, 0, Lineage::kExact, 255 - kTail);
  const Hit kept = find(prompt(600), false);
  EXPECT_EQ(kept.start, 255);
  cache_.drop_kept_states();
  for (const int64_t length : {256, 257, 383, 384, 385, 600}) {
    const Hit hit = find(prompt(length), false);
    EXPECT_EQ(hit.tokens, 128);
    EXPECT_EQ(hit.write_first, 128);
    EXPECT_EQ(hit.start, std::max<int64_t>(0, std::min<int64_t>(128, length - kTail) - kWindow));
  }
}

TEST_F(PrefixCacheTest, QA15_AStateIsUsedOnlyForItsWholePrefix) {
  auto tokens = prompt(200);
  leave(tokens, true);
  tokens[190] = 7777;  // inside the tail that the state has seen
  tokens.resize(300, 1);
  EXPECT_FALSE(find(tokens, true).state.has_value());
}

TEST_F(PrefixCacheTest, QA17_AppendOnlyChatsHitAllTheyHaveSaid) {
  auto tokens = prompt(300);
  for (int turn = 0; turn < 10; ++turn) {
    leave(tokens, true);
    const int64_t said = std::ssize(tokens);
    const auto more = prompt(37 + turn, 50 + turn);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_EQ(find(tokens, true).tokens, said);
  }
}

TEST_F(PrefixCacheTest, QA18_AfterTheStatesExpiredTheBlocksStillHit) {
  leave(prompt(1000), true);
  cache_.expire_states(now_ + seconds(3600));
  EXPECT_EQ(find(prompt(1000), false).tokens, 896);
}

TEST_F(PrefixCacheTest, QA19_APromptThatIsWhollyCachedStillComputesAToken) {
  for (const int64_t length : {127, 128, 129, 256, 384, 512}) {
    leave(prompt(length), true);
    for (const bool exact : {false, true}) {
      const Hit hit = find(prompt(length), exact);
      EXPECT_LT(hit.start, length);
      EXPECT_LT(hit.tokens, length);
    }
  }
}

TEST_F(PrefixCacheTest, QA21_EveryMissHasAReason) {
  EXPECT_EQ(find(prompt(100), false).reason, MissReason::kTooShort);
  EXPECT_EQ(find(prompt(300), false).reason, MissReason::kAbsent);
  leave(prompt(300), false);
  EXPECT_EQ(find(prompt(257), false).reason, MissReason::kNone);
  std::vector<BlockId> all;
  while (cache_.blocks().num_available() > 0) all.push_back(*cache_.allocate_block());
  EXPECT_EQ(find(prompt(257), false).reason, MissReason::kEvicted);
}

TEST_F(PrefixCacheTest, QB9_OtherSaltsShareNothing) {
  leave(prompt(1000), true, /*root=*/1);
  EXPECT_EQ(find(prompt(1100), false, 2).tokens, 0);
  EXPECT_EQ(find(prompt(1100), false, 1).tokens, 1000);
  leave(prompt(50), true, 1);
  EXPECT_EQ(find(prompt(60), false, 2).tokens, 0);
}

}  // namespace
}  // namespace deepinfer
