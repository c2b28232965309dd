// What survives the end of the process and of the power: at every persistence point, in every order of a few
// actions, and under kill -9. DEEPINFER_STORE_SLOW=1 runs the long versions.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/log.h"
#include "store/log/inspect.h"
#include "store/load_cost.h"
#include "store/log/store_rig.h"

namespace deepinfer::store {
namespace {

bool slow() {
  return std::getenv("DEEPINFER_STORE_SLOW") != nullptr;
}

// ---- T07: power loss at every persistence point
// -----------------------------------------------------------------------

struct Acknowledged {
  uint32_t tenant = 0, doomed = 0;
  std::vector<std::vector<Digest>> guaranteed;   // persisted, within their time
  std::vector<std::vector<Digest>> best_effort;  // may be gone, must not be wrong
  std::vector<Digest> doomed_keys;
  bool deleted = false;
};

// Puts a chain; true when the store said that all of it is persisted.
bool put_acknowledged(Rig& rig, uint32_t domain, std::span<const Digest> keys, RetentionClass retention) {
  const uint64_t before = rig.store->stats().persisted;
  const Status done = rig.put_all(domain, keys, retention);
  return done.ok() && rig.store->stats().persisted - before == keys.size();
}

void run_scenario(Rig& rig, Acknowledged& log) {
  if (!rig.open().ok()) return;
  const auto tenant = rig.store->domain("tenant"), doomed = rig.store->domain("doomed");
  if (!tenant.ok() || !doomed.ok()) return;
  log.tenant = *tenant;
  log.doomed = *doomed;
  const auto guaranteed = [&](uint64_t name, size_t count) {
    const auto keys = rig.chain(log.tenant, name, count);
    if (put_acknowledged(rig, log.tenant, keys, RetentionClass::kGuaranteed)) log.guaranteed.push_back(keys);
  };
  guaranteed(1, 6);
  guaranteed(2, 20);
  log.doomed_keys = rig.chain(log.doomed, 3, 5);
  (void)put_acknowledged(rig, log.doomed, log.doomed_keys, RetentionClass::kGuaranteed);
  for (uint64_t name = 10; name < 28; ++name) {
    log.best_effort.push_back(rig.chain(log.tenant, name, 14));
    (void)put_acknowledged(rig, log.tenant, log.best_effort.back(), RetentionClass::kBestEffort);
    if (name == 18) {
      rig.clock.advance(std::chrono::minutes(20));
      rig.store->step();
      log.deleted = rig.store->delete_domain(log.doomed).ok();
    }
    if (name == 20) guaranteed(4, 9);
  }
  EXPECT_EQ(rig.store->stats().broken_promises, 0u);
}

void check_after_crash(Rig& rig, const Acknowledged& log) {
  const Status opened = rig.open();
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  if (log.tenant == 0) return;
  ASSERT_EQ(*rig.store->domain("tenant"), log.tenant);
  for (const auto& keys : log.guaranteed) EXPECT_EQ(rig.load(log.tenant, keys), keys.size());
  for (const auto& keys : log.best_effort) (void)rig.load(log.tenant, keys);
  if (log.deleted) {
    EXPECT_EQ(rig.load(log.doomed, log.doomed_keys), 0u);
  }
  const StoreStats stats = rig.store->stats();
  EXPECT_EQ(stats.drives[0].corrupt, 0u);
  EXPECT_LE(stats.drives[0].used_bytes, stats.drives[0].capacity_bytes);
  EXPECT_EQ(stats.drives[0].records, stats.records);
  // It goes on as if nothing had happened.
  const auto fresh = rig.chain(log.tenant, 1000, 10);
  ASSERT_TRUE(rig.put_all(log.tenant, fresh).ok());
  EXPECT_EQ(rig.load(log.tenant, fresh), 10u);
  const uint64_t records = rig.store->stats().records;
  ASSERT_TRUE(rig.reopen().ok());
  EXPECT_EQ(rig.store->stats().records, records);
  EXPECT_EQ(rig.wrong, 0u);
}

TEST(T07_PowerLoss, AtEveryPersistencePointKeepsWhatWasPersistedAndShowsNothingHalfWritten) {
  const uint64_t seeds = slow() ? 20 : 1;
  uint64_t points = 0;
  {
    Rig rig;
    Acknowledged log;
    run_scenario(rig, log);
    points = rig.disk.persistence_points();
    ASSERT_EQ(log.guaranteed.size(), 3u);
    ASSERT_GT(rig.store->stats().drives[0].reclaims, 5u);
  }
  ASSERT_GT(points, 150u);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (uint64_t point = 0; point <= points; ++point) {
      Rig rig(seed * 1000 + point);
      Acknowledged log;
      rig.disk.power_off_at(point);
      run_scenario(rig, log);
      rig.store.reset();
      rig.disk.restart();
      check_after_crash(rig, log);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "power off at point " << point << " of " << points << ", seed " << seed;
        return;
      }
    }
  }
}

