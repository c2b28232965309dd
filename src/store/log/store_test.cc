// The store as its callers see it, on a simulated disk. Test families are those of docs/spec/kv.md 11.
#include "store/store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "store/log/inspect.h"
#include "store/log/store_rig.h"

namespace deepinfer::store {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

class StoreTest : public ::testing::Test {
 protected:
  void open(StoreOptions options = small_options(), uint64_t seed = 1) {
    rig = std::make_unique<Rig>(seed, std::move(options));
    const Status opened = rig->open();
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    tenant = *rig->store->domain("tenant");
  }
  void TearDown() override {
    if (rig != nullptr) {
      EXPECT_EQ(rig->wrong, 0u) << "a wrong block was delivered";
      if (rig->store != nullptr) {
        EXPECT_EQ(rig->store->stats().broken_promises, 0u);
      }
    }
  }
  StoreStats stats() { return rig->store->stats(); }

  std::unique_ptr<Rig> rig;
  uint32_t tenant = 0;
};

TEST_F(StoreTest, WhatWasPutAndFlushedComesBackByteForByteAlsoAfterReopening) {
  open();
  const auto keys = rig->chain(tenant, 1, 40);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  EXPECT_EQ(rig->load(tenant, keys), 40u);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(*rig->store->domain("tenant"), tenant);
  EXPECT_EQ(rig->chain(tenant, 1, 40), keys);
  EXPECT_EQ(rig->load(tenant, keys), 40u);
  EXPECT_EQ(stats().records, 40u);
}

TEST_F(StoreTest, EncryptedBlocksComeBackAndTheirBytesAreNotOnTheDisk) {
  StoreOptions options = small_options();
  options.encrypt = true;
  open(options);
  const auto keys = rig->chain(tenant, 1, 20);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  EXPECT_EQ(rig->load(tenant, keys), 20u);
  const auto [path, at] = *rig->find_record(keys[3]);
  const auto bytes = rig->disk.contents(path);
  const auto plain = payload_of(keys[3], 1000);
  EXPECT_EQ(std::search(bytes.begin(), bytes.end(), plain.begin(), plain.begin() + 16), bytes.end());
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(rig->load(tenant, keys), 20u);
}

// A nonce is never used twice, not over openings either: else what two records differ in would show.
TEST_F(StoreTest, EqualBlocksAreUnequalOnceEncryptedAndSequencesGrowOverOpenings) {
  StoreOptions options = small_options();
  options.encrypt = true;
  open(options);
  const std::vector<std::byte> payload(options.payload_bytes, std::byte{0x33});
  std::vector<std::vector<std::byte>> seen;
  std::vector<uint64_t> sequences;
  for (uint64_t opening = 0; opening < 3; ++opening) {
    for (uint64_t i = 0; i < 2; ++i) {
      const Digest key = test_digest(10 * opening + i);
      ASSERT_EQ(rig->store->put({.domain = tenant, .key = key}, payload), PutResult::kQueued);
      ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
      const auto place = rig->find_record(key);
      ASSERT_TRUE(place);
      const auto bytes = rig->disk.contents(place->first);
      const auto slot = std::span(bytes).subspan(place->second, rig->store->geometry().slot_bytes);
      const auto stored = slot_payload(slot, options.payload_bytes);
      seen.emplace_back(stored.begin(), stored.end());
      sequences.push_back(parse_record(slot)->sequence);
    }
    ASSERT_TRUE(rig->reopen().ok());
  }
  for (size_t i = 0; i < seen.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(seen[i], seen[k]) << i << " " << k;
  for (size_t i = 1; i < sequences.size(); ++i) {
    EXPECT_GT(sequences[i], sequences[i - 1]);
    EXPECT_EQ(sequences[i] / kSequencesPerEpoch, sequences[0] / kSequencesPerEpoch + i / 2);  // each opening has its own
  }
}

TEST_F(StoreTest, OptionsThatCannotWorkAreRefusedByName) {
  const auto refused = [](auto change, std::string_view word) {
    StoreOptions options = small_options();
    change(options);
    Rig rig(1, options);
    const Status status = rig.open();
    ASSERT_FALSE(status.ok()) << word;
    EXPECT_NE(status.error().message().find(word), std::string::npos) << status.error().message();
  };
  refused([](StoreOptions& o) { o.drives.clear(); }, "no drive");
  refused([](StoreOptions& o) { o.fingerprint = {}; }, "fingerprint");
  refused([](StoreOptions& o) { o.master_key = {}; }, "master key");
  refused([](StoreOptions& o) { o.group_bytes[0] = 1; }, "groups");
  refused([](StoreOptions& o) { o.capacity_bytes = 30000; }, "slot");
}

// ---- T02, T03, T32: hits, keys, isolation
// -----------------------------------------------------------------------------

TEST_F(StoreTest, T02_LookupLoadAndCountersReportTheSameHit) {
  open();
  const auto keys = rig->chain(tenant, 1, 30);
  for (size_t stored : {0u, 1u, 7u, 30u}) {
    for (size_t i = 0; i < stored; ++i) (void)rig->put(tenant, keys, i);
    ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
    const uint64_t before = stats().loaded_blocks;
    const Hit hit = rig->store->lookup(tenant, keys, Lineage::kDerived);
    EXPECT_EQ(hit.num_blocks(), stored);
    EXPECT_EQ(rig->load(hit, keys), stored);
    EXPECT_EQ(stats().loaded_blocks - before, stored);
  }
}

TEST_F(StoreTest, T02_AnIdleSessionHitsUntilItsTimeIsOver) {
  open();
  const auto keys = rig->chain(tenant, 1, 5);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  for (const auto idle : {minutes(1), minutes(3), minutes(10), minutes(72 * 60)}) {
    rig->clock.advance(idle);
    rig->store->step();
    EXPECT_EQ(rig->load(tenant, keys), 5u) << idle.count();
  }
  rig->clock.advance(hours(74));
  MissReason reason;
  EXPECT_EQ(rig->load(tenant, keys, &reason), 0u);
  EXPECT_EQ(reason, MissReason::kExpired);
}

TEST_F(StoreTest, T03_BlocksOfAnotherFingerprintAreNeverUsedAndKeepTheirTime) {
  open();
  const auto keys = rig->chain(tenant, 1, 10);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->options.fingerprint = test_digest(98);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(rig->load(tenant, keys), 0u);
  rig->options.fingerprint = test_digest(99);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(rig->load(tenant, keys), 10u);
}

TEST_F(StoreTest, T32_TwoDomainsWithTheSamePromptShareNothing) {
  open();
  const uint32_t other = *rig->store->domain("other");
  const auto mine = rig->chain(tenant, 1, 10), theirs = rig->chain(other, 1, 10);
  for (size_t i = 0; i < 10; ++i) EXPECT_NE(mine[i], theirs[i]);
  ASSERT_TRUE(rig->put_all(tenant, mine).ok());
  EXPECT_EQ(rig->load(other, theirs), 0u);
  // Even somebody who knows a foreign key reads nothing under his own domain.
  MissReason reason;
  EXPECT_EQ(rig->load(other, mine, &reason), 0u);
  EXPECT_EQ(reason, MissReason::kCorrupt);
}

TEST_F(StoreTest, T32_ADeletedDomainIsGoneAtOnceForEverAndItsRoomReturns) {
  open();
  const auto keys = rig->chain(tenant, 1, 30);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  EXPECT_GT(stats().promised_bytes, 0u);
  ASSERT_TRUE(rig->store->delete_domain(tenant).ok());
  EXPECT_EQ(stats().promised_bytes, 0u);
  EXPECT_EQ(rig->store->lookup(tenant, keys, Lineage::kDerived).reason(), MissReason::kDomainGone);
  EXPECT_EQ(rig->put(tenant, keys, 0), PutResult::kRefused);
  EXPECT_EQ(rig->store->chain_key(tenant).error().code(), Code::kNotFound);
  EXPECT_EQ(rig->store->delete_domain(tenant).error().code(), Code::kNotFound);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(stats().records, 0u);
  const uint32_t again = *rig->store->domain("tenant");
  EXPECT_NE(again, tenant);
  EXPECT_NE(rig->chain(again, 1, 1)[0], keys[0]);
}

TEST_F(StoreTest, LineageExactReadsOnlyExactAndAnExactBlockReplacesADerivedOne) {
  open();
  const auto keys = rig->chain(tenant, 1, 2);
  (void)rig->put(tenant, keys, 0);
  EXPECT_EQ(rig->put(tenant, keys, 1, std::nullopt, Lineage::kDerived), PutResult::kQueued);
  ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
  MissReason reason;
  EXPECT_EQ(rig->load(tenant, keys, &reason, Lineage::kExact), 1u);
  EXPECT_EQ(reason, MissReason::kLineage);
  EXPECT_EQ(rig->load(tenant, keys), 2u);
  EXPECT_EQ(rig->put(tenant, keys, 1, std::nullopt, Lineage::kDerived), PutResult::kPresent);
  EXPECT_EQ(rig->put(tenant, keys, 1), PutResult::kQueued);
  ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
  EXPECT_EQ(rig->load(tenant, keys, nullptr, Lineage::kExact), 2u);
  EXPECT_EQ(rig->put(tenant, keys, 1, std::nullopt, Lineage::kDerived), PutResult::kPresent);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(rig->load(tenant, keys, nullptr, Lineage::kExact), 2u);
  EXPECT_EQ(stats().records, 2u);
}

// ---- T05, T34: eviction
// -----------------------------------------------------------------------------------------------

// ---- the machine's clock is set

TEST_F(StoreTest, T34_AClockThatGoesBackCostsNoPromisedBlock) {
  open();
  for (const seconds back : {seconds(1), seconds(61 * 60), seconds(50 * 3600)}) {
    // Just behind the border of an hour, so that one second more is another hour.
    const auto since = rig->clock.wall_now().time_since_epoch() % hours(1);
    rig->clock.advance(hours(1) - since + std::chrono::milliseconds(300));
    const auto keys = rig->chain(tenant, static_cast<uint64_t>(back.count()), 12);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    rig->clock.step_wall(-back);
    EXPECT_EQ(rig->load(tenant, keys), 12u) << back.count();
    for (int step = 0; step < 50; ++step) {
      rig->clock.advance(minutes(30));
      rig->store->step();
    }
    EXPECT_EQ(rig->load(tenant, keys), 12u) << back.count();
    ASSERT_TRUE(rig->reopen().ok());  // what is on the drive was used in the future
    EXPECT_EQ(rig->load(tenant, keys), 12u) << back.count();
    rig->clock.step_wall(back);
    EXPECT_EQ(rig->load(tenant, keys), 12u) << back.count();
    ASSERT_TRUE(rig->reopen().ok());
    EXPECT_EQ(rig->load(tenant, keys), 12u) << back.count();
    EXPECT_EQ(rig->store->stats().broken_promises, 0u);
  }
}

TEST_F(StoreTest, T34_StepsOfTheClockAreCountedAndTimePassesAllTheSame) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->clock.step_wall(-hours(2));
  (void)rig->load(tenant, keys);
  (void)rig->load(tenant, keys);
  EXPECT_EQ(rig->store->stats().clock_steps_back, 1u);  // once, not at each look
  rig->clock.advance(hours(80));           // of which 78 by the machine's clock
  EXPECT_EQ(rig->load(tenant, keys), 0u);
  rig->clock.step_wall(hours(3));
  (void)rig->load(tenant, keys);
  EXPECT_EQ(rig->store->stats().clock_steps_back, 1u);
  rig->clock.step_wall(hours(3));
  (void)rig->load(tenant, keys);
  EXPECT_EQ(rig->store->stats().clock_steps_forward, 1u);
}

TEST_F(StoreTest, T05_APinnedPrefixIsNotEvictedUntilItIsLetGo) {
  open();
  const auto keys = rig->chain(tenant, 1, 10);
  ASSERT_TRUE(rig->put_all(tenant, keys, RetentionClass::kBestEffort).ok());
  {
    const Hit hit = rig->store->lookup(tenant, keys, Lineage::kDerived);
    ASSERT_EQ(hit.num_blocks(), 10u);
    for (uint64_t name = 2; name < 60; ++name)
      (void)rig->put_all(tenant, rig->chain(tenant, name, 10), RetentionClass::kBestEffort);
    EXPECT_GT(stats().evicted, 200u);
    EXPECT_EQ(rig->load(hit, keys), 10u);
  }
  for (uint64_t name = 60; name < 120; ++name)
    (void)rig->put_all(tenant, rig->chain(tenant, name, 10), RetentionClass::kBestEffort);
  EXPECT_LT(rig->load(tenant, keys), 10u);
}

TEST_F(StoreTest, T34_AGuaranteedBlockOutlivesAnyAmountOfBestEffort) {
  open();
  const auto promised = rig->chain(tenant, 1, 40);
  ASSERT_TRUE(rig->put_all(tenant, promised).ok());
  for (int hour = 0; hour < 71; ++hour) {
    for (uint64_t name = 0; name < 4; ++name)
      (void)rig->put_all(tenant, rig->chain(tenant, 100 + static_cast<uint64_t>(hour) * 4 + name, 10),
                         RetentionClass::kBestEffort);
    rig->clock.advance(hours(1));
    rig->store->step();
  }
  EXPECT_GT(stats().evicted, 1000u);
  EXPECT_EQ(rig->load(tenant, promised), 40u);
}

TEST_F(StoreTest, T34_PromisesEndWhereTheShareEndsAndThatIsVisible) {
  open();
  size_t found = 0;
  std::vector<std::vector<Digest>> chains;
  for (uint64_t name = 0; name < 40; ++name) {
    chains.push_back(rig->chain(tenant, name, 10));
    ASSERT_TRUE(rig->put_all(tenant, chains.back()).ok());
  }
  EXPECT_GT(stats().demoted, 0u);
  EXPECT_LE(stats().promised_bytes, stats().promised_limit_bytes);
  for (const auto& chain : chains) found += rig->load(tenant, chain);
  EXPECT_GE(found * 4096, stats().promised_bytes);
}

TEST_F(StoreTest, T34_AQuotaBoundsWhatATenantIsPromised) {
  open();
  ASSERT_TRUE(rig->store->set_quota(tenant, 10 * 4096, RetentionClass::kGuaranteed, 72).ok());
  ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, 1, 25)).ok());
  EXPECT_EQ(stats().promised_bytes, 10u * 4096);
  EXPECT_EQ(stats().demoted, 15u);
  EXPECT_EQ(rig->store->set_quota(tenant, 1 << 20, RetentionClass::kGuaranteed, 72).error().code(),
            Code::kResourceExhausted);
  EXPECT_EQ(rig->store->set_quota(tenant, 4096, RetentionClass::kGuaranteed, 0).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(rig->store->set_quota(77, 4096, RetentionClass::kGuaranteed, 72).error().code(), Code::kNotFound);
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(stats().promised_bytes, 10u * 4096);
  (void)rig->put_all(tenant, rig->chain(tenant, 2, 1));
  EXPECT_EQ(stats().promised_bytes, 10u * 4096);  // the quota came back too
}

