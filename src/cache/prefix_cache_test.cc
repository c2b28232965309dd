// The hit function with integers. QA and QB numbers are cases of public bug reports (docs/spec/kv.md 11).
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

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

// Five encoder and five decoder layers.
constexpr WindowGeometry kWindows = {
    .window = 128, .decoder_tail = 140, .encoder_back = 268, .step_back = 6, .encoder_layers = 5, .decoder_layers = 5};
constexpr int64_t kTail = 140, kReach = 5 * 127;

class PrefixCacheTest : public testing::Test {
 protected:
  // What a request leaves behind: its full blocks, published and released, and a state at its end when asked.
  void leave(const std::vector<int32_t>& tokens, bool with_state, uint64_t root = 0, int64_t decoder_first = 0) {
    const auto keys = chain(tokens, root);
    std::vector<BlockId> blocks;
    for (size_t i = 0; i < keys.size(); ++i) {
      blocks.push_back(*cache_.allocate_block());
      cache_.blocks().publish(blocks.back(), keys[i], std::span(tokens).subspan(i * kBlockTokens, kBlockTokens));
    }
    if (with_state) {
      KeptState kept{.position = std::ssize(tokens), .high = std::ssize(tokens), .decoder_first = decoder_first};
      kept.first_block = std::min(std::ssize(keys), cache_.first_block_of(kept.high, 0));
      for (int64_t n = kept.first_block; n <= std::ssize(keys); ++n) {
        kept.keys.push_back(n == 0 ? root_key(root) : keys[static_cast<size_t>(n - 1)]);
      }
      kept.tokens = {tokens.begin() + kept.first_block * kBlockTokens, tokens.end()};
      if (kept.position % kBlockTokens != 0) kept.tail_block = *cache_.allocate_block();
      cache_.keep_state(*cache_.allocate_state(), kept);
    }
    cache_.blocks().release_all(blocks);
  }

  // Of a prompt without turns.
  Hit find(const std::vector<int32_t>& tokens, ContextMode mode = ContextMode::kStable, uint64_t root = 0) {
    return find_from(tokens, first_decoder_row(mode, tokens, {}, kTail), mode, root);
  }
  Hit find_from(const std::vector<int32_t>& tokens, int64_t decoder_first, ContextMode mode = ContextMode::kStable,
                uint64_t root = 0) {
    const auto keys = chain(tokens, root);
    return cache_.find(
        {.tokens = tokens, .root = root_key(root), .keys = keys, .mode = mode, .decoder_first = decoder_first});
  }

  PrefixCache cache_{PrefixCache::Options{.num_blocks = 64, .num_states = 4, .windows = kWindows}};
};
constexpr ContextMode kExact = ContextMode::kExact, kStable = ContextMode::kStable, kBounded = ContextMode::kBounded;

// ---- windows lost ----

TEST_F(PrefixCacheTest, WithoutAStateABoundedHitReplaysOneWindowAndWritesNothingStored) {
  leave(prompt(1000), false);
  const Hit hit = find(prompt(1100), kBounded);
  EXPECT_EQ(hit.tokens, 896);
  EXPECT_EQ(hit.write_first, 896);
  EXPECT_EQ(hit.decoder_first, 1100 - kTail);
  EXPECT_EQ(hit.start, 896 - 128);
  EXPECT_EQ(hit.encoder_first, hit.start);
  EXPECT_TRUE(hit.derived);
  EXPECT_EQ(hit.reason, MissReason::kAbsent);
  // The decoder's tail needs encoder rows from its beginning on.
  const Hit deep = find(prompt(1000), kBounded);
  EXPECT_EQ(deep.tokens, 896);
  EXPECT_EQ(deep.start, 1000 - kTail - 128);
}

TEST_F(PrefixCacheTest, WithoutAStateAStableHitReplaysTheEncodersReachInFrontOfItsDecoderRows) {
  leave(prompt(2000), false);
  const Hit hit = find(prompt(2100));
  EXPECT_EQ(hit.tokens, 1920);
  EXPECT_EQ(hit.start, 1920 - kReach);
  EXPECT_EQ(hit.encoder_first, hit.start);
  EXPECT_EQ(hit.decoder_first, 2100 - kTail);
  EXPECT_FALSE(hit.derived);
  EXPECT_EQ(find(prompt(2000)).start, 2000 - kTail - kReach);
}

