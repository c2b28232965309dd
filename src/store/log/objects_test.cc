// Objects: window states and whatever else lies in several records and is found and loaded as one.
#include "store/objects.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/log/inspect.h"
#include "store/log/store_rig.h"
#include "store/pieces.h"

namespace deepinfer::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RecordKind kState = RecordKind::kWindowState;
constexpr size_t kRoom = 1000 - kPieceHeadBytes;  // of one piece in the rig

std::vector<std::byte> bytes_of(uint64_t name, size_t size) { return payload_of(test_digest(name), size); }

class ObjectsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(rig.open().ok());
    domain = *rig.store->domain("tenant");
  }
  PutResult put(const Digest& key, std::span<const std::byte> bytes, std::span<const Digest> replaces = {},
                Lineage lineage = Lineage::kExact) {
    const auto result = rig.store->put_object(
        {.kind = kState, .domain = domain, .key = key, .lineage = lineage, .replaces = replaces}, bytes);
    EXPECT_TRUE(rig.store->flush(rig.clock.now()).ok());
    return result;
  }
  std::optional<ObjectHit> find(std::span<const Digest> keys, Lineage accept = Lineage::kDerived) {
    return rig.store->find_newest(kState, domain, keys, accept);
  }
  LoadedObject load(const Digest& key) {
    const auto found = find(std::span(&key, 1));
    if (!found) return {{}, MissReason::kAbsent};
    return rig.store->load_object(*found, rig.clock.now() + seconds(1));
  }

  Rig rig;
  uint32_t domain = 0;
};

TEST_F(ObjectsTest, EverySizeComesBackByteForByteAlsoAfterReopening) {
  std::vector<size_t> sizes = {1, 2, kRoom - 1, kRoom, kRoom + 1, 2 * kRoom, 2 * kRoom + 1, 20 * kRoom};
  std::mt19937_64 random(3);
  for (int i = 0; i < 8; ++i) sizes.push_back(1 + random() % (15 * kRoom));
  for (size_t i = 0; i < sizes.size(); ++i)
    ASSERT_EQ(put(test_digest(100 + i), bytes_of(i, sizes[i])), PutResult::kQueued) << sizes[i];
  for (int opening = 0; opening < 2; ++opening) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const LoadedObject object = load(test_digest(100 + i));
      EXPECT_EQ(object.reason, MissReason::kNone);
      EXPECT_EQ(object.bytes, bytes_of(i, sizes[i])) << sizes[i];
    }
    ASSERT_TRUE(rig.reopen().ok());
  }
}

TEST_F(ObjectsTest, WhatCannotBeKeptIsRefused) {
  EXPECT_EQ(put(test_digest(1), {}), PutResult::kRefused);
  EXPECT_EQ(put(test_digest(1), std::vector<std::byte>(kMaxObjectBytes + 1)), PutResult::kRefused);
  EXPECT_EQ(put(test_digest(1), std::vector<std::byte>(40 * kRoom)), PutResult::kRefused);  // more than the ring
  EXPECT_EQ(rig.store->put_object({.kind = RecordKind::kBlock, .domain = domain}, bytes_of(1, 10)),
            PutResult::kRefused);
  EXPECT_EQ(rig.store->put_object({.domain = domain + 1}, bytes_of(1, 10)), PutResult::kRefused);
  EXPECT_EQ(rig.store->stats().objects_put, 0u);
}

TEST_F(ObjectsTest, AFullStagingTakesNoneOfIt) {
  const auto bytes = bytes_of(1, 20 * kRoom);  // the ring has 32 places
  const auto put_unflushed = [&](uint64_t name) {
    return rig.store->put_object({.domain = domain, .key = test_digest(name)}, bytes);
  };
  EXPECT_EQ(put_unflushed(1), PutResult::kQueued);
  EXPECT_EQ(put_unflushed(2), PutResult::kFull);
  EXPECT_EQ(put_unflushed(1), PutResult::kPresent);  // on its way
  ASSERT_TRUE(rig.store->flush(rig.clock.now()).ok());
  EXPECT_EQ(load(test_digest(1)).bytes, bytes);
  EXPECT_EQ(load(test_digest(2)).reason, MissReason::kAbsent);
  EXPECT_EQ(rig.store->stats().persisted, 20u);
}