TEST_F(StoreTest, T34_AUseRenewsThePromiseAlsoOverARestart) {
  open();
  const auto keys = rig->chain(tenant, 1, 5);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->clock.advance(hours(70));
  EXPECT_EQ(rig->load(tenant, keys), 5u);
  rig->clock.advance(minutes(2));
  rig->store->step();
  ASSERT_TRUE(rig->reopen().ok());
  rig->clock.advance(hours(70));
  rig->store->step();
  EXPECT_EQ(rig->load(tenant, keys), 5u);
}

TEST_F(StoreTest, T34_ExpiredSegmentsAreGivenBackWithoutBeingAsked) {
  open();
  ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, 1, 60)).ok());
  EXPECT_GT(stats().drives[0].used_bytes, 60u * 4096);
  rig->clock.advance(hours(74));
  while (rig->store->step()) {
  }
  EXPECT_EQ(stats().records, 0u);
  EXPECT_EQ(stats().drives[0].used_bytes, 0u);
  EXPECT_EQ(stats().promised_bytes, 0u);
}

TEST_F(StoreTest, T34_UsedBestEffortBlocksAreCopiedForwardWithinTheBudget) {
  open();
  const auto keys = rig->chain(tenant, 1, 4);
  ASSERT_TRUE(rig->put_all(tenant, keys, RetentionClass::kBestEffort).ok());
  for (uint64_t name = 2; name < 200; ++name) {
    ASSERT_EQ(rig->load(tenant, keys), 4u) << name;
    (void)rig->put_all(tenant, rig->chain(tenant, name, 4), RetentionClass::kBestEffort);
  }
  const DriveStats drive = stats().drives[0];
  EXPECT_GT(drive.reinserted_bytes, 0u);
  EXPECT_LE(drive.reinserted_bytes, drive.written_bytes * 3 / 10 + 65536);
}