TEST(T07_PowerLoss, DuringRecoveryItselfIsNoWorse) {
  for (uint64_t point = 0; point < 40; ++point) {
    Rig rig(point + 1);
    Acknowledged log;
    rig.disk.power_off_at(170);
    run_scenario(rig, log);
    rig.store.reset();
    rig.disk.restart();
    rig.disk.power_off_at(rig.disk.persistence_points() + point);
    (void)rig.open();
    rig.store.reset();
    rig.disk.restart();
    check_after_crash(rig, log);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "point " << point;
  }
}

// ---- T04: every order of a few actions
// --------------------------------------------------------------------------------

enum Action {
  kPutA,
  kPutB,
  kStep,
  kFlush,
  kLoadA,
  kPinA,
  kUnpinA,
  kFill,
  kDays,
  kPower,
  kDamageA,
  kNumActions
};

// What a block may be: the abstract state beside the store. A was persisted or not, is sound or not, is in
// time or not.
struct Model {
  bool queued = false;     // put and not yet known to be written
  bool persisted = false;  // flushed
  bool damaged = false;    // since the last put
  bool scanned = false;    // damaged, and recovery may have seen it: then the next put writes again
  bool lost = false;       // there or not: queued when the power went, or put after such a recovery
  std::chrono::hours used{0}, now{0}, put_at{0};

  bool must_be_found() const { return persisted && !damaged && now - used <= std::chrono::hours(72); }
  bool must_be_gone() const { return !queued && !persisted && !lost; }
};

void run_sequence(std::span<const Action> actions) {
  Rig rig;
  ASSERT_TRUE(rig.open().ok());
  const uint32_t tenant = *rig.store->domain("tenant");
  const auto a = rig.chain(tenant, 1, 2);
  Model model;
  Hit pin;
  bool pin_sound = false;
  uint64_t fill = 100;
  for (const Action action : actions) {
    switch (action) {
      case kPutA:
        for (size_t i = 0; i < 2; ++i) (void)rig.put(tenant, a, i);
        // Present as far as the store knows, damaged or not: then nothing is written.
        if (model.scanned)
          model.persisted = model.damaged = false, model.lost = true;
        else if (model.persisted && model.now - model.used <= std::chrono::hours(72))
          model.used = model.now;
        else if (!model.queued)
          model.queued = true, model.put_at = model.now;
        break;
      case kPutB:
        (void)rig.put(tenant, rig.chain(tenant, 2, 2), 0, RetentionClass::kBestEffort);
        break;
      case kStep:
        rig.store->step();
        break;
      case kFlush:
        ASSERT_TRUE(rig.store->flush(rig.clock.now()).ok());
        if (model.queued) model = {.persisted = true, .used = model.put_at, .now = model.now, .put_at = model.put_at};
        break;
      case kLoadA: {
        const bool must = model.must_be_found();
        const size_t found = rig.load(tenant, a);
        if (must) {
          ASSERT_EQ(found, 2u);
          model.used = model.now;
        }
        if (model.must_be_gone()) {
          ASSERT_EQ(found, 0u);
        }
        if (model.damaged) {
          ASSERT_LT(found, 2u);
        }
        if (model.damaged) model.persisted = model.damaged = false, model.lost = true;  // a tombstone
        model.scanned = false;
        break;
      }
      case kPinA:
        pin = rig.store->lookup(tenant, a, Lineage::kDerived);
        pin_sound = model.persisted && !model.damaged;
        break;
      case kUnpinA:
        pin = {};
        break;
      case kFill:
        for (int i = 0; i < 18; ++i)
          ASSERT_TRUE(rig.put_all(tenant, rig.chain(tenant, fill++, 14), RetentionClass::kBestEffort).ok());
        if (model.queued) model = {.persisted = true, .used = model.put_at, .now = model.now, .put_at = model.put_at};
        if (pin.num_blocks() == 2 && pin_sound) {  // pinned: whatever happened
          ASSERT_EQ(rig.load(pin, a), 2u);
        }
        break;
      case kDays:
        rig.clock.advance(std::chrono::hours(50));
        model.now += std::chrono::hours(50);
        break;
      case kPower:
        pin = {};
        rig.store.reset();
        rig.disk.restart();
        ASSERT_TRUE(rig.open().ok());
        model.lost |= model.queued;
        model.queued = false;
        model.scanned |= model.damaged;
        break;
      case kDamageA:
        if (const auto record = rig.find_record(a[0]); record && model.persisted && !model.damaged) {
          rig.disk.flip_bit(record->first, record->second + 700);
          model.damaged = true;
          pin = {};
        }
        break;
      case kNumActions:
        break;
    }
    ASSERT_EQ(rig.wrong, 0u);
    ASSERT_EQ(rig.store->stats().broken_promises, 0u);
  }
}

