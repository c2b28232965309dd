// Tiers: the guard on a scripted tier, the directory on a real one, Redis on a real redis-server.
#include "store/tiers/tier.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/manual_clock.h"
#include "cache/test_keys.h"

namespace deepinfer::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A map that answers as it is told.
struct Scripted {
  std::map<std::string, std::string> values;
  kv_tier_status answer = KV_TIER_OK;
  size_t forget_from = SIZE_MAX;  // places from here are not answered
  bool flip = false, swap = false;
  int calls = 0;

  kv_tier tier() {
    kv_tier t{};
    t.abi = DEEPINFER_KV_TIER_ABI;
    t.name = "scripted";
    t.self = this;
    t.get = [](void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t,
               kv_tier_status* status) {
      Scripted& s = *static_cast<Scripted*>(self);
      ++s.calls;
      for (size_t i = 0; i < std::min(count, s.forget_from); ++i) {
        status[i] = s.answer;
        if (s.answer != KV_TIER_OK) continue;
        const size_t from = s.swap ? count - 1 - i : i;
        const auto it = s.values.find(std::string(reinterpret_cast<const char*>(keys[from].bytes), 32));
        status[i] = it == s.values.end() ? KV_TIER_ABSENT : KV_TIER_OK;
        if (it == s.values.end()) continue;
        std::memcpy(buffers[i].data, it->second.data(), it->second.size());
        buffers[i].size = it->second.size();
        if (s.flip) buffers[i].data[it->second.size() / 2] ^= 1;
      }
    };
    t.put = [](void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers, uint32_t,
               int64_t, kv_tier_status* status) {
      Scripted& s = *static_cast<Scripted*>(self);
      ++s.calls;
      for (size_t i = 0; i < count; ++i) {
        s.values[std::string(reinterpret_cast<const char*>(keys[i].bytes), 32)] =
            std::string(reinterpret_cast<const char*>(buffers[i].data), buffers[i].size);
        status[i] = KV_TIER_OK;
      }
    };
    t.close = [](void*) {};
    return t;
  }
};

struct Blocks {
  explicit Blocks(size_t count, uint64_t first = 1) {
    for (size_t i = 0; i < count; ++i) {
      keys.push_back(test_digest(first + i));
      values.push_back(payload_of(keys.back(), 1000));
      out.emplace_back(1000);
    }
  }
  std::vector<TierStatus> put(GuardedTier& tier, seconds ttl = seconds(100)) {
    std::vector<std::span<const std::byte>> spans(values.begin(), values.end());
    return tier.put(keys, spans, ttl, milliseconds(5000));
  }
  std::vector<TierStatus> get(GuardedTier& tier, milliseconds limit = milliseconds(5000)) {
    std::vector<std::span<std::byte>> spans(out.begin(), out.end());
    return tier.get(keys, spans, limit);
  }
  std::vector<Digest> keys;
  std::vector<std::vector<std::byte>> values, out;
};

std::vector<TierStatus> all(size_t count, TierStatus status) {
  return std::vector<TierStatus>(count, status);
}

TEST(GuardedTier, ChecksWhateverTheTierPromises) {
  ManualClock clock;
  Scripted script;
  GuardedTier tier(script.tier(), test_digest(9), clock);
  Blocks blocks(4);
  EXPECT_EQ(blocks.put(tier), all(4, TierStatus::kOk));
  EXPECT_EQ(blocks.get(tier), all(4, TierStatus::kOk));
  EXPECT_EQ(blocks.out, blocks.values);
  script.flip = true;
  EXPECT_EQ(blocks.get(tier), all(4, TierStatus::kCorrupt));
  script.flip = false;
  script.swap = true;  // the value of another key
  EXPECT_EQ(blocks.get(tier), all(4, TierStatus::kCorrupt));
  GuardedTier other(script.tier(), test_digest(8), clock);  // another fingerprint
  script.swap = false;
  EXPECT_EQ(blocks.get(other), all(4, TierStatus::kCorrupt));
}

TEST(GuardedTier, APlaceThatWasNotAnsweredIsAFailureNotAHit) {
  ManualClock clock;
  Scripted script;
  GuardedTier tier(script.tier(), test_digest(9), clock);
  Blocks blocks(3);
  (void)blocks.put(tier);
  script.forget_from = 1;
  const auto statuses = blocks.get(tier);
  EXPECT_EQ(statuses, (std::vector<TierStatus>{TierStatus::kOk, TierStatus::kFailed, TierStatus::kFailed}));
}