TEST_F(StoreTest, TheWriteBudgetDropsOneShotsThenBestEffortNeverPromises) {
  StoreOptions options = small_options();
  options.write_budget_bytes_per_day = 20 * 4096;
  open(options);
  const auto keys = rig->chain(tenant, 1, 60);
  for (size_t i = 0; i < 18; ++i)
    ASSERT_EQ(rig->put(tenant, keys, i, RetentionClass::kBestEffort), PutResult::kQueued);
  BlockInfo one_shot;
  one_shot.domain = tenant;
  one_shot.key = test_digest(5);
  one_shot.one_shot = true;
  EXPECT_EQ(rig->store->put(one_shot, payload_of(one_shot.key, 1000)), PutResult::kOverBudget);
  EXPECT_EQ(rig->put(tenant, keys, 18, RetentionClass::kBestEffort), PutResult::kQueued);
  EXPECT_EQ(rig->put(tenant, keys, 19, RetentionClass::kBestEffort), PutResult::kQueued);
  EXPECT_EQ(rig->put(tenant, keys, 20, RetentionClass::kBestEffort), PutResult::kOverBudget);
  EXPECT_EQ(rig->put(tenant, keys, 20), PutResult::kQueued);
  rig->clock.advance(hours(24));
  EXPECT_EQ(rig->put(tenant, keys, 21, RetentionClass::kBestEffort), PutResult::kQueued);
}