TEST(T04_Orders, EverySequenceOfActionsKeepsThePromises) {
  const size_t depth = slow() ? 5 : 3;
  std::vector<Action> actions(depth + 2, kPutA);
  uint64_t total = 1;
  for (size_t i = 0; i < depth; ++i) total *= kNumActions;
  for (uint64_t code = 0; code < total; ++code) {
    uint64_t rest = code;
    for (size_t i = 0; i < depth; ++i, rest /= kNumActions)
      actions[i + 1] = static_cast<Action>(rest % kNumActions);
    actions[depth + 1] = kLoadA;
    run_sequence(actions);
    if (::testing::Test::HasFatalFailure()) {
      std::string text;
      for (const Action action : actions) text += std::to_string(action) + " ";
      FAIL() << "sequence " << text;
    }
  }
}

// ---- T08: kill -9
// -----------------------------------------------------------------------------------------------------

constexpr size_t kChain = 6;

StoreOptions real_options(const std::string& path) {
  StoreOptions options = small_options();
  options.drives = {path};
  options.capacity_bytes = 256 << 20;
  options.segment_bytes = 1 << 20;
  options.threads = true;
  options.commit_delay = std::chrono::milliseconds(1);
  options.read_bytes = 1 << 18;
  return options;
}

std::vector<Digest> real_chain(Store& store, uint32_t domain, const Digest& fingerprint, uint64_t name) {
  ChainHasher hasher(*store.chain_key(domain), fingerprint);
  std::vector<Digest> keys;
  Digest parent = hasher.root();
  for (uint64_t i = 0; i < kChain; ++i) {
    const uint64_t tokens[2] = {name, i};
    keys.push_back(parent = hasher.next(parent, std::as_bytes(std::span(tokens))));
  }
  return keys;
}

// The child: checks what earlier ones had acknowledged, reports it, then writes and acknowledges until it is
// killed.
[[noreturn]] void child(const std::string& path, uint64_t first_name, std::span<const uint64_t> acknowledged,
                        int out) {
  const auto die = [](int code) { _exit(code); };
  auto backend = make_io_backend(IoKind::kAuto);
  if (!backend.ok()) die(10);
  const StoreOptions options = real_options(path);
  auto opened = Store::open(options, **backend, system_clock());
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.error().message().c_str());
    die(11);
  }
  Store& store = **opened;
  const auto soon = [] { return system_clock().now() + std::chrono::seconds(60); };
  if (!store.wait_ready(soon()).ok()) die(12);
  // Given up: what it lost is time, not records. On a machine that stops the process for longer than write_limit.
  if (const std::string state = store.stats().drives[0].state; state != "ok") {
    std::fprintf(stderr, "the drive is %s\n", state.c_str());
    die(22);
  }
  const auto tenant = store.domain("tenant");
  if (!tenant.ok()) die(13);
  if (store.stats().records < acknowledged.size() * kChain) die(14);
  const size_t skip = acknowledged.size() > 60 ? acknowledged.size() - 60 : 0;
  for (const uint64_t name : acknowledged.subspan(skip)) {
    const auto keys = real_chain(store, *tenant, options.fingerprint, name);
    const Hit hit = store.lookup(*tenant, keys, Lineage::kExact);
    bool wrong = false;
    const LoadResult result = store.load(hit, 0, soon(), [&](size_t i, std::span<const std::byte> payload) {
      const auto expected = payload_of(keys[i], options.payload_bytes);
      wrong |= !std::equal(payload.begin(), payload.end(), expected.begin(), expected.end());
    });
    if (wrong) die(15);
    if (result.num_blocks != kChain) die(16);
  }
  uint64_t name = 0;
  if (::write(out, &name, sizeof name) != sizeof name) die(17);  // 0: all of it was there
  for (name = first_name;; ++name) {
    const auto keys = real_chain(store, *tenant, options.fingerprint, name);
    for (size_t i = 0; i < kChain; ++i) {
      BlockInfo info;
      info.domain = *tenant;
      info.key = keys[i];
      info.block_index = static_cast<uint32_t>(i);
      if (store.put(info, payload_of(keys[i], options.payload_bytes)) != PutResult::kQueued) die(18);
    }
    if (!store.flush(soon()).ok()) die(19);
    // A full store keeps nothing for best effort: what it demoted may go, so this test must never fill it.
    if (store.stats().demoted > 0) die(21);
    if (::write(out, &name, sizeof name) != sizeof name) die(20);
  }
}