TEST_F(PrefixCacheTest, WithoutAStateAnExactHitReplaysTheReachOfAllLayers) {
  leave(prompt(2000, 5), false);
  const Hit hit = find(prompt(2100, 5), kExact);
  EXPECT_EQ(hit.tokens, 1920);
  EXPECT_EQ(hit.start, 1920 - 1270);
  EXPECT_EQ(hit.decoder_first, hit.start);
}

TEST_F(PrefixCacheTest, AReplayFromTheBeginningIsNoHitAndSharesTheBlocksAllTheSame) {
  leave(prompt(700), false);
  for (const ContextMode mode : {kExact, kStable}) {
    const Hit hit = find(prompt(750), mode);
    EXPECT_EQ(hit.tokens, 0);
    EXPECT_EQ(hit.start, 0);
    EXPECT_EQ(hit.encoder_first, 0);
    EXPECT_EQ(hit.write_first, 640);
    EXPECT_EQ(std::ssize(hit.blocks), 5);
    EXPECT_EQ(hit.reason, MissReason::kWindowLost);
  }
}

// ---- where a state serves ----

TEST_F(PrefixCacheTest, AKeptStateIsResumedWhereItStands) {
  leave(prompt(1000), true);
  for (const ContextMode mode : {kExact, kStable, kBounded}) {
    const Hit hit = find(prompt(1500), mode);
    EXPECT_EQ(hit.tokens, 1000);
    EXPECT_EQ(hit.start, 1000);
    EXPECT_TRUE(hit.state.has_value());
    EXPECT_TRUE(hit.tail_block.has_value());
    EXPECT_EQ(std::ssize(hit.blocks), 7);
    EXPECT_FALSE(hit.derived);
  }
}

TEST_F(PrefixCacheTest, ItsRowsOfTheDecoderServeOnlyTheSameStretch) {
  leave(prompt(1000), true, 0, /*decoder_first=*/860);
  EXPECT_EQ(find_from(prompt(1010), 860).start, 1000);
  // Another stretch begins anew, in front of its first row; the encoder's rings reach so far.
  EXPECT_EQ(find_from(prompt(1010), 870).start, 870);
  EXPECT_EQ(find_from(prompt(1010), 871).start, 870);  // a pair is not begun in its middle
  EXPECT_EQ(find_from(prompt(1500), 1200).start, 1000);
  EXPECT_FALSE(find(prompt(1010), kExact).state.has_value());
}

TEST_F(PrefixCacheTest, StretchesThatBeganBeyondTheDecodersReachAreTheSame) {
  leave(prompt(1000), true, 0, /*decoder_first=*/100);
  EXPECT_EQ(find_from(prompt(1010), 238).start, 1000);  // 1000 - 6 * 127 = 238
  EXPECT_EQ(find_from(prompt(1010), 240).start, 0);     // its rings don't reach back so far
}

TEST_F(PrefixCacheTest, APromptThatPartsBeforeAStateResumesTheEncoderWhereItParts) {
  leave(prompt(1000), true, 0, 860);
  for (const int64_t parts : {990, 961, 900, 897, 896, 800, 769, 740, 732}) {
    auto tokens = prompt(1400);
    tokens[static_cast<size_t>(parts)] = 7777;
    const Hit hit = find(tokens);
    // Rows behind the last common block are copied: from the state's own block, or from a cached one of its prefix.
    EXPECT_EQ(hit.start, parts / 2 * 2) << parts;
    EXPECT_EQ(hit.tail_block.has_value(), hit.start % kBlockTokens != 0) << parts;
    EXPECT_EQ(hit.tokens, hit.start) << parts;
  }
  auto tokens = prompt(1400);
  tokens[730] = 7777;  // 1000 - 268 - 1: out of reach
  EXPECT_FALSE(find(tokens).state.has_value());
}

TEST_F(PrefixCacheTest, WithinAStepBackTheWholeStateServes) {
  leave(prompt(1000), true, 0, 860);
  for (int64_t parts = 985; parts < 1000; ++parts) {
    auto tokens = prompt(1010);
    tokens[static_cast<size_t>(parts)] = 7777;
    EXPECT_EQ(find_from(tokens, 860).start, parts >= 994 ? parts : 860) << parts;
  }
}