TEST(T09_Tier, ThreeFailuresOpenTheBreakerAndItDoublesUpToItsLimit) {
  ManualClock clock;
  Scripted script;
  GuardedTier tier(script.tier(), test_digest(9), clock);
  Blocks blocks(1);
  (void)blocks.put(tier);
  script.answer = KV_TIER_TIMEOUT;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(blocks.get(tier), all(1, TierStatus::kTimeout));
  const int calls = script.calls;
  EXPECT_EQ(blocks.get(tier), all(1, TierStatus::kDown));
  EXPECT_EQ(script.calls, calls);
  EXPECT_TRUE(tier.stats().down);
  clock.advance(seconds(6));
  for (int i = 0; i < 3; ++i) (void)blocks.get(tier);
  clock.advance(seconds(6));
  EXPECT_EQ(blocks.get(tier), all(1, TierStatus::kDown));  // ten seconds now
  clock.advance(seconds(5));
  script.answer = KV_TIER_OK;
  EXPECT_EQ(blocks.get(tier), all(1, TierStatus::kOk));
}

TEST(GuardedTier, RemembersForAWhileWhatIsAbsentUntilItIsPut) {
  ManualClock clock;
  Scripted script;
  GuardedTier tier(script.tier(), test_digest(9), clock);
  Blocks blocks(2);
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kAbsent));
  const int calls = script.calls;
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kAbsent));
  EXPECT_EQ(script.calls, calls);
  EXPECT_EQ(tier.stats().negative_hits, 2u);
  (void)blocks.put(tier);
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kOk));
  Blocks others(1, 50);
  EXPECT_EQ(others.get(tier), all(1, TierStatus::kAbsent));
  script.values.clear();
  clock.advance(seconds(3));
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kAbsent));
}

class DirectoryTierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root = std::filesystem::temp_directory_path() / fmt::format("deepinfer-tier-{}", getpid());
    std::filesystem::remove_all(root);
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  std::string root;
};

TEST_F(DirectoryTierTest, KeepsBlocksForOtherProcessesAndForgetsThemInTime) {
  GuardedTier tier(make_directory_tier(root), test_digest(9), system_clock());
  Blocks blocks(5);
  EXPECT_EQ(blocks.put(tier), all(5, TierStatus::kOk));
  EXPECT_EQ(blocks.put(tier), all(5, TierStatus::kOk));  // there already
  GuardedTier second(make_directory_tier(root), test_digest(9), system_clock());
  EXPECT_EQ(blocks.get(second), all(5, TierStatus::kOk));
  EXPECT_EQ(blocks.out, blocks.values);
  EXPECT_EQ(second.exists(blocks.keys, milliseconds(5000)), all(5, TierStatus::kOk));
  EXPECT_EQ(second.remove(std::span(blocks.keys).first(1), milliseconds(5000)), all(1, TierStatus::kOk));
  EXPECT_EQ(second.exists(std::span(blocks.keys).first(1), milliseconds(5000)), all(1, TierStatus::kAbsent));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    EXPECT_EQ(entry.path().string().find(".new"), std::string::npos);
    if (entry.is_regular_file())  // as if its time had come
      std::filesystem::last_write_time(entry.path(),
                                       std::filesystem::file_time_type::clock::now() - seconds(10));
  }
  EXPECT_EQ(blocks.get(second), all(5, TierStatus::kAbsent));
}

TEST_F(DirectoryTierTest, ADamagedOrCutFileIsNotUsed) {
  GuardedTier tier(make_directory_tier(root), test_digest(9), system_clock());
  Blocks blocks(2);
  (void)blocks.put(tier);
  int which = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    const auto time = entry.last_write_time();
    if (which++ == 0)
      std::filesystem::resize_file(entry.path(), 500);
    else
      std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary)
          .seekp(300)
          .put('x')
          .put('y');
    std::filesystem::last_write_time(entry.path(), time);
  }
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kCorrupt));
}