// ---- T06: damage
// ------------------------------------------------------------------------------------------------------

TEST_F(StoreTest, T06_EveryByteRegionOfARecordFlippedIsAMissAndTheRestIsRight) {
  const uint64_t regions[] = {0,   10,  14,  20,  30,   40,   70,   100,  113,  118,  140,  150,  185,  189,
                              508, 512, 911, 912, 1211, 1212, 1411, 1412, 1511, 1600, 3840, 3850, 3858, 3900};
  for (const uint64_t region : regions) {
    open();
    const auto keys = rig->chain(tenant, 1, 12);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    const auto [path, at] = *rig->find_record(keys[6]);
    rig->disk.flip_bit(path, at + region);
    MissReason reason;
    EXPECT_EQ(rig->load(tenant, keys, &reason), 6u) << "byte " << region;
    EXPECT_EQ(reason, MissReason::kCorrupt);
    EXPECT_EQ(rig->load(tenant, keys, &reason), 6u);
    EXPECT_EQ(reason, MissReason::kAbsent);  // a tombstone: no second read
    EXPECT_EQ(stats().drives[0].corrupt, 1u);
    ASSERT_EQ(rig->put(tenant, keys, 6), PutResult::kQueued);  // computed anew, stored anew
    ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
    EXPECT_EQ(rig->load(tenant, keys), 12u);
    TearDown();
  }
}

// Sound in itself, every crc right, but it says something else of itself than what was asked for.
TEST_F(StoreTest, T06_ARecordThatSaysSomethingElseOfItselfIsNotUsed) {
  for (int field = 0; field < 6; ++field) {
    open();
    const auto keys = rig->chain(tenant, 1, 3);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    const auto place = rig->find_record(keys[1]);
    ASSERT_TRUE(place);
    auto bytes = rig->disk.contents(place->first);
    const auto slot = std::span(bytes).subspan(place->second, rig->store->geometry().slot_bytes);
    RecordHeader header = *parse_record(slot);
    if (field == 0) header.key[9] ^= std::byte{1};
    if (field == 1) header.fingerprint[3] ^= std::byte{1};
    if (field == 2) ++header.block_index;
    if (field == 3) ++header.domain;
    if (field == 4) header.lineage = Lineage::kDerived;
    if (field == 5) header.kind = RecordKind::kWindowState;
    write_record(slot, header);
    ASSERT_TRUE(parse_record(slot).ok());
    rig->disk.overwrite(place->first, place->second, slot);
    MissReason reason = MissReason::kNone;
    EXPECT_EQ(rig->load(tenant, keys, &reason), 1u) << field;
    EXPECT_EQ(reason, MissReason::kCorrupt) << field;
  }
}

TEST_F(StoreTest, T06_SwappedRecordsAreNotBelieved) {
  open();
  const auto keys = rig->chain(tenant, 1, 8);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  const auto a = *rig->find_record(keys[2]), b = *rig->find_record(keys[5]);
  const auto bytes = rig->disk.contents(a.first);
  rig->disk.overwrite(a.first, a.second, std::span(bytes).subspan(b.second, 4096));
  rig->disk.overwrite(b.first, b.second, std::span(bytes).subspan(a.second, 4096));
  EXPECT_EQ(rig->load(tenant, keys), 2u);
}

TEST_F(StoreTest, T06_ARecordOfAnOlderLifeOfTheSegmentIsNotBelieved) {
  open();
  const auto old_keys = rig->chain(tenant, 1, 13);
  ASSERT_TRUE(rig->put_all(tenant, old_keys, RetentionClass::kBestEffort).ok());
  const auto [path, at] = *rig->find_record(old_keys[0]);
  const auto old_bytes = rig->disk.contents(path);
  uint64_t name = 2;
  std::vector<Digest> new_keys;
  for (; name < 200; ++name) {  // until the file lives anew
    new_keys = rig->chain(tenant, name, 13);
    ASSERT_TRUE(rig->put_all(tenant, new_keys, RetentionClass::kBestEffort).ok());
    const auto found = rig->find_record(new_keys[0]);
    if (found && found->first == path) break;
  }
  ASSERT_LT(name, 200u);
  const auto found = *rig->find_record(new_keys[0]);
  rig->disk.overwrite(path, found.second, std::span(old_bytes).subspan(found.second, 4096));
  EXPECT_EQ(rig->load(tenant, new_keys), 0u);
}

