// The S3 tier against a server: DEEPINFER_S3_ENDPOINT, _BUCKET, _ACCESS_KEY and _SECRET_KEY name it
// (tests/clients/s3_tier_test.py starts one). Without them only what needs no server is tested.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "cache/test_keys.h"
#include "store/tiers/s3_signature.h"
#include "store/tiers/tier.h"

namespace deepinfer::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The documented examples of Signature Version 4 for S3.
TEST(S3Signature, EqualsTheDocumentedExamples) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1"};
  const std::string time = "20130524T000000Z", empty = sha256_hex({});
  S3Request get{.method = "GET",
                .path = "/test.txt",
                .query = "",
                .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                            {"range", "bytes=0-9"},
                            {"x-amz-content-sha256", empty},
                            {"x-amz-date", time}},
                .payload_sha256 = empty};
  EXPECT_EQ(s3_authorization(credentials, get, time),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  get.path = "/";
  get.query = "lifecycle=";
  get.headers.erase(get.headers.begin() + 1);
  EXPECT_NE(s3_authorization(credentials, get, time)
                .find("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            std::string::npos);
}

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

S3Options server() {
  return {.endpoint = env("DEEPINFER_S3_ENDPOINT"),
          .region = "us-east-1",
          .bucket = env("DEEPINFER_S3_BUCKET"),
          .prefix = "kv/",
          .access_key = env("DEEPINFER_S3_ACCESS_KEY"),
          .secret_key = env("DEEPINFER_S3_SECRET_KEY"),
          .connections = 8};
}

// Blocks with values that follow from their keys.
struct Blocks {
  explicit Blocks(size_t count, uint64_t first) : out(count, std::vector<std::byte>(113'920)) {
    for (size_t i = 0; i < count; ++i) {
      keys.push_back(test_digest(first + i));
      values.push_back(payload_of(keys.back(), 113'920));
    }
  }
  std::vector<TierStatus> put(GuardedTier& tier, seconds ttl = seconds(0)) {
    std::vector<std::span<const std::byte>> spans(values.begin(), values.end());
    return tier.put(keys, spans, ttl, milliseconds(20'000));
  }
  std::vector<TierStatus> get(GuardedTier& tier, milliseconds limit = milliseconds(20'000)) {
    std::vector<std::span<std::byte>> spans(out.begin(), out.end());
    return tier.get(keys, spans, limit);
  }
  std::vector<Digest> keys;
  std::vector<std::vector<std::byte>> values, out;
};

std::vector<TierStatus> all(size_t count, TierStatus status) { return std::vector<TierStatus>(count, status); }

class S3TierTest : public testing::Test {
 protected:
  void SetUp() override {
    if (server().endpoint.empty()) GTEST_SKIP() << "no S3 server was named";
  }
};

TEST_F(S3TierTest, KeepsBlocksSaysWhatIsAbsentAndForgetsInTime) {
  const auto raw = make_s3_tier(server());
  ASSERT_TRUE(raw.ok()) << raw.error().message();
  GuardedTier tier(*raw, test_digest(9), system_clock());
  Blocks blocks(40, 1), brief(1, 100), absent(3, 200);
  EXPECT_EQ(blocks.put(tier), all(40, TierStatus::kOk));
  EXPECT_EQ(blocks.put(tier), all(40, TierStatus::kOk));  // putting twice is not an error
  EXPECT_EQ(blocks.get(tier), all(40, TierStatus::kOk));
  EXPECT_EQ(blocks.out, blocks.values);
  EXPECT_EQ(absent.get(tier), all(3, TierStatus::kAbsent));
  EXPECT_EQ(brief.put(tier, seconds(1)), all(1, TierStatus::kOk));
  EXPECT_EQ(tier.exists(blocks.keys, milliseconds(20'000)), all(40, TierStatus::kOk));
  EXPECT_EQ(tier.remove(std::span(blocks.keys).first(2), milliseconds(20'000)), all(2, TierStatus::kOk));
  EXPECT_EQ(tier.exists(std::span(blocks.keys).first(2), milliseconds(20'000)), all(2, TierStatus::kAbsent));
  std::this_thread::sleep_for(milliseconds(2100));
  EXPECT_EQ(brief.get(tier), all(1, TierStatus::kAbsent));
}

TEST_F(S3TierTest, CallsFromSeveralThreadsEachGetTheirAnswers) {
  const auto raw = make_s3_tier(server());
  ASSERT_TRUE(raw.ok());
  GuardedTier tier(*raw, test_digest(9), system_clock());
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&tier, t] {
      Blocks blocks(5, 1000 + 100 * t);
      EXPECT_EQ(blocks.put(tier), all(5, TierStatus::kOk));
      EXPECT_EQ(blocks.get(tier), all(5, TierStatus::kOk));
      EXPECT_EQ(blocks.out, blocks.values);
    });
  }
}

TEST_F(S3TierTest, AWrongSecretIsAFailureNotAMiss) {
  S3Options wrong = server();
  wrong.secret_key += "x";
  const auto raw = make_s3_tier(wrong);
  ASSERT_TRUE(raw.ok());
  GuardedTier tier(*raw, test_digest(9), system_clock());
  Blocks blocks(2, 1);
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kFailed));
}

TEST(S3TierAlone, BadOptionsAreRefusedByName) {
  S3Options options{.endpoint = "ftp://host", .region = "r", .bucket = "b", .prefix = "", .access_key = "a",
                    .secret_key = "s", .connections = 1};
  EXPECT_EQ(make_s3_tier(options).error().code(), Code::kInvalidArgument);
  options.endpoint = "http://127.0.0.1:1";
  options.bucket = "";
  EXPECT_EQ(make_s3_tier(options).error().code(), Code::kInvalidArgument);
}

// A server that takes connections and never answers: every call ends at its deadline, then the breaker spares the wait.
TEST(S3TierAlone, T09_AServerThatHangsCostsADeadlineAndOpensTheBreaker) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener, 64), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const auto raw = make_s3_tier({.endpoint = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port)),
                                 .region = "us-east-1", .bucket = "b", .prefix = "", .access_key = "a", .secret_key = "s",
                                 .connections = 4});
  ASSERT_TRUE(raw.ok());
  GuardedTier tier(*raw, test_digest(9), system_clock());
  Blocks blocks(6, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(blocks.get(tier, milliseconds(100)), all(6, TierStatus::kTimeout));
  EXPECT_EQ(blocks.get(tier, milliseconds(100)), all(6, TierStatus::kDown));
  EXPECT_TRUE(tier.stats().down);
  ::close(listener);
}

TEST(S3TierAlone, T09_NobodyListeningIsAFailure) {
  const auto raw = make_s3_tier({.endpoint = "http://127.0.0.1:1", .region = "us-east-1", .bucket = "b", .prefix = "",
                                 .access_key = "a", .secret_key = "s", .connections = 2});
  ASSERT_TRUE(raw.ok());
  GuardedTier tier(*raw, test_digest(9), system_clock());
  Blocks blocks(3, 1);
  EXPECT_EQ(blocks.get(tier, milliseconds(2000)), all(3, TierStatus::kFailed));
}

}  // namespace
}  // namespace deepinfer::store