TEST_F(DirectoryTierTest, T10_AMountThatHangsCostsTheDeadlineOnly) {
  kv_tier raw = make_directory_tier(root);
  GuardedTier tier(raw, test_digest(9), system_clock());
  Blocks blocks(3);
  // Opening a FIFO without a writer blocks, as a dead mount does.
  for (const Digest& key : blocks.keys) {
    const std::string name = hex(key);
    std::filesystem::create_directories(root + "/" + name.substr(0, 2));
    const std::string path = root + "/" + name.substr(0, 2) + "/" + name + ".kv";
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  EXPECT_EQ(blocks.get(tier, milliseconds(50)), all(3, TierStatus::kTimeout));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {  // let the thread go
    if (entry.is_directory()) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_NONBLOCK);
    if (fd >= 0) ::close(fd);
  }
}

TEST_F(DirectoryTierTest, OneThatIsNotThereFailsUntilItIs) {
  GuardedTier tier(make_directory_tier(root + "/mount/kv"), test_digest(9), system_clock());
  Blocks blocks(2);
  EXPECT_EQ(blocks.put(tier), all(2, TierStatus::kFailed));
  std::filesystem::create_directories(root + "/mount");
  EXPECT_EQ(blocks.put(tier), all(2, TierStatus::kOk));
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kOk));
}

// A redis-server of our own on a free port; not running when the program is missing.
class RedisServer {
 public:
  explicit RedisServer(std::string password = "") : password_(std::move(password)) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0)
      port = ntohs(address.sin_port);
    ::close(fd);
    start();
  }
  ~RedisServer() { stop(); }
  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string text = std::to_string(port);
      ::execlp("redis-check-rdb", "redis-server", "--port", text.c_str(), "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", "--logfile", "/dev/null", "--dir", "/tmp", "--requirepass", password_.c_str(),
               static_cast<char*>(nullptr));
      ::_exit(127);
    }
  }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Null when there is no redis-server on this machine.
  std::unique_ptr<GuardedTier> connect(const std::string& password = "") {
    RedisOptions options{.server = {.tls = false, .host = "127.0.0.1", .port = std::to_string(port)},
                         .user = "", .password = password, .prefix = "kv:"};
    for (int i = 0; i < 200; ++i) {
      auto tier = std::make_unique<GuardedTier>(make_redis_tier(options), test_digest(9), system_clock());
      const Digest key = test_digest(1);
      const TierStatus status = tier->exists(std::span(&key, 1), milliseconds(1000))[0];
      if (status == TierStatus::kAbsent) return tier;
      int exited = 0;
      if (::waitpid(pid_, &exited, WNOHANG) == pid_) {
        pid_ = -1;
        return nullptr;
      }
      ::usleep(50'000);
    }
    return nullptr;
  }
  int port = 0;

 private:
  const std::string password_;
  pid_t pid_ = -1;
};