TEST_F(StoreTest, T06_AFooterOfAnOlderGenerationIsIgnoredAtRecovery) {
  open();
  const auto old_keys = rig->chain(tenant, 1, 14);
  ASSERT_TRUE(rig->put_all(tenant, old_keys, RetentionClass::kBestEffort).ok());
  const auto [path, at] = *rig->find_record(old_keys[0]);
  (void)rig->put_all(tenant, rig->chain(tenant, 2, 14), RetentionClass::kBestEffort);  // seals the first
  const auto sealed = rig->disk.contents(path);
  const uint64_t footer = rig->store->geometry().footer_offset();
  std::vector<Digest> keys;
  for (uint64_t name = 3; name < 200; ++name) {
    keys = rig->chain(tenant, name, 5);
    ASSERT_TRUE(rig->put_all(tenant, keys, RetentionClass::kBestEffort).ok());
    const auto found = rig->find_record(keys[0]);
    if (found && found->first == path) break;
  }
  rig->store.reset();
  rig->disk.overwrite(path, footer, std::span(sealed).subspan(footer, 4096));
  ASSERT_TRUE(rig->open().ok());
  EXPECT_EQ(rig->load(tenant, old_keys), 0u);
  EXPECT_EQ(rig->load(tenant, keys), 5u);  // found by its slots
}

TEST_F(StoreTest, T06_FourDamagedRecordsInADayMakeTheDriveReadOnly) {
  open();
  const auto keys = rig->chain(tenant, 1, 30);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  (void)rig->put_all(tenant, rig->chain(tenant, 2, 30));
  for (size_t i = 0; i < 4; ++i) {
    const auto [path, at] = *rig->find_record(keys[i * 3]);
    rig->disk.flip_bit(path, at + 600);
  }
  EXPECT_EQ(rig->store->scrub(1000, rig->clock.now() + seconds(1)), 4u);
  EXPECT_NE(stats().drives[0].state.find("read-only"), std::string::npos);
  EXPECT_EQ(rig->put(tenant, rig->chain(tenant, 9, 1), 0), PutResult::kRefused);
  EXPECT_EQ(rig->load(tenant, rig->chain(tenant, 2, 30)), 30u);
}

// ---- T09, T10, T11, T18: drives that fail or hang
// ---------------------------------------------------------------------

TEST_F(StoreTest, T09_AReadErrorIsAMissThreeOpenTheBreakerAndTimeClosesIt) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->disk.faults.read_error = 1;
  MissReason reason;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rig->load(tenant, keys, &reason), 0u);
    EXPECT_EQ(reason, MissReason::kIo);
  }
  EXPECT_EQ(rig->store->lookup(tenant, keys, Lineage::kDerived).reason(), MissReason::kDriveDown);
  rig->disk.faults = {};
  rig->clock.advance(seconds(6));
  EXPECT_EQ(rig->load(tenant, keys), 3u);
}

TEST_F(StoreTest, T09_AShortReadAndAMissingFileAreMisses) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->disk.faults.short_read = 1;
  EXPECT_EQ(rig->load(tenant, keys), 0u);
  rig->disk.faults = {};
  const std::string path = rig->find_record(keys[0])->first;
  rig->store.reset();
  rig->disk.drop_file(path);
  ASSERT_TRUE(rig->open().ok());
  EXPECT_EQ(rig->load(tenant, keys), 0u);
  EXPECT_EQ(stats().records, 0u);
}

TEST_F(StoreTest, T09_AWriteErrorStopsWritesOfThatDriveOnly) {
  for (const int fault : {0, 1, 2}) {
    open();
    const auto keys = rig->chain(tenant, 1, 5), lost = rig->chain(tenant, 2, 5);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    (fault == 0   ? rig->disk.faults.write_error
     : fault == 1 ? rig->disk.faults.sync_error
                  : rig->disk.faults.short_write) = 1;
    ASSERT_TRUE(rig->put_all(tenant, lost).ok());
    EXPECT_EQ(stats().dropped_error, 5u);
    rig->disk.faults = {};
    EXPECT_EQ(rig->load(tenant, lost), 0u);
    EXPECT_EQ(rig->load(tenant, keys), 5u);
    EXPECT_EQ(rig->put(tenant, lost, 0), PutResult::kRefused);
    EXPECT_NE(stats().drives[0].state.find("read-only"), std::string::npos);
    EXPECT_EQ(stats().queued_bytes, 0u);
    ASSERT_TRUE(rig->reopen().ok());  // the operator looked at it
    EXPECT_EQ(rig->load(tenant, keys), 5u);
    TearDown();
  }
}

TEST_F(StoreTest, T09_AFullDiskDropsNewBlocksKeepsOldOnesAndRecovers) {
  open();
  rig->disk.capacity_bytes = 5 * (1 << 16);
  std::vector<std::vector<Digest>> chains;
  for (uint64_t name = 0; name < 10; ++name) {
    chains.push_back(rig->chain(tenant, name, 10));
    ASSERT_TRUE(rig->put_all(tenant, chains.back()).ok());
  }
  EXPECT_GT(stats().dropped_no_room, 0u);
  EXPECT_TRUE(stats().drives[0].state.starts_with("full")) << stats().drives[0].state;
  EXPECT_LT(stats().projected_retention_s * (10 * 10 * 4096 / 7200.0), 5 * (1 << 16));  // of the room that there is
  EXPECT_EQ(rig->load(tenant, chains[0]), 10u);
  rig->disk.capacity_bytes = UINT64_MAX;
  rig->clock.advance(minutes(2));
  const auto later = rig->chain(tenant, 50, 10);
  ASSERT_TRUE(rig->put_all(tenant, later).ok());
  EXPECT_EQ(rig->load(tenant, later), 10u);
  EXPECT_EQ(stats().drives[0].state, "ok");
}

TEST_F(StoreTest, T10_AHangingReadEndsAtTheDeadlineAndItsMemoryIsQuarantinedUntilItAnswers) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->disk.faults.hang_read = 1;
  const auto before = rig->clock.now();
  MissReason reason;
  EXPECT_EQ(rig->load(tenant, keys, &reason), 0u);
  EXPECT_EQ(reason, MissReason::kDeadline);
  EXPECT_EQ(rig->clock.now() - before, seconds(1));
  EXPECT_EQ(stats().drives[0].quarantined_queues, 1u);
  rig->disk.faults = {};
  EXPECT_EQ(rig->load(tenant, keys), 3u);  // another queue
  rig->disk.release_hung();
  EXPECT_EQ(rig->load(tenant, keys), 3u);
  EXPECT_EQ(stats().drives[0].quarantined_queues, 0u);
}