TEST_F(PrefixCacheTest, RowsThatRefusedDraftsOverwroteAreNotCountedOn) {
  KeptState kept{.position = 1000, .high = 1005, .decoder_first = 860};
  const auto tokens = prompt(1010);
  const auto keys = chain(tokens, 0);
  leave(tokens, false);
  kept.first_block = cache_.first_block_of(kept.high, 0);
  for (int64_t n = kept.first_block; n <= 7; ++n) kept.keys.push_back(keys[static_cast<size_t>(n - 1)]);
  kept.tokens = {tokens.begin() + kept.first_block * kBlockTokens, tokens.begin() + 1000};
  kept.tail_block = *cache_.allocate_block();
  cache_.keep_state(*cache_.allocate_state(), kept);
  EXPECT_EQ(find_from(tokens, 860).start, 1000);
  auto other = tokens;
  other[998] = 7777;  // 1005 - 6 = 999
  EXPECT_EQ(find_from(other, 860).start, 860);
}

// A state that was itself resumed far behind another's end: its short rings hold rows from there on.
TEST_F(PrefixCacheTest, WhatAHitResumesSaysWhatItsRingsHold) {
  leave(prompt(1000), true, 0, 860);
  const Hit step = find_from(prompt(1010), 860);
  EXPECT_EQ(step.start, 1000);
  EXPECT_EQ(step.high, 1000);
  EXPECT_EQ(step.step_first, 0);
  EXPECT_EQ(step.whole_from, 1000 - 128 - 268);
  const Hit far = find_from(prompt(1010), 870);
  EXPECT_EQ(far.start, 870);
  EXPECT_EQ(far.high, 870);
  EXPECT_EQ(far.step_first, 870);
  EXPECT_EQ(far.whole_from, 1000 - 128 - 268);
}

TEST_F(PrefixCacheTest, WithoutTheirFullBlocksStatesServeNothing) {
  leave(prompt(1000), true);
  std::vector<BlockId> all;
  while (cache_.blocks().num_available() > 0) all.push_back(*cache_.blocks().allocate());
  const Hit hit = find(prompt(1500));
  EXPECT_EQ(hit.start, 0);
  EXPECT_EQ(hit.reason, MissReason::kEvicted);
}

TEST_F(PrefixCacheTest, AStateOfTheSamePrefixAndStretchTakesTheOthersPlace) {
  leave(prompt(1000), true, 0, 860);
  leave(prompt(1000), true, 0, 860);
  EXPECT_EQ(cache_.num_kept_states(), 1);
  leave(prompt(1000), true, 0, 0);
  EXPECT_EQ(cache_.num_kept_states(), 2);
  cache_.drop_kept_states();
  EXPECT_EQ(cache_.num_kept_states(), 0);
  EXPECT_EQ(cache_.blocks().num_used(), 0);
}