TEST(T06_Inspect, EachDamagedRecordIsNamedAndASoundDirectoryIsClean) {
  Rig rig;
  ASSERT_TRUE(rig.open().ok());
  const uint32_t tenant = *rig.store->domain("tenant");
  const auto keys = rig.chain(tenant, 1, 30);
  ASSERT_TRUE(rig.put_all(tenant, keys).ok());
  const auto live = inspect_drive(rig.disk, "/kv", {});  // beside the writer, one segment open
  ASSERT_TRUE(live.ok()) << live.error().message();
  EXPECT_EQ(live->records, 30u);
  EXPECT_TRUE(live->damage.empty());
  EXPECT_EQ(live->by_domain.at(tenant), 30u);
  std::vector<std::pair<std::string, uint64_t>> planted;
  for (const size_t i : {3u, 20u}) {
    planted.push_back(*rig.find_record(keys[i]));
    rig.disk.flip_bit(planted.back().first, planted.back().second + 555);
  }
  rig.store.reset();
  size_t listed = 0;
  InspectOptions options;
  options.on_record = [&](const std::string&, const RecordHeader&) { ++listed; };
  const auto report = inspect_drive(rig.disk, "/kv", options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->records, 28u);
  EXPECT_EQ(listed, 28u);
  ASSERT_EQ(report->damage.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ("/kv/" + report->damage[i].file, planted[i].first);
    EXPECT_EQ(report->damage[i].offset, planted[i].second);
    EXPECT_NE(report->damage[i].what.find("group"), std::string::npos) << report->damage[i].what;
  }
  EXPECT_EQ(inspect_drive(rig.disk, "/nowhere", {}).error().code(), Code::kNotFound);
}