TEST_F(StoreTest, T10_WhenEveryQueueHangsLoadsMissAtOnce) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->disk.faults.hang_read = 1;
  (void)rig->load(tenant, keys);
  (void)rig->load(tenant, keys);
  const auto before = rig->clock.now();
  MissReason reason;
  EXPECT_EQ(rig->load(tenant, keys, &reason), 0u);
  EXPECT_EQ(reason, MissReason::kDriveDown);
  EXPECT_EQ(rig->clock.now(), before);
  rig->store.reset();  // shutdown works with requests in flight
}

TEST_F(StoreTest, T10_AHangingWriteGivesTheDriveUpAndEverybodyGoesOn) {
  open();
  const auto keys = rig->chain(tenant, 1, 3), lost = rig->chain(tenant, 2, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  rig->disk.faults.hang_write = 1;
  ASSERT_TRUE(rig->put_all(tenant, lost).ok());
  EXPECT_EQ(stats().dropped_error, 3u);
  EXPECT_NE(stats().drives[0].state.find("failed"), std::string::npos);
  EXPECT_EQ(rig->put(tenant, lost, 0), PutResult::kRefused);
  EXPECT_FALSE(rig->store->step());
}

TEST_F(StoreTest, T11_AFullStagingRefusesAtOnceAndNothingLeaksOverADay) {
  open();
  const auto keys = rig->chain(tenant, 1, 60);
  size_t queued = 0, full = 0;
  for (size_t i = 0; i < 60; ++i) ++(rig->put(tenant, keys, i) == PutResult::kQueued ? queued : full);
  EXPECT_EQ(queued, 32u);
  EXPECT_EQ(full, 28u);
  EXPECT_EQ(stats().dropped_full, full);
  ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
  for (int hour = 0; hour < 24; ++hour) {
    (void)rig->put_all(tenant, rig->chain(tenant, 2 + static_cast<uint64_t>(hour), 30),
                       RetentionClass::kBestEffort);
    (void)rig->load(tenant, keys);
    rig->clock.advance(hours(1));
    while (rig->store->step()) {
    }
  }
  EXPECT_EQ(stats().queued_bytes, 0u);
  EXPECT_EQ(stats().drives[0].quarantined_queues, 0u);
  EXPECT_LE(stats().drives[0].used_bytes, stats().drives[0].capacity_bytes);
  EXPECT_LE(rig->disk.allocated_bytes(), 1u << 20);
}

TEST_F(StoreTest, T18_ALateAnswerOfAHungReadReachesNobody) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  size_t calls = 0;
  {
    const Hit hit = rig->store->lookup(tenant, keys, Lineage::kDerived);
    rig->disk.faults.hang_read = 1;
    (void)rig->store->load(hit, 0, rig->clock.now() + seconds(1),
                           [&](size_t, std::span<const std::byte>) { ++calls; });
  }
  rig->disk.faults = {};
  rig->disk.release_hung();
  const auto other = rig->chain(tenant, 2, 3);
  ASSERT_TRUE(rig->put_all(tenant, other).ok());
  EXPECT_EQ(rig->load(tenant, other), 3u);
  EXPECT_EQ(calls, 0u);
}

TEST_F(StoreTest, T17_ADriveThatIsGoneCostsItsBlocksNotTheService) {
  StoreOptions options = small_options();
  options.drives = {"/kv", "/second"};
  open(options);
  std::vector<std::vector<Digest>> chains;
  for (uint64_t name = 0; name < 8; ++name) {
    chains.push_back(rig->chain(tenant, name, 6));
    ASSERT_TRUE(rig->put_all(tenant, chains.back()).ok());
  }
  EXPECT_GT(stats().drives[0].records, 0u);
  EXPECT_GT(stats().drives[1].records, 0u);
  for (const auto& chain : chains) EXPECT_EQ(rig->load(tenant, chain), 6u);
  rig->store.reset();
  for (const std::string& path : rig->disk.files())
    if (path.starts_with("/second")) rig->disk.drop_file(path);
  ASSERT_TRUE(rig->open().ok());
  size_t found = 0;
  for (const auto& chain : chains) found += rig->load(tenant, chain);
  EXPECT_GT(found, 0u);
  EXPECT_LT(found, 48u);
}

// ---- T12, T13: duplicates, several processes
// --------------------------------------------------------------------------

TEST_F(StoreTest, T12_TheSameKeyTwiceIsOneRecordAlsoInABatch) {
  open();
  const auto keys = rig->chain(tenant, 1, 2);
  EXPECT_EQ(rig->put(tenant, keys, 0), PutResult::kQueued);
  EXPECT_EQ(rig->put(tenant, keys, 0), PutResult::kPresent);
  EXPECT_EQ(rig->put(tenant, keys, 1), PutResult::kQueued);
  ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
  EXPECT_EQ(rig->put(tenant, keys, 0), PutResult::kPresent);
  EXPECT_EQ(stats().records, 2u);
  EXPECT_EQ(stats().present, 2u);
}

TEST_F(StoreTest, T13_ASecondWriterIsRefusedAndALaterEpochFencesAnEarlierOne) {
  open();
  auto second = Store::open(rig->options, rig->disk, rig->clock);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  // The directory is taken over although the lock is held (a copy, a broken lock service).
  std::array<std::byte, kHeaderBytes> page;
  DriveMeta meta = *parse_drive_meta(rig->disk.contents("/kv/drive.meta"));
  ++meta.epoch;
  write_drive_meta(page, meta);
  rig->disk.overwrite("/kv/drive.meta", 0, page);
  (void)rig->put_all(tenant, rig->chain(tenant, 1, 10));
  EXPECT_NE(stats().drives[0].state.find("another process took over"), std::string::npos);
  EXPECT_EQ(stats().persisted, 0u);
}

