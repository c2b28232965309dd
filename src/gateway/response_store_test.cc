#include "gateway/response_store.h"

#include <gtest/gtest.h>

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
  ASSERT_TRUE(store->put("a", response("r1")).ok());
  EXPECT_EQ(store->get("a", "r1")->previous_id, "before");
  EXPECT_EQ(store->get("a", "r1")->input_items, "[]");
  EXPECT_EQ(store->get("b", "r1").error().code(), Code::kNotFound);
  EXPECT_EQ(store->get("a", "r2").error().code(), Code::kNotFound);
}

TEST_F(ResponseStoreTest, ADeletedOneIsGoneAndAnothersStays) {
  const auto store = open();
  ASSERT_TRUE(store->put("a", response("r1")).ok());
  ASSERT_TRUE(store->erase("b", "r1").ok());
  EXPECT_TRUE(store->get("a", "r1").ok());
  ASSERT_TRUE(store->erase("a", "r1").ok());
  EXPECT_FALSE(store->get("a", "r1").ok());
}

TEST_F(ResponseStoreTest, TimeEndsAResponse) {
  const auto store = open({.path = "", .time_to_live = std::chrono::seconds(10)});
  ASSERT_TRUE(store->put("a", response("r1")).ok());
  clock_.advance(std::chrono::seconds(9));
  EXPECT_TRUE(store->get("a", "r1").ok());
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(store->get("a", "r1").ok());
}

TEST_F(ResponseStoreTest, TheOldestGoWhenAnOwnerHasTooMuch) {
  const auto store = open({.path = "", .max_bytes_per_owner = 250});
  for (const char* id : {"r1", "r2", "r3"}) ASSERT_TRUE(store->put("a", response(id, 100)).ok());
  ASSERT_TRUE(store->put("b", response("other", 100)).ok());
  EXPECT_FALSE(store->get("a", "r1").ok());
  EXPECT_TRUE(store->get("a", "r2").ok());
  EXPECT_TRUE(store->get("a", "r3").ok());
  EXPECT_TRUE(store->get("b", "other").ok());
  EXPECT_EQ(store->put("a", response("big", 300)).error().code(), Code::kResourceExhausted);
}

TEST_F(ResponseStoreTest, AFileKeepsResponsesAndSecret) {
  const std::string path = new_file();
  std::string secret;
  {
    const auto store = open({.path = path});
    ASSERT_TRUE(store->put("a", response("r1")).ok());
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
    const std::string sealed = sealer.seal(text);
    EXPECT_EQ(sealer.open(sealed), text);
    EXPECT_NE(sealer.seal(text), sealed);
    EXPECT_EQ(TextSealer(std::string(32, 'z')).open(sealed), std::nullopt);
    for (size_t i = 0; i < sealed.size(); i += 7) {
      std::string changed = sealed;
      changed[i] = changed[i] == 'A' ? 'B' : 'A';
      EXPECT_EQ(sealer.open(changed), std::nullopt) << i;
    }
    EXPECT_EQ(sealer.open(sealed.substr(0, sealed.size() - 4)), std::nullopt);
  }
  EXPECT_EQ(sealer.open("xyz"), std::nullopt);
  EXPECT_EQ(sealer.open(""), std::nullopt);
  EXPECT_EQ(sealer.open("r0001-0"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
