#include "gateway/response_store.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "gateway/sealed_text.h"

namespace deepinfer {
namespace {

class HandClock : public Clock {
 public:
  time_point now() const override { return {}; }
  std::chrono::system_clock::time_point wall_now() const override { return now_; }
  void advance(std::chrono::seconds by) { now_ += by; }

 private:
  std::chrono::system_clock::time_point now_{std::chrono::seconds(1'000'000)};
};

class ResponseStoreTest : public testing::Test {
 protected:
  std::unique_ptr<ResponseStore> open(ResponseStoreOptions options = {}) {
    auto store = ResponseStore::open(std::move(options), clock_);
    EXPECT_TRUE(store.ok()) << store.error().message();
    return std::move(*store);
  }
  static StoredResponse response(const std::string& id, size_t size = 2) {
    return {id, "before", "\"" + std::string(size - 2, 'x') + "\"", "[]"};
  }
  std::string new_file() {
    const std::string path = testing::TempDir() + "response_store_test.sqlite";
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
    return path;
  }

  HandClock clock_;
};

TEST_F(ResponseStoreTest, AResponseIsFoundByItsOwnerOnly) {
  const auto store = open();
  ASSERT_TRUE(store->begin("a", response("r1")).ok());
  EXPECT_EQ(store->get("a", "r1")->previous_id, "before");
  EXPECT_EQ(store->get("a", "r1")->input_items, "[]");
  EXPECT_EQ(store->get("b", "r1").error().code(), Code::kNotFound);
  EXPECT_EQ(store->get("a", "r2").error().code(), Code::kNotFound);
}

TEST_F(ResponseStoreTest, ADeletedOneIsGoneAndAnothersStays) {
  const auto store = open();
  ASSERT_TRUE(store->begin("a", response("r1")).ok());
  ASSERT_TRUE(store->erase("b", "r1").ok());
  EXPECT_TRUE(store->get("a", "r1").ok());
  ASSERT_TRUE(store->erase("a", "r1").ok());
  EXPECT_FALSE(store->get("a", "r1").ok());
}

TEST_F(ResponseStoreTest, TimeEndsAResponse) {
  const auto store = open({.path = "", .time_to_live = std::chrono::seconds(10)});
  ASSERT_TRUE(store->begin("a", response("r1")).ok());
  clock_.advance(std::chrono::seconds(9));
  EXPECT_TRUE(store->get("a", "r1").ok());
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(store->get("a", "r1").ok());
}

TEST_F(ResponseStoreTest, TheOldestGoWhenAnOwnerHasTooMuch) {
  const auto store = open({.path = "", .max_bytes_per_owner = 250});
  for (const char* id : {"r1", "r2", "r3"}) ASSERT_TRUE(store->begin("a", response(id, 100)).ok());
  ASSERT_TRUE(store->begin("b", response("other", 100)).ok());
  EXPECT_FALSE(store->get("a", "r1").ok());
  EXPECT_TRUE(store->get("a", "r2").ok());
  EXPECT_TRUE(store->get("a", "r3").ok());
  EXPECT_TRUE(store->get("b", "other").ok());
  EXPECT_EQ(store->begin("a", response("big", 300)).error().code(), Code::kResourceExhausted);
}

TEST_F(ResponseStoreTest, AnUpdateChangesWhatIsThereAndBringsNothingBack) {
  const auto store = open();
  ASSERT_TRUE(store->begin("a", response("r1")).ok());
  ASSERT_TRUE(store->update("a", "r1", "{}", false).ok());
  EXPECT_EQ(store->get("a", "r1")->response, "{}");
  ASSERT_TRUE(store->update("b", "r1", "[]", true).ok());  // another's
  EXPECT_EQ(store->get("a", "r1")->response, "{}");
  ASSERT_TRUE(store->erase("a", "r1").ok());
  ASSERT_TRUE(store->update("a", "r1", "{}", true).ok());
  EXPECT_FALSE(store->get("a", "r1").ok());
}

TEST_F(ResponseStoreTest, WhatGrewCountsAndWhatWentDoesNot) {
  const auto store = open({.path = "", .max_bytes_per_owner = 250});
  ASSERT_TRUE(store->begin("a", response("r1", 100)).ok());
  ASSERT_TRUE(store->begin("a", response("r2", 10)).ok());
  ASSERT_TRUE(store->update("a", "r2", std::string(200, 'x'), true).ok());  // too much together with r1
  EXPECT_FALSE(store->get("a", "r1").ok());
  EXPECT_TRUE(store->get("a", "r2").ok());
  ASSERT_TRUE(store->erase("a", "r2").ok());
  for (const char* id : {"r3", "r4"}) ASSERT_TRUE(store->begin("a", response(id, 110)).ok());
  EXPECT_TRUE(store->get("a", "r3").ok());
  EXPECT_EQ(store->update("a", "r4", std::string(300, 'x'), true).error().code(), Code::kResourceExhausted);
  EXPECT_FALSE(store->get("a", "r4").ok());
}

// The work of a store at its limit does not grow with what is in it. Instructions can't be counted everywhere, so CPU
// time of the best of some rounds is compared, with much room.
TEST_F(ResponseStoreTest, StoringCostsTheSameHoweverManyThereAre) {
  const auto cost = [this](int rows) {
    const auto store = open({.path = "", .max_bytes_per_owner = rows * 60});
    int next = 0;
    const auto add = [&] { ASSERT_TRUE(store->begin("a", response(fmt::format("r{:08}", next++), 49)).ok()); };
    for (int i = 0; i < rows + 100; ++i) add();
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const std::clock_t begin = std::clock();
      for (int i = 0; i < 100; ++i) add();
      best = std::min(best, static_cast<double>(std::clock() - begin));
    }
    EXPECT_FALSE(store->get("a", "r00000000").ok());
    return best;
  };
  const double few = cost(500), many = cost(16'000);
  EXPECT_LT(many, 8 * few);  // in proportion it would be 32
}

TEST_F(ResponseStoreTest, WhatRanWhenAProcessEndedIsFoundByTheNext) {
  const std::string path = new_file();
  {
    const auto store = open({.path = path});
    for (const char* id : {"r1", "r2"}) ASSERT_TRUE(store->begin("a", response(id)).ok());
    ASSERT_TRUE(store->update("a", "r1", "{}", true).ok());
  }
  const auto store = open({.path = path});
  const auto unfinished = store->unfinished();
  ASSERT_TRUE(unfinished.ok());
  ASSERT_EQ(unfinished->size(), 1u);
  EXPECT_EQ(unfinished->front().first, "a");
  EXPECT_EQ(unfinished->front().second.id, "r2");
}

TEST_F(ResponseStoreTest, NobodyElseReadsTheFile) {
  const std::string path = new_file();
  std::ofstream(path).close();
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);  // as an earlier server left it
  const auto store = open({.path = path});
  ASSERT_TRUE(store->begin("a", response("r1")).ok());
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat found = {};
    ASSERT_EQ(::stat((path + suffix).c_str(), &found), 0) << suffix;
    EXPECT_EQ(found.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(ResponseStoreTest, AFileKeepsResponsesAndSecret) {
  const std::string path = new_file();
  std::string secret;
  {
    const auto store = open({.path = path});
    ASSERT_TRUE(store->begin("a", response("r1")).ok());
    secret = *store->secret();
  }
  const auto store = open({.path = path});
  EXPECT_TRUE(store->get("a", "r1").ok());
  EXPECT_EQ(*store->secret(), secret);
  EXPECT_NE(*open()->secret(), secret);
}

TEST_F(ResponseStoreTest, AFileThatIsNoStoreIsRefused) {
  const std::string path = new_file();
  std::ofstream(path) << std::string(5000, 'x');
  const auto store = ResponseStore::open({.path = path}, clock_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), Code::kIo);
  EXPECT_NE(store.error().message().find(path), std::string::npos);
  EXPECT_FALSE(ResponseStore::open({.path = "/nowhere/at/all.sqlite"}, clock_).ok());
}

TEST(TextSealer, OpensOnlyWhatItSealed) {
  const TextSealer sealer(std::string(32, 'k'));
  for (const std::string& text : {std::string(), std::string("thought"), std::string(1000, 'x')}) {
    const std::string sealed = sealer.seal(text, "me");
    EXPECT_EQ(sealer.open(sealed, "me"), text);
    EXPECT_NE(sealer.seal(text, "me"), sealed);
    EXPECT_EQ(sealer.open(sealed, "you"), std::nullopt);
    EXPECT_EQ(TextSealer(std::string(32, 'z')).open(sealed, "me"), std::nullopt);
    for (size_t i = 0; i < sealed.size(); i += 7) {
      std::string changed = sealed;
      changed[i] = changed[i] == 'A' ? 'B' : 'A';
      EXPECT_EQ(sealer.open(changed, "me"), std::nullopt) << i;
    }
    EXPECT_EQ(sealer.open(sealed.substr(0, sealed.size() - 4), "me"), std::nullopt);
  }
  EXPECT_EQ(sealer.open("xyz", "me"), std::nullopt);
  EXPECT_EQ(sealer.open("", "me"), std::nullopt);
  EXPECT_EQ(sealer.open("r0001-0", "me"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