TEST(RedisTier, KeepsBlocksForgetsThemInTimeAndSurvivesTheServersDeath) {
  RedisServer server;
  const auto connected = server.connect();
  if (connected == nullptr) GTEST_SKIP() << "no redis-server";
  GuardedTier& tier = *connected;
  Blocks blocks(20), brief(1, 100);
  EXPECT_EQ(blocks.put(tier), all(20, TierStatus::kOk));
  EXPECT_EQ(blocks.get(tier), all(20, TierStatus::kOk));
  EXPECT_EQ(blocks.out, blocks.values);
  EXPECT_EQ(brief.put(tier, seconds(1)), all(1, TierStatus::kOk));
  EXPECT_EQ(tier.exists(blocks.keys, milliseconds(5000)), all(20, TierStatus::kOk));
  EXPECT_EQ(tier.remove(std::span(blocks.keys).first(2), milliseconds(5000)), all(2, TierStatus::kOk));
  EXPECT_EQ(tier.exists(std::span(blocks.keys).first(2), milliseconds(5000)), all(2, TierStatus::kAbsent));
  ::usleep(1'200'000);
  EXPECT_EQ(brief.get(tier), all(1, TierStatus::kAbsent));
  server.stop();
  Blocks later(2, 200);
  for (const TierStatus status : later.get(tier, milliseconds(300)))
    EXPECT_TRUE(status == TierStatus::kFailed || status == TierStatus::kTimeout);
  server.start();
  TierStatus status =
      TierStatus::kFailed;  // a new connection is made by itself; missing blocks are not an error
  for (int i = 0; i < 100 && status != TierStatus::kOk; ++i) {
    ::usleep(100'000);
    status = later.put(tier)[0];
  }
  EXPECT_EQ(status, TierStatus::kOk);
}

TEST(RedisTier, NobodyListeningIsAFailure) {
  GuardedTier tier(*open_tier("redis://127.0.0.1:1"), test_digest(9), system_clock());
  Blocks blocks(2);
  EXPECT_EQ(blocks.get(tier), all(2, TierStatus::kFailed));
}

TEST(RedisTier, LogsInAndAWrongPasswordIsAFailure) {
  RedisServer server("open sesame");
  const auto tier = server.connect("open sesame");
  if (tier == nullptr) GTEST_SKIP() << "no redis-server";
  Blocks blocks(3);
  EXPECT_EQ(blocks.put(*tier), all(3, TierStatus::kOk));
  EXPECT_EQ(blocks.get(*tier), all(3, TierStatus::kOk));
  for (const char* password : {"", "open"}) {
    const RedisOptions options{.server = {.tls = false, .host = "127.0.0.1", .port = std::to_string(server.port)},
                               .user = "", .password = password, .prefix = "kv:"};
    GuardedTier stranger(make_redis_tier(options), test_digest(9), system_clock());
    EXPECT_EQ(blocks.get(stranger), all(3, TierStatus::kFailed)) << password;
  }
}

// ---- tiers that do not keep to deadlines

// Takes connections and sends `text` over and over, a byte every 10 ms: no single wait is long.
class DrippingServer {
 public:
  explicit DrippingServer(std::string text) : text_(std::move(text)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
    thread_ = std::jthread([this](const std::stop_token& stop) { drip(stop); });
  }
  ~DrippingServer() {
    thread_.request_stop();
    thread_.join();
    ::close(listener_);
  }
  int port = 0;

 private:
  void drip(const std::stop_token& stop) {
    std::vector<std::pair<int, size_t>> peers;  // and what was sent to each
    while (!stop.stop_requested()) {
      pollfd ready{listener_, POLLIN, 0};
      if (::poll(&ready, 1, 10) > 0) peers.emplace_back(::accept(listener_, nullptr, nullptr), 0);
      for (auto& [peer, sent] : peers)
        sent += ::send(peer, &text_[sent % text_.size()], 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 1 : 0;
    }
    for (const auto& [peer, sent] : peers) ::close(peer);
  }

  const std::string text_;
  const int listener_;
  std::jthread thread_;
};

void expect_deadlines_and_breaker(GuardedTier& tier) {
  Blocks blocks(4);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(blocks.get(tier, milliseconds(150)), all(4, TierStatus::kTimeout));
  EXPECT_EQ(blocks.get(tier, milliseconds(150)), all(4, TierStatus::kDown));
  EXPECT_TRUE(tier.stats().down);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));  // minutes without a deadline of the call
}

TEST(T09_DrippingTier, RedisThatSendsAByteAtATimeEndsAtTheDeadlineAndOpensTheBreaker) {
  DrippingServer server("$1000\r\n" + std::string(5000, 'x'));
  GuardedTier tier(*open_tier(fmt::format("redis://127.0.0.1:{}", server.port)), test_digest(9), system_clock());
  expect_deadlines_and_breaker(tier);
}