TEST_F(ObjectsTest, TheNewestOfAChainIsFoundAndReplacesThoseItNames) {
  const auto keys = rig.chain(domain, 1, 40);
  (void)put(keys[3], bytes_of(3, 3000));
  (void)put(keys[20], bytes_of(20, 3000));
  EXPECT_EQ(find(keys)->index, 20u);
  EXPECT_EQ(find(std::span(keys).first(20))->index, 3u);
  EXPECT_FALSE(find(std::span(keys).first(3)));
  (void)put(keys[30], bytes_of(30, 3000), std::span(keys).subspan(14, 16));
  EXPECT_EQ(find(keys)->index, 30u);
  EXPECT_EQ(load(keys[20]).reason, MissReason::kAbsent);
  EXPECT_EQ(load(keys[3]).bytes, bytes_of(3, 3000));
  const StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.objects_put, 3u);
  EXPECT_EQ(stats.objects_replaced, 1u);
  EXPECT_EQ(stats.records, 8u);  // four pieces each
}

TEST_F(ObjectsTest, ADerivedOneIsNotUsedWhereExactIsAskedForAndAnExactOneReplacesIt) {
  const Digest key = test_digest(1);
  (void)put(key, bytes_of(1, 2500), {}, Lineage::kDerived);
  EXPECT_FALSE(find(std::span(&key, 1), Lineage::kExact));
  EXPECT_EQ(find(std::span(&key, 1))->lineage, Lineage::kDerived);
  EXPECT_EQ(put(key, bytes_of(2, 2600)), PutResult::kQueued);
  EXPECT_EQ(find(std::span(&key, 1), Lineage::kExact)->lineage, Lineage::kExact);
  EXPECT_EQ(load(key).bytes, bytes_of(2, 2600));
  EXPECT_EQ(put(key, bytes_of(3, 2700), {}, Lineage::kDerived), PutResult::kPresent);
  ASSERT_TRUE(rig.reopen().ok());
  EXPECT_EQ(load(key).bytes, bytes_of(2, 2600));
}

TEST_F(ObjectsTest, DomainsShareNothingAndADeletedOneIsGone) {
  const Digest key = test_digest(1);
  (void)put(key, bytes_of(1, 2500));
  const uint32_t other = *rig.store->domain("other");
  const auto stolen = rig.store->find_newest(kState, other, std::span(&key, 1), Lineage::kDerived);
  // Keys are keyed by domain, so nobody comes to ask for another's; who does gets nothing.
  ASSERT_TRUE(stolen);
  EXPECT_EQ(rig.store->load_object(*stolen, rig.clock.now() + seconds(1)).reason, MissReason::kCorrupt);
  (void)put(key, bytes_of(1, 2500));
  const auto found = find(std::span(&key, 1));
  ASSERT_TRUE(rig.store->delete_domain(domain).ok());
  EXPECT_FALSE(find(std::span(&key, 1)));
  ASSERT_TRUE(found);
  EXPECT_EQ(rig.store->load_object(*found, rig.clock.now() + seconds(1)).reason, MissReason::kDomainGone);
}

TEST_F(ObjectsTest, ABlockIsNoPieceAndAPieceNoBlock) {
  const Digest key = test_digest(1), piece = piece_key(kState, key, 0);
  (void)put(key, bytes_of(1, 500));
  MissReason reason = MissReason::kNone;
  EXPECT_EQ(rig.load(domain, std::span(&piece, 1), &reason), 0u);
  EXPECT_EQ(reason, MissReason::kCorrupt);
  EXPECT_EQ(rig.wrong, 0u);
  const Digest block[] = {piece_key(kState, test_digest(2), 0)};
  (void)rig.put(domain, block, 0);
  ASSERT_TRUE(rig.store->flush(rig.clock.now()).ok());
  EXPECT_EQ(load(test_digest(2)).reason, MissReason::kCorrupt);
}