TEST_F(PrefixCacheTest, RunningSequencesTakeTheStateThatWasUsedLeastRecently) {
  for (int32_t seed = 0; seed < 4; ++seed) leave(prompt(200, seed), true);
  cache_.use(find(prompt(300, 0)));  // touches the oldest
  ASSERT_TRUE(cache_.allocate_state().ok());
  EXPECT_TRUE(find(prompt(300, 0)).state.has_value());
  EXPECT_FALSE(find(prompt(300, 1)).state.has_value());
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

TEST_F(PrefixCacheTest, ABlockThatSeveralStatesHoldIsAvailableToo) {
  leave(prompt(60), true);
  KeptState other{.position = 50, .high = 60, .keys = {root_key(0)}, .tokens = prompt(50)};
  other.tail_block = BlockId{0};
  std::vector<BlockId> all;
  for (int i = 0; i < 63; ++i) all.push_back(*cache_.allocate_block());
  while (cache_.blocks().references(*other.tail_block) != 1 || std::count(all.begin(), all.end(), *other.tail_block) > 0) {
    other.tail_block = static_cast<BlockId>(static_cast<int32_t>(*other.tail_block) + 1);
  }
  cache_.blocks().add_ref(*other.tail_block);
  cache_.keep_state(*cache_.allocate_state(), other);
  EXPECT_EQ(cache_.num_available_blocks(), 1);
  EXPECT_TRUE(cache_.allocate_block().ok());
  EXPECT_EQ(cache_.num_kept_states(), 0);
}

// ---- cases ----

TEST_F(PrefixCacheTest, QA3_PromptsOfFewBlocksHit) {
  leave(prompt(128), true);
  EXPECT_EQ(find(prompt(129), kExact).tokens, 128);
  leave(prompt(40, 3), true);
  EXPECT_EQ(find(prompt(41, 3), kExact).tokens, 40);
}

TEST_F(PrefixCacheTest, QA4_QA14_WhatWasWrittenIsHitTheSecondTime) {
  EXPECT_EQ(find(prompt(900)).tokens, 0);
  leave(prompt(900), false);
  EXPECT_EQ(find(prompt(900)).tokens, 896);
}

TEST_F(PrefixCacheTest, QA5_ALostStateMakesTheHitZeroOnlyWhereAReplayWouldRunEveryRow) {
  leave(prompt(900), true);
  cache_.drop_kept_states();
  EXPECT_EQ(find(prompt(950)).tokens, 896);
  EXPECT_EQ(find(prompt(950), kBounded).tokens, 896);
}

TEST_F(PrefixCacheTest, QA6_PromptsThatDivergeInTheLastBlockShareTheBlocksBefore) {
  auto first = prompt(500), second = prompt(800);
  second[450] = 7777;
  leave(first, true);
  EXPECT_EQ(find(second).tokens, 450);  // and its rows
  second[100] = 7777;
  EXPECT_EQ(find(second).tokens, 0);
}

TEST_F(PrefixCacheTest, QA12_AHitInsideABlockReplaysFromTheBlocksEnd) {
  leave(prompt(255), true, 0, 255 - kTail);
  EXPECT_EQ(find(prompt(600), kBounded).start, 255);
  cache_.drop_kept_states();
  for (const int64_t length : {256, 257, 383, 384, 385, 600}) {
    const Hit hit = find(prompt(length), kBounded);
    EXPECT_EQ(hit.tokens, 128);
    EXPECT_EQ(hit.write_first, 128);
    EXPECT_EQ(hit.start, std::max<int64_t>(0, std::min<int64_t>(128, length - kTail) - 128));
  }
}

TEST_F(PrefixCacheTest, QA15_AStateIsUsedOnlyForThePrefixItHasSeen) {
  auto tokens = prompt(200);
  leave(tokens, true);
  tokens[190] = 7777;  // inside the tail that the state has seen
  tokens.resize(400, 1);
  EXPECT_EQ(find(tokens).start, 190);
  EXPECT_FALSE(find(tokens, kExact).state.has_value());
}

TEST_F(PrefixCacheTest, QA17_AppendOnlyChatsHitAllTheyHaveSaid) {
  auto tokens = prompt(300);
  for (int turn = 0; turn < 10; ++turn) {
    leave(tokens, true);
    const int64_t said = std::ssize(tokens);
    const auto more = prompt(37 + turn, 50 + turn);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_EQ(find(tokens, kExact).tokens, said);
    EXPECT_EQ(find_from(tokens, 0).tokens, said);
  }
}

TEST_F(PrefixCacheTest, QA18_BlocksHitWithoutTheirStates) {
  leave(prompt(1000), true);
  cache_.drop_kept_states();
  EXPECT_EQ(find(prompt(1000)).tokens, 896);
}

TEST_F(PrefixCacheTest, QA19_APromptThatIsWhollyCachedStillComputesAToken) {
  for (const int64_t length : {127, 128, 129, 256, 384, 512}) {
    leave(prompt(length), true);
    for (const ContextMode mode : {kExact, kStable, kBounded}) {
      const Hit hit = find(prompt(length), mode);
      EXPECT_LT(hit.start, length);
      EXPECT_LT(hit.tokens, length);
    }
    EXPECT_EQ(find(prompt(length), kExact).start, length - 1);
  }
}

TEST_F(PrefixCacheTest, QA21_EveryMissHasAReason) {
  EXPECT_EQ(find(prompt(100)).reason, MissReason::kTooShort);
  EXPECT_EQ(find(prompt(300)).reason, MissReason::kAbsent);
  leave(prompt(1300), false);
  EXPECT_EQ(find(prompt(1281)).reason, MissReason::kNone);
  std::vector<BlockId> all;
  while (cache_.blocks().num_available() > 0) all.push_back(*cache_.allocate_block());
  EXPECT_EQ(find(prompt(257)).reason, MissReason::kEvicted);
}

TEST_F(PrefixCacheTest, QB9_OtherSaltsShareNothing) {
  leave(prompt(1000), true, /*root=*/1);
  EXPECT_EQ(find(prompt(1100), kStable, 2).tokens, 0);
  EXPECT_EQ(find(prompt(1200), kStable, 1).tokens, 1000);
  leave(prompt(50), true, 1);
  EXPECT_EQ(find(prompt(60), kStable, 2).tokens, 0);
}

}  // namespace
}  // namespace deepinfer