TEST_F(StoreTest, T13_AReaderInAnotherProcessFollowsTheWriter) {
  open();
  const auto first = rig->chain(tenant, 1, 20);
  ASSERT_TRUE(rig->put_all(tenant, first).ok());
  StoreOptions options = rig->options;
  options.mode = StoreMode::kReadOnly;
  auto reader = Store::open(options, rig->disk, rig->clock);
  ASSERT_TRUE(reader.ok()) << reader.error().message();
  const auto blocks = [&](std::span<const Digest> keys) {
    return (*reader)->lookup(tenant, keys, Lineage::kDerived).num_blocks();
  };
  EXPECT_EQ(blocks(first), 20u);
  EXPECT_EQ((*reader)->put({}, payload_of(first[0], 1000)), PutResult::kRefused);
  const auto second = rig->chain(tenant, 2, 30);
  ASSERT_TRUE(rig->put_all(tenant, second).ok());
  EXPECT_EQ(blocks(second), 0u);
  ASSERT_TRUE((*reader)->refresh().ok());
  EXPECT_EQ(blocks(second), 30u);
  const uint32_t fresh = *rig->store->domain("fresh");
  const auto third = rig->chain(fresh, 3, 3);
  ASSERT_TRUE(rig->put_all(fresh, third).ok());
  ASSERT_TRUE((*reader)->refresh().ok());
  EXPECT_EQ((*reader)->lookup(fresh, third, Lineage::kDerived).num_blocks(), 3u);
  for (const std::string& path : rig->disk.files()) EXPECT_EQ(path.find("/lost/"), std::string::npos);
}

// ---- T08: what is left after the end
// ----------------------------------------------------------------------------------

TEST_F(StoreTest, T08_CountersAfterARestartAreThoseOfWhatIsThere) {
  open();
  for (uint64_t name = 0; name < 5; ++name)
    ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, name, 11),
                             name % 2 == 0 ? RetentionClass::kGuaranteed : RetentionClass::kBestEffort)
                    .ok());
  const StoreStats before = stats();
  ASSERT_TRUE(rig->reopen().ok());
  EXPECT_EQ(stats().records, before.records);
  EXPECT_EQ(stats().promised_bytes, before.promised_bytes);
  EXPECT_EQ(stats().records, 55u);
  EXPECT_EQ(stats().drives[0].records, 55u);
}

TEST_F(StoreTest, T08_UnknownFilesAreMovedToLostAndHalfMadeOnesRemoved) {
  open();
  rig->store.reset();
  (void)rig->disk.open("/kv/stranger", OpenMode::kCreate);
  (void)rig->disk.open("/kv/domains.new", OpenMode::kCreate);
  (void)rig->disk.open("/kv/7.seg", OpenMode::kCreate);
  ASSERT_TRUE(rig->open().ok());
  EXPECT_EQ(stats().drives[0].lost_files, 2u);
  size_t lost = 0;
  for (const std::string& path : rig->disk.files()) {
    lost += path.starts_with("/kv/lost/") ? 1 : 0;
    EXPECT_EQ(path.find(".new"), std::string::npos);
  }
  EXPECT_EQ(lost, 2u);
}

TEST_F(StoreTest, T08_ADamagedSegmentHeaderCostsThatSegmentAndTheFileIsUsedAnew) {
  open();
  const auto keys = rig->chain(tenant, 1, 40);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  const std::string path = rig->find_record(keys[0])->first;
  rig->store.reset();
  rig->disk.flip_bit(path, 30);
  ASSERT_TRUE(rig->open().ok());
  EXPECT_EQ(rig->load(tenant, keys), 0u);
  EXPECT_LT(stats().records, 40u);
  for (uint64_t name = 2; name < 20; ++name) (void)rig->put_all(tenant, rig->chain(tenant, name, 10));
  const auto header = parse_segment_header(rig->disk.contents(path));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->state, SegmentState::kUsed);
}

TEST_F(StoreTest, T08_ADamagedOrLostDriveMetaIsMadeAnewFromTheSegments) {
  for (const bool lost : {false, true}) {
    open();
    const auto keys = rig->chain(tenant, 1, 10), more = rig->chain(tenant, 2, 10);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    ASSERT_TRUE(rig->reopen().ok());
    ASSERT_TRUE(rig->put_all(tenant, more).ok());
    rig->store.reset();
    const auto before = *parse_drive_meta(rig->disk.contents("/kv/drive.meta"));
    if (lost)
      rig->disk.drop_file("/kv/drive.meta");
    else
      rig->disk.flip_bit("/kv/drive.meta", 100);
    ASSERT_TRUE(rig->open().ok());
    EXPECT_EQ(rig->load(tenant, keys), 10u);
    EXPECT_EQ(rig->load(tenant, more), 10u);
    const auto after = *parse_drive_meta(rig->disk.contents("/kv/drive.meta"));
    EXPECT_EQ(after.id, before.id);
    EXPECT_GT(after.epoch, before.epoch);  // sequences and generations are never used twice
  }
}

TEST_F(StoreTest, T08_ASegmentOfAnotherVersionIsLeftAlone) {
  open();
  ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, 1, 10)).ok());
  rig->store.reset();
  auto head = rig->disk.contents("/kv/00000000.seg");
  head.resize(kHeaderBytes);
  head[7] = std::byte{9};
  rig->disk.overwrite("/kv/00000000.seg", 0, head);
  ASSERT_TRUE(rig->open().ok());
  for (uint64_t name = 10; name < 40; ++name)  // more than fits
    ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, name, 14), RetentionClass::kBestEffort).ok());
  EXPECT_EQ(rig->disk.contents("/kv/00000000.seg")[7], std::byte{9});
}

// ---- the table of domains