TEST_F(ObjectsTest, EncryptedOnesComeBackAndTheirBytesAreNotOnTheDisk) {
  rig.options.encrypt = true;
  ASSERT_TRUE(rig.reopen().ok());
  const std::vector<std::byte> secret(2500, std::byte{0x5e});
  (void)put(test_digest(1), secret);
  ASSERT_TRUE(rig.reopen().ok());
  EXPECT_EQ(load(test_digest(1)).bytes, secret);
  for (const std::string& path : rig.disk.files()) {
    const auto bytes = rig.disk.contents(path);
    const auto at = std::search(bytes.begin(), bytes.end(), secret.begin(), secret.begin() + 32);
    EXPECT_EQ(at, bytes.end()) << path;
  }
}

// Any one bit of any record: another byte than those that were put never comes back.
TEST_F(ObjectsTest, AFlippedBitOfAnyPieceIsAMiss) {
  std::mt19937_64 random(11);
  size_t misses = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    const Digest key = test_digest(1000 + round);
    const auto bytes = bytes_of(round, 1 + random() % (4 * kRoom));
    ASSERT_EQ(put(key, bytes), PutResult::kQueued);
    const auto count = num_pieces(bytes.size(), 1000);
    const auto place = rig.find_record(piece_key(kState, key, static_cast<uint32_t>(random() % count)));
    ASSERT_TRUE(place);
    rig.disk.flip_bit(place->first, place->second + random() % rig.store->geometry().slot_bytes);
    const LoadedObject object = load(key);
    EXPECT_TRUE(object.bytes.empty());
    misses += object.reason == MissReason::kNone ? 0 : 1;
    rig.clock.advance(std::chrono::hours(24));  // so that the drive is not given up for its damage
  }
  EXPECT_EQ(misses, 60u);  // every byte of a slot is checked
}

// Room for 200 records under a stream of objects and blocks: what is found is whole, or it is a miss.
TEST_F(ObjectsTest, UnderReclaimAnObjectIsWholeOrGone) {
  std::mt19937_64 random(5);
  size_t whole = 0, gone = 0;
  for (uint64_t step = 0; step < 300; ++step) {
    (void)put(test_digest(step), bytes_of(step, 1 + random() % (6 * kRoom)));
    const auto blocks = rig.chain(domain, step, 3);
    (void)rig.put_all(domain, blocks, RetentionClass::kBestEffort);
    rig.clock.advance(std::chrono::minutes(5));
    rig.store->step();
    const uint64_t asked = random() % (step + 1);
    const LoadedObject object = load(test_digest(asked));
    if (object.reason != MissReason::kNone) {
      ++gone;
      continue;
    }
    ++whole;
    ASSERT_EQ(head_of(object.bytes), head_of(bytes_of(asked, object.bytes.size()))) << asked;
  }
  EXPECT_GT(whole, 20u);
  EXPECT_GT(gone, 20u);
  EXPECT_EQ(rig.store->stats().broken_promises, 0u);
}

// Power goes at any point while one object replaces another of the same key: the first, the second, or none.
TEST(ObjectsCrash, PiecesOfTwoWritingsAreNeverOneObject) {
  const auto first = bytes_of(1, 5000), second = bytes_of(2, 5300);
  size_t of_second = 0, none = 0;
  for (uint64_t point = 0; point < 60; ++point) {
    Rig rig(point);
    ASSERT_TRUE(rig.open().ok());
    const uint32_t domain = *rig.store->domain("tenant");
    const auto put = [&](std::span<const std::byte> bytes, Lineage lineage) {
      (void)rig.store->put_object({.domain = domain, .key = test_digest(7), .lineage = lineage}, bytes);
      (void)rig.store->flush(rig.clock.now());
    };
    put(first, Lineage::kDerived);
    rig.disk.power_off_at(rig.disk.persistence_points() + point / 4);
    put(second, Lineage::kExact);
    rig.store.reset();
    rig.disk.restart();
    ASSERT_TRUE(rig.open().ok());
    const Digest key = test_digest(7);
    const auto found = rig.store->find_newest(kState, domain, std::span(&key, 1), Lineage::kDerived);
    LoadedObject object;
    if (found) object = rig.store->load_object(*found, rig.clock.now() + seconds(1));
    EXPECT_TRUE(object.bytes.empty() || object.bytes == first || object.bytes == second) << point;
    none += object.bytes.empty() ? 1 : 0;
    of_second += object.bytes == second ? 1 : 0;
  }
  EXPECT_GT(none, 0u);  // pieces of both were there
  EXPECT_GT(of_second, 0u);
}

