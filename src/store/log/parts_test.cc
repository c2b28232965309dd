// Index, promises, domains: each alone.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/tenants/domains.h"
#include "store/log/index.h"
#include "store/tenants/promises.h"
#include "store/log/store_rig.h"

namespace deepinfer::store {
namespace {

IndexEntry entry_at(uint32_t segment, uint32_t slot) {
  IndexEntry entry;
  entry.at = {segment, slot};
  entry.retention = static_cast<RetentionClass>(slot % 4);
  entry.lineage = static_cast<Lineage>(slot % 2);
  entry.hits = static_cast<uint8_t>(segment % 4);
  entry.use_hour = static_cast<uint16_t>((segment * 31 + slot) % kUseHours);
  return entry;
}

TEST(Index, EveryFieldComesBackAtItsLimits) {
  Index index = *Index::make(10);
  const IndexEntry extreme{
      {kMaxSegments - 1, kMaxSlots}, RetentionClass::kBestEffort, Lineage::kDerived, 3, 511};
  ASSERT_TRUE(index.insert(test_digest(1), extreme));
  EXPECT_EQ(index.find(test_digest(1)), extreme);
  EXPECT_EQ(index.find(test_digest(2)), std::nullopt);
}

TEST(Index, EqualsAMapUnderRandomWork) {
  Index index = *Index::make(2000);
  std::map<uint64_t, IndexEntry> expected;
  std::mt19937_64 random(5);
  for (int step = 0; step < 40000; ++step) {
    const uint64_t name = random() % 2000;
    const IndexEntry entry = entry_at(static_cast<uint32_t>(random() % kMaxSegments),
                                      1 + static_cast<uint32_t>(random() % kMaxSlots));
    const auto it = expected.find(name);
    if (random() % 3 != 0) {
      ASSERT_TRUE(index.insert(test_digest(name), entry));
      expected[name] = entry;
    } else if (it != expected.end()) {
      EXPECT_FALSE(index.erase(test_digest(name), {it->second.at.segment ^ 1, it->second.at.slot}));
      ASSERT_TRUE(index.erase(test_digest(name), it->second.at));
      expected.erase(it);
    }
  }
  EXPECT_EQ(index.size(), expected.size());
  for (uint64_t name = 0; name < 2000; ++name) {
    const auto it = expected.find(name);
    EXPECT_EQ(index.find(test_digest(name)), it == expected.end() ? std::nullopt : std::optional(it->second));
  }
}

TEST(Index, HoldsWhatItWasMadeForAndRefusesPastItsRoom) {
  Index index = *Index::make(20000);
  for (uint64_t i = 0; i < 20000; ++i) ASSERT_TRUE(index.insert(test_digest(i), entry_at(1, 1))) << i;
  uint64_t more = 20000;
  while (index.insert(test_digest(more), entry_at(2, 2))) ++more;
  EXPECT_LT(more, 25000u);
  EXPECT_EQ(index.size(), more);
  for (uint64_t i = 0; i < more; ++i) ASSERT_TRUE(index.find(test_digest(i)).has_value()) << i;
}

TEST(Promises, QuotaAndLimitBoundWhatIsPromised) {
  Promises promises(100);
  promises.set_quota(1, 60);
  EXPECT_TRUE(promises.reserve(1, 60, 72));
  EXPECT_FALSE(promises.reserve(1, 1, 72));  // quota
  EXPECT_TRUE(promises.reserve(2, 40, 72));
  EXPECT_FALSE(promises.reserve(2, 1, 72));  // limit
  promises.advance(72);
  EXPECT_EQ(promises.promised_bytes(), 100u);
  promises.advance(73);
  EXPECT_EQ(promises.promised_bytes(), 0u);
  EXPECT_TRUE(promises.reserve(1, 60, 145));
}

TEST(Promises, AUseMovesThePromiseAndPublicNeverExpires) {
  Promises promises(100);
  EXPECT_TRUE(promises.reserve(1, 10, 72));
  EXPECT_TRUE(promises.reserve(1, 5, kNever));
  promises.move(1, 10, 72, 80);
  promises.advance(79);
  EXPECT_EQ(promises.promised_bytes(1), 15u);
  promises.advance(1000);
  EXPECT_EQ(promises.promised_bytes(1), 5u);
  promises.forget(1);
  EXPECT_EQ(promises.promised_bytes(), 0u);
}

TEST(Domains, SurviveSerializationAndOpenOnlyWithTheirMasterKey) {
  Key master{};
  master[0] = std::byte{1};
  DomainTable table(master);
  ASSERT_EQ(table.create("acme", 5), 1u);
  ASSERT_EQ(table.create("other", 6), 2u);
  table.get(2)->quota_bytes = 77;
  const auto bytes = table.serialize();
  DomainTable again(master);
  ASSERT_TRUE(again.load(bytes).ok());
  EXPECT_EQ(again.find("acme"), 1u);
  EXPECT_EQ(again.get(1)->secret, table.get(1)->secret);
  EXPECT_EQ(again.get(2)->quota_bytes, 77u);
  Key wrong{};
  DomainTable locked(wrong);
  EXPECT_EQ(locked.load(bytes).error().code(), Code::kDataLoss);
  // No secret in the clear.
  const Key secret = table.get(1)->secret;
  EXPECT_EQ(std::search(bytes.begin(), bytes.end(), secret.begin(), secret.end()), bytes.end());
}

TEST(Domains, ADeletedOneLeavesNoSecretAndItsNumberStaysTaken) {
  DomainTable table(Key{});
  table.create("acme", 5);
  const Key before = DomainTable::chain_key(*table.get(1));
  ASSERT_TRUE(table.destroy(1));
  EXPECT_FALSE(table.destroy(1));
  EXPECT_EQ(table.find("acme"), std::nullopt);
  EXPECT_EQ(table.all()[0].secret, Key{});
  EXPECT_EQ(table.create("acme", 6), 2u);
  EXPECT_NE(DomainTable::chain_key(*table.get(2)), before);
}

TEST(Domains, SharedOnesAgreeUnderOneMasterKeyUntilOneIsDeleted) {
  Key master{}, another{};
  another[0] = std::byte{1};
  DomainTable here(master), there(master), stranger(another);
  for (DomainTable* table : {&here, &there, &stranger}) table->create("acme", 5, true);
  there.create("other", 5, true);
  EXPECT_EQ(here.get(1)->secret, there.get(1)->secret);
  EXPECT_NE(here.get(1)->secret, stranger.get(1)->secret);
  EXPECT_NE(there.get(1)->secret, there.get(2)->secret);
  EXPECT_EQ(there.num_private(), 0u);
  ASSERT_TRUE(here.destroy(1));
  here.create("acme", 6, true);
  EXPECT_NE(here.get(2)->secret, there.get(1)->secret);
  EXPECT_EQ(here.num_private(), 0u);
  here.create("private", 6);
  EXPECT_EQ(here.num_private(), 1u);
}

TEST(Domains, EveryDamagedByteAndCutIsRefused) {
  DomainTable table(Key{});
  table.create("acme", 5);
  const auto bytes = table.serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= std::byte{16};
    DomainTable again(Key{});
    EXPECT_FALSE(again.load(damaged).ok()) << i;
    EXPECT_EQ(again.load(std::span(bytes).first(i)).ok(), i == 0) << i;
  }
}

}  // namespace
}  // namespace deepinfer::store