TEST_F(StoreTest, T17_EveryDriveHasTheDomainsAndNoneIsTheFirst) {
  StoreOptions options = small_options();
  options.drives = {"/a", "/b"};
  open(options);
  const auto keys = rig->chain(tenant, 1, 10);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  const auto table = [&](const std::string& drive) { return rig->disk.contents(drive + "/domains"); };
  EXPECT_EQ(table("/a"), table("/b"));
  rig->store.reset();
  for (int round = 0; round < 4; ++round) {
    if (round == 0) rig->disk.drop_file("/a/domains");
    if (round == 1) rig->disk.flip_bit("/b/domains", 40);
    if (round == 2) std::swap(rig->options.drives[0], rig->options.drives[1]);
    ASSERT_TRUE(rig->open().ok()) << round;
    EXPECT_EQ(*rig->store->domain("tenant"), tenant) << round;
    EXPECT_EQ(rig->load(tenant, keys), 10u) << round;
    EXPECT_EQ(table("/a"), table("/b")) << round;  // mended
    rig->store.reset();
  }
}

TEST_F(StoreTest, T17_ADriveThatWasAwayDoesNotBringADeletedDomainBack) {
  StoreOptions options = small_options();
  options.drives = {"/a", "/b"};
  open(options);
  const auto keys = rig->chain(tenant, 1, 10);
  ASSERT_TRUE(rig->put_all(tenant, keys).ok());
  const auto old = rig->disk.contents("/b/domains");
  ASSERT_TRUE(rig->store->delete_domain(tenant).ok());
  rig->store.reset();
  rig->disk.overwrite("/b/domains", 0, old);
  ASSERT_TRUE(rig->open().ok());
  EXPECT_FALSE(rig->store->find_domain("tenant"));
  EXPECT_EQ(rig->load(tenant, keys), 0u);
}

TEST_F(StoreTest, AnInspectorSeesWhatIsGone) {
  open();
  ASSERT_TRUE(rig->put_all(tenant, rig->chain(tenant, 1, 20)).ok());
  rig->store.reset();
  const auto damage = [&] { return inspect_drive(rig->disk, "/kv", {})->damage; };
  const auto table = rig->disk.contents("/kv/domains");
  EXPECT_TRUE(damage().empty());
  ASSERT_TRUE(rig->disk.open("/kv/00000077.seg", OpenMode::kCreate).ok());  // a full file system leaves such a file
  EXPECT_TRUE(damage().empty());

  rig->disk.flip_bit("/kv/domains", 40);
  ASSERT_EQ(damage().size(), 1u);
  EXPECT_EQ(damage()[0].file, "domains");
  const auto file = rig->disk.open("/kv/domains", OpenMode::kReadWrite);
  ASSERT_TRUE(rig->disk.truncate(**file, 0).ok());
  EXPECT_EQ(damage().size(), 1u);
  rig->disk.drop_file("/kv/domains");
  EXPECT_EQ(damage().size(), 1u);
  ASSERT_TRUE(replace_file(rig->disk, "/kv", "domains", table).ok());
  EXPECT_TRUE(damage().empty());

  const auto segment = rig->disk.open("/kv/00000000.seg", OpenMode::kReadWrite);
  ASSERT_TRUE(rig->disk.truncate(**segment, 5 * 4096).ok());
  ASSERT_FALSE(damage().empty());
  EXPECT_NE(damage()[0].what.find("cut"), std::string::npos) << damage()[0].what;
}

TEST_F(StoreTest, LatenciesAndAgesAreThoseOfTheClock) {
  open();
  const auto keys = rig->chain(tenant, 1, 3);
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(rig->put(tenant, keys, i), PutResult::kQueued);
  rig->clock.advance(seconds(2));
  EXPECT_EQ(stats().oldest_queued_s, 2);
  ASSERT_TRUE(rig->store->flush(rig->clock.now()).ok());
  EXPECT_EQ(stats().oldest_queued_s, 0);
  EXPECT_EQ(stats().persist_latency.counts[7], 3u);  // between 1.5 and 6 s
  EXPECT_EQ(stats().persist_latency.sum_s, 6);
  (void)rig->load(tenant, keys);
  EXPECT_EQ(stats().load_latency.counts[0], 1u);
  rig->clock.advance(hours(3));
  EXPECT_EQ(stats().oldest_s[static_cast<size_t>(RetentionClass::kGuaranteed)], 3 * 3600);
  EXPECT_EQ(stats().oldest_s[static_cast<size_t>(RetentionClass::kAgent)], 0);
}

TEST_F(StoreTest, T15_EveryDroppedBlockIsCounted) {
  open();
  uint64_t queued = 0;
  rig->disk.faults.write_error = 0.05;
  for (uint64_t name = 0; name < 50; ++name) {
    const auto keys = rig->chain(tenant, name, 10);
    for (size_t i = 0; i < 10; ++i) queued += rig->put(tenant, keys, i) == PutResult::kQueued ? 1 : 0;
    (void)rig->store->flush(rig->clock.now());
  }
  const StoreStats s = stats();
  EXPECT_EQ(s.persisted + s.dropped_error + s.dropped_no_room, queued);
  EXPECT_GT(s.dropped_error, 0u);
}

TEST_F(StoreTest, ReadFaultsOfEveryKindNeverDeliverAWrongBlock) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    open(small_options(), seed);
    const auto keys = rig->chain(tenant, 1, 30);
    ASSERT_TRUE(rig->put_all(tenant, keys).ok());
    rig->disk.faults = {
        .read_error = 0.02, .short_read = 0.02, .bit_flip = 0.1, .hang_read = 0.01, .reorder = true};
    for (int i = 0; i < 20; ++i) {
      (void)rig->load(tenant, keys);
      rig->clock.advance(seconds(301));
      rig->disk.release_hung();
    }
    TearDown();
  }
}

}  // namespace
}  // namespace deepinfer::store