TEST_F(ObjectsTest, AnInspectorCountsItsRecordsApart) {
  (void)put(test_digest(1), bytes_of(1, 2500));
  (void)rig.put_all(domain, rig.chain(domain, 1, 2));
  const auto report = inspect_drive(rig.disk, "/kv", {});
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->damage.empty());
  EXPECT_EQ(report->by_kind, (std::array<uint64_t, kNumKinds>{2, 3}));
}

// ---- in a tier

struct MapTier {
  std::map<std::string, std::string> values;

  static std::string text_of(const kv_tier_key& key) {
    return {reinterpret_cast<const char*>(key.bytes), sizeof key.bytes};
  }
  static MapTier& of(void* self) { return *static_cast<MapTier*>(self); }
  kv_tier tier() {
    kv_tier t{};
    t.abi = DEEPINFER_KV_TIER_ABI;
    t.name = "map";
    t.self = this;
    t.exists = [](void* self, size_t count, const kv_tier_key* keys, int64_t, kv_tier_status* status) {
      for (size_t i = 0; i < count; ++i) status[i] = of(self).values.contains(text_of(keys[i])) ? KV_TIER_OK : KV_TIER_ABSENT;
    };
    t.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t,
               kv_tier_status* status) {
      for (size_t i = 0; i < count; ++i) {
        const auto value = of(self).values.find(text_of(keys[i]));
        status[i] = value == of(self).values.end() ? KV_TIER_ABSENT : KV_TIER_OK;
        if (status[i] != KV_TIER_OK) continue;
        std::memcpy(buffers[i].data, value->second.data(), value->second.size());
        buffers[i].size = value->second.size();
      }
    };
    t.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t, int64_t,
               kv_tier_status* status) {
      for (size_t i = 0; i < count; ++i) {
        of(self).values[text_of(keys[i])].assign(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size);
        status[i] = KV_TIER_OK;
      }
    };
    t.close = [](void*) {};
    return t;
  }
};

TEST(ObjectsInATier, ComeBackWholeAndOneThatLostAPieceIsAMiss) {
  ManualClock clock;
  MapTier map;
  GuardedTier tier(map.tier(), test_digest(9), clock);
  const TierObject object{.kind = kState, .key = test_digest(1), .payload_bytes = 1000};
  for (const size_t size : {size_t{1}, kRoom, kRoom + 1, 7 * kRoom + 5}) {
    map.values.clear();
    const auto bytes = bytes_of(size, size);
    ASSERT_EQ(put_object(tier, object, bytes, seconds(0), milliseconds(1000)), TierStatus::kOk);
    const Digest keys[] = {test_digest(0), test_digest(1), test_digest(2)};
    EXPECT_EQ(find_newest_object(tier, kState, keys, milliseconds(1000)), 1u);
    EXPECT_FALSE(find_newest_object(tier, kState, std::span(keys).first(1), milliseconds(1000)));
    EXPECT_EQ(get_object(tier, object, milliseconds(1000)).bytes, bytes);
    map.values.erase(map.values.begin());
    const LoadedObject cut = get_object(tier, object, milliseconds(1000));
    EXPECT_EQ(cut.reason, MissReason::kAbsent);
    EXPECT_TRUE(cut.bytes.empty());
    clock.advance(seconds(5));  // what was absent is asked for again
  }
}

}  // namespace
}  // namespace deepinfer::store