// T14: a load happens only where it beats computing the same tokens.
TEST(T14_Benefit, ALoadPaysFromTheLengthAtWhichTheTierBeatsComputing) {
  const uint64_t block = 113'920;
  const LoadCost local{0.0002, 1e9, 30'000}, object{0.030, 1e9, 30'000}, slow_tier{0.1, 1e6, 30'000};
  EXPECT_TRUE(load_pays(local, 1, block, 128));
  EXPECT_FALSE(load_pays(object, 9, block, 9 * 128));
  EXPECT_TRUE(load_pays(object, 12, block, 12 * 128));
  EXPECT_FALSE(load_pays(object, 12, block, 128));  // most rows would be computed all the same
  EXPECT_FALSE(load_pays(slow_tier, 1000, block, 128'000));
  EXPECT_FALSE(load_pays(local, 0, block, 0));
  EXPECT_EQ(load_limit(local, 1280, std::chrono::seconds(1)), std::chrono::nanoseconds(29'866'666));
  EXPECT_EQ(load_limit(local, 128'000, std::chrono::seconds(1)), std::chrono::seconds(1));
}

TEST(T14_Benefit, TheCostFollowsWhatLoadsTook) {
  const uint64_t block = 100'000;
  LoadCost cost{0.0002, 1e9, 30'000};
  for (int i = 0; i < 50; ++i) cost.observe(100, block, 0.1);  // 0.1 GB/s
  EXPECT_NEAR(cost.bytes_per_s, 1e8, 1e6);
  for (int i = 0; i < 50; ++i) cost.observe(1, block, 0.031);
  EXPECT_NEAR(cost.first_byte_s, 0.030, 0.001);
  cost.observe(0, block, 1);
  cost.observe(1, block, 0);
  EXPECT_NEAR(cost.first_byte_s, 0.030, 0.001);
}

TEST(T13_Threads, DomainsAreMadeAndBlocksPutWhileRecoveryRuns) {
  const std::string root =
      std::filesystem::temp_directory_path() / fmt::format("deepinfer-recovery-{}", getpid());
  for (const IoKind kind : {IoKind::kThreads, IoKind::kAuto}) {
    std::filesystem::remove_all(root);
    auto backend = make_io_backend(kind);
    ASSERT_TRUE(backend.ok());
    std::vector<Digest> all;
    for (uint64_t round = 0; round < 20; ++round) {
      const StoreOptions options = real_options(root);
      auto store = Store::open(options, **backend, system_clock());
      ASSERT_TRUE(store.ok()) << store.error().message();
      const auto domain = (*store)->domain("tenant");  // at once, beside the recovering writer
      ASSERT_TRUE(domain.ok()) << domain.error().message();
      const auto other = (*store)->domain(fmt::format("tenant {}", round));
      ASSERT_TRUE(other.ok()) << other.error().message();
      const auto soon = system_clock().now() + std::chrono::seconds(60);
      ASSERT_TRUE((*store)->wait_ready(soon).ok());
      const auto keys = real_chain(**store, *domain, options.fingerprint, round);
      for (size_t i = 0; i < keys.size(); ++i) {
        BlockInfo info;
        info.domain = *domain;
        info.key = keys[i];
        info.block_index = static_cast<uint32_t>(i);
        ASSERT_EQ((*store)->put(info, payload_of(keys[i], options.payload_bytes)), PutResult::kQueued);
      }
      ASSERT_TRUE((*store)->flush(soon).ok());
      EXPECT_EQ((*store)->lookup(*domain, keys, Lineage::kExact).num_blocks(), keys.size());
      EXPECT_EQ((*store)->stats().records, (round + 1) * kChain);
      size_t delivered = 0;
      const Hit hit = (*store)->lookup(*domain, keys, Lineage::kExact);
      const auto loaded =
          (*store)->load(hit, 0, soon, [&](size_t, std::span<const std::byte>) { ++delivered; });
      EXPECT_EQ(loaded.num_blocks, keys.size());
      EXPECT_EQ(delivered, keys.size());
      EXPECT_EQ((*store)->stats().drives[0].lost_files, 0u);
    }
  }
  std::filesystem::remove_all(root);
}

TEST(T08_Kill, NoPersistedBlockIsLostOrWrongUnderKillNine) {
  const int rounds = slow() ? 10'000 : 200, a_directory = 200;
  std::mt19937_64 random(7);
  const std::string root =
      std::filesystem::temp_directory_path() / fmt::format("deepinfer-kill-{}", getpid());
  std::vector<uint64_t> acknowledged;
  uint64_t next_name = 1, total = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round % a_directory == 0) {
      std::filesystem::remove_all(root);
      std::filesystem::create_directories(root);
      acknowledged.clear();
    }
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::close(pipe_ends[0]);
      spdlog::set_level(spdlog::level::off);
      child(root + "/kv", next_name, acknowledged, pipe_ends[1]);
    }
    ::close(pipe_ends[1]);
    uint64_t name = 1;
    const bool verified = ::read(pipe_ends[0], &name, sizeof name) == sizeof name && name == 0;
    // Counted in commits, so that a slow disk gets some and a fast one does not fill the directory.
    for (uint64_t commits = random() % 4; verified && commits > 0; --commits) {
      if (::read(pipe_ends[0], &name, sizeof name) != sizeof name) break;
      acknowledged.push_back(name);
      ++total;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    while (::read(pipe_ends[0], &name, sizeof name) == sizeof name) {
      acknowledged.push_back(name);
      ++total;
    }
    ::close(pipe_ends[0]);
    ASSERT_TRUE(verified) << "round " << round << ": the child ended with " << WEXITSTATUS(status);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": the child ended with " << WEXITSTATUS(status);
    next_name += 1000;
  }
  std::filesystem::remove_all(root);
  EXPECT_GT(total, static_cast<uint64_t>(rounds) / 4);
  std::printf("%d kills, %llu chains acknowledged\n", rounds, static_cast<unsigned long long>(total));
}

}  // namespace
}  // namespace deepinfer::store