TEST(T09_DrippingTier, S3ThatSendsAByteAtATimeEndsAtTheDeadlineAndOpensTheBreaker) {
  DrippingServer server("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'x'));
  S3Options options{.endpoint = fmt::format("http://127.0.0.1:{}", server.port), .region = "r", .bucket = "b",
                    .prefix = "", .access_key = "a", .secret_key = "s", .connections = 2};
  GuardedTier tier(*make_s3_tier(options), test_digest(9), system_clock());
  expect_deadlines_and_breaker(tier);
}

// Keeps every call of a kind until it is let go, whatever its limit.
struct Stubborn {
  std::mutex mu;
  std::condition_variable released;
  bool holds_gets = false, holds_puts = false;
  std::atomic<int> entered{0};

  void hold(bool Stubborn::* kind) {
    std::unique_lock lock(mu);
    ++entered;
    released.wait(lock, [&] { return !(this->*kind); });
  }
  void let_go() {
    const std::lock_guard lock(mu);
    holds_gets = holds_puts = false;
    released.notify_all();
  }
  kv_tier tier() {
    kv_tier t{};
    t.abi = DEEPINFER_KV_TIER_ABI;
    t.name = "stubborn";
    t.self = this;
    t.get = [](void* self, size_t count, const kv_tier_key*, kv_tier_buffer*, int64_t, kv_tier_status* status) {
      static_cast<Stubborn*>(self)->hold(&Stubborn::holds_gets);
      std::fill_n(status, count, KV_TIER_ABSENT);
    };
    t.put = [](void* self, size_t count, const kv_tier_key*, const kv_tier_buffer*, uint32_t, int64_t,
               kv_tier_status* status) {
      static_cast<Stubborn*>(self)->hold(&Stubborn::holds_puts);
      std::fill_n(status, count, KV_TIER_OK);
    };
    t.close = [](void*) {};
    return t;
  }
};

TEST(T09_StubbornTier, EveryCallEndsAtItsLimitAlsoWhenAllThreadsHang) {
  ManualClock clock;
  Stubborn stubborn;
  stubborn.holds_gets = true;
  {
    GuardedTier tier(stubborn.tier(), test_digest(9), clock);
    Blocks blocks(2), later(2, 100);
    for (int round = 0; round < 3; ++round) {  // both threads hang, the third call waits for one
      EXPECT_EQ(blocks.get(tier, milliseconds(30)), all(2, TierStatus::kTimeout));
    }
    EXPECT_EQ(blocks.get(tier, milliseconds(30)), all(2, TierStatus::kDown));
    EXPECT_EQ(tier.stats().timeouts, 6u);
    EXPECT_EQ(tier.stats().skipped, 2u);
    EXPECT_EQ(blocks.put(tier), all(2, TierStatus::kDown));
    EXPECT_EQ(tier.stats().dropped, 2u);
    stubborn.let_go();
    clock.advance(seconds(6));
    EXPECT_EQ(later.get(tier, milliseconds(30'000)), all(2, TierStatus::kAbsent));  // what hung is free again
  }
  EXPECT_EQ(stubborn.entered, 3);  // the call that nobody waited for was not begun
}

TEST(T09_StubbornTier, AWriteThatHangsHoldsUpNoRead) {
  ManualClock clock;
  Stubborn stubborn;
  stubborn.holds_puts = true;
  GuardedTier tier(stubborn.tier(), test_digest(9), clock);
  std::jthread writer([&] {
    Blocks blocks(1);
    (void)blocks.put(tier);
  });
  while (stubborn.entered == 0) std::this_thread::yield();
  Blocks others(2, 50);
  EXPECT_EQ(others.get(tier, milliseconds(30'000)), all(2, TierStatus::kAbsent));
  stubborn.let_go();
}

TEST(OpenTier, AnAddressThatIsWrongIsNamedWithWhatWasExpected) {
  ::unsetenv("AWS_ACCESS_KEY_ID");
  for (const char* address :
       {"", "nfs://x", "file://relative", "redis://", "redis://host:x", "redis://host:0", "s3://", "s3://b"}) {
    const auto tier = open_tier(address);
    ASSERT_FALSE(tier.ok()) << address;
    EXPECT_EQ(tier.error().code(), Code::kInvalidArgument) << address;
    EXPECT_NE(tier.error().message().find(address), std::string::npos) << tier.error().message();
  }
  EXPECT_TRUE(open_tier("redis://127.0.0.1:1").ok());  // who answers shows at the first call
  EXPECT_EQ(open_tier("lib:/no/such/tier.so?x").error().code(), Code::kNotFound);
}

TEST(OpenTier, NoMessageRepeatsASecret) {
  for (const char* address : {"redis://:s3cret@host", "redis://me:s3cret@host:99/x", "redis://me:s3cret@host:x",
                              "rediss://s3cret@host:0", "s3://key:s3cret@bucket", "nfs://me:s3cret@x"}) {
    const auto tier = open_tier(address);
    ASSERT_FALSE(tier.ok()) << address;
    EXPECT_EQ(tier.error().message().find("s3cret"), std::string::npos) << tier.error().message();
  }
  EXPECT_EQ(without_secrets("redis://me@host/p"), "redis://***@host/p");
  EXPECT_EQ(without_secrets("file:///a@b"), "file:///a@b");
  EXPECT_NE(open_tier("redis://:s3cret@host").error().message().find("REDIS_PASSWORD_FILE"), std::string::npos);
}

TEST(LoadTier, ALibraryThatIsMissingIsNamed) {
  const auto tier = load_tier("/no/such/tier.so", "");
  ASSERT_FALSE(tier.ok());
  EXPECT_EQ(tier.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace deepinfer::store
