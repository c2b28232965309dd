// Days of real arrivals in virtual time: the public Mooncake trace (FAST'25), looped with renamed ids,
// against an oracle that knows nothing of segments, files or hash tables but keeps the same rules of capacity
// and promise.
//
// DEEPINFER_TRACES names the folder of the traces; without it arrivals with the trace's shape are drawn
// (shared system prompt, sessions that grow turn by turn). DEEPINFER_STORE_SLOW=1: 80 hours, else 4.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <sstream>
#include <unordered_map>

#include "store/log/store_rig.h"

namespace deepinfer::store {
namespace {

struct Request {
  double seconds;
  std::vector<uint64_t> blocks;
};

// "timestamp": ms, "hash_ids": [..]: one id a block of 512 tokens; equal ids mean equal blocks and equal
// prefixes.
std::vector<Request> read_trace(const std::string& path) {
  std::vector<Request> requests;
  FILE* file = ::popen(fmt::format("gzip -dc '{}'", path).c_str(), "r");
  if (file == nullptr) return requests;
  char* buffer = nullptr;
  size_t room = 0;
  while (::getline(&buffer, &room, file) > 0) {
    const std::string line = buffer;
    const size_t time_at = line.find("\"timestamp\":"), ids_at = line.find('[');
    if (time_at == std::string::npos || ids_at == std::string::npos) continue;
    Request request{std::stod(line.substr(time_at + 12)) / 1000, {}};
    std::istringstream ids(line.substr(ids_at + 1));
    for (uint64_t id = 0; ids >> id; ids.ignore(1)) request.blocks.push_back(id);
    requests.push_back(std::move(request));
  }
  std::free(buffer);
  ::pclose(file);
  return requests;
}

std::vector<Request> drawn_trace() {
  std::mt19937_64 random(11);
  std::vector<Request> requests;
  struct Session {
    std::vector<uint64_t> blocks;
  };
  std::deque<Session> sessions;
  uint64_t next_id = 1;
  for (double time = 0; time < 3540; time += 0.29) {
    if (sessions.size() < 5 || random() % 100 < 60) sessions.push_back({{0}});
    Session& session = sessions[sessions.size() - 1 - random() % std::min<size_t>(sessions.size(), 400)];
    for (uint64_t more = 1 + random() % 24; more > 0; --more) session.blocks.push_back(next_id++);
    requests.push_back({time, session.blocks});
  }
  return requests;
}

// One session in `share` is kept, so that days fit into memory; a session is known by its second block.
std::vector<Request> sample(std::vector<Request> requests, uint64_t share) {
  std::erase_if(requests, [&](const Request& request) {
    const uint64_t id = request.blocks.size() > 1 ? request.blocks[1]
                        : request.blocks.empty()  ? 0
                                                  : request.blocks[0];
    return id * 0x9e3779b97f4a7c15 >> 32 ? (id * 0x9e3779b97f4a7c15 >> 40) % share != 0 : share > 1;
  });
  return requests;
}

// The rules of docs/kv-store.md in a page: a block is promised 72 hours while promised bytes fit; others live
// while there is room, the oldest goes first; a use renews a promise.
class Oracle {
 public:
  Oracle(uint64_t promised_limit, uint64_t capacity) : promised_limit_(promised_limit), capacity_(capacity) {}

  bool find(uint64_t id, uint64_t hour) {
    advance(hour);
    const auto it = blocks_.find(id);
    if (it == blocks_.end()) return false;
    if (it->second.promised && it->second.hour + 72 < hour) {
      blocks_.erase(it);
      return false;
    }
    return true;
  }
  void use(uint64_t id, uint64_t hour) {
    const auto it = blocks_.find(id);
    if (it == blocks_.end() || it->second.hour == hour) return;
    if (it->second.promised) --by_hour_[it->second.hour], ++by_hour_[hour];
    it->second.hour = hour;
  }
  void put(uint64_t id, uint64_t hour) {
    advance(hour);
    const bool promised = promised_ < promised_limit_;
    blocks_[id] = {hour, promised};
    if (promised) {
      ++promised_;
      ++by_hour_[hour];
    } else {
      order_.push_back(id);
      while (promised_ + order_.size() > capacity_ && !order_.empty()) {
        const auto it = blocks_.find(order_.front());
        if (it != blocks_.end() && !it->second.promised) blocks_.erase(it);
        order_.pop_front();
      }
    }
  }
  bool is_promised(uint64_t id, uint64_t hour) const {
    const auto it = blocks_.find(id);
    return it != blocks_.end() && it->second.promised && it->second.hour + 72 >= hour;
  }

 private:
  struct Block {
    uint64_t hour;
    bool promised;
  };
  void advance(uint64_t hour) {
    while (!by_hour_.empty() && by_hour_.begin()->first + 72 < hour) {
      promised_ -= by_hour_.begin()->second;
      by_hour_.erase(by_hour_.begin());
    }
  }
  const uint64_t promised_limit_, capacity_;
  uint64_t promised_ = 0;
  std::unordered_map<uint64_t, Block> blocks_;
  std::map<uint64_t, uint64_t> by_hour_;
  std::deque<uint64_t> order_;
};

struct Outcome {
  uint64_t asked = 0, hit = 0, oracle_hit = 0, broken = 0, persisted = 0, demoted = 0;
  double hours = 0;
};

Outcome replay(const std::vector<Request>& loop, double hours, uint64_t capacity_blocks) {
  StoreOptions options = small_options();
  options.payload_bytes = 3000;
  options.group_bytes = {3000, 0, 0, 0};
  options.segment_bytes = 1 << 20;
  options.capacity_bytes = std::max<uint64_t>(capacity_blocks * 4096, 32 << 20);
  options.staging_bytes = 4 << 20;
  options.commit_bytes = 1 << 20;
  options.seal_after = std::chrono::minutes(120);
  options.reinsertion_share = 0;  // the oracle does not reinsert
  Rig rig(1, options);
  CHECK(rig.open().ok());
  const uint32_t tenant = *rig.store->domain("tenant");
  const uint64_t slots = options.capacity_bytes / 4096;
  const StoreStats at_start = rig.store->stats();
  Oracle oracle(at_start.promised_limit_bytes / 4096, slots * 95 / 100);
  const std::vector<std::byte> payload(3000);
  const double loop_seconds = loop.back().seconds + 1;
  const auto start_hour = [&] {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::hours>(rig.clock.wall_now().time_since_epoch()).count());
  };
  Outcome outcome;
  double now = 0;
  for (uint64_t round = 0; now < hours * 3600; ++round) {
    for (const Request& request : loop) {
      const double at = static_cast<double>(round) * loop_seconds + request.seconds;
      if (at > now) rig.clock.advance(std::chrono::nanoseconds(static_cast<int64_t>((at - now) * 1e9)));
      now = std::max(now, at);
      const uint64_t hour = start_hour();
      std::vector<Digest> keys;
      std::vector<uint64_t> ids;
      for (const uint64_t id : request.blocks) {  // the system prompt stays itself in every loop
        ids.push_back(id == 0 ? 0 : round << 32 | id);
        keys.push_back(test_digest(ids.back()));
      }
      size_t expected = 0;
      while (expected < ids.size() && oracle.find(ids[expected], hour)) ++expected;
      size_t found = 0;
      {
        const Hit hit = rig.store->lookup(tenant, keys, Lineage::kExact);
        found = hit.num_blocks();
        if (request.blocks.size() % 16 == 0)  // some are read to the last byte
          found = rig.store
                      ->load(hit, 0, rig.clock.now() + std::chrono::seconds(1),
                             [](size_t, std::span<const std::byte>) {})
                      .num_blocks;
        else
          rig.store->touch(tenant, std::span(keys).first(found));
      }
      outcome.asked += ids.size();
      outcome.hit += found;
      outcome.oracle_hit += expected;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i < expected)
          oracle.use(ids[i], hour);
        else if (!oracle.find(ids[i], hour))
          oracle.put(ids[i], hour);
        if (i < found) continue;
        BlockInfo info;
        info.domain = tenant;
        info.key = keys[i];
        info.block_index = static_cast<uint32_t>(i);
        info.retention = RetentionClass::kGuaranteed;
        if (rig.store->put(info, payload) == PutResult::kFull) {
          CHECK(rig.store->flush(rig.clock.now()).ok());
          (void)rig.store->put(info, payload);
        }
      }
      CHECK(rig.store->flush(rig.clock.now()).ok());
    }
    while (rig.store->step()) {
    }
  }
  const StoreStats stats = rig.store->stats();
  outcome.broken = stats.broken_promises;
  outcome.persisted = stats.persisted;
  outcome.demoted = stats.demoted;
  outcome.hours = now / 3600;
  std::printf(
      "%.0f h: %llu blocks asked, hit %.2f %%, oracle %.2f %%; %llu persisted, %llu without a promise, %llu "
      "reclaims\n",
      outcome.hours, static_cast<unsigned long long>(outcome.asked),
      100.0 * static_cast<double>(outcome.hit) / static_cast<double>(outcome.asked),
      100.0 * static_cast<double>(outcome.oracle_hit) / static_cast<double>(outcome.asked),
      static_cast<unsigned long long>(outcome.persisted), static_cast<unsigned long long>(outcome.demoted),
      static_cast<unsigned long long>(stats.drives[0].reclaims));
  return outcome;
}

TEST(T34_Trace, HitRatioIsThatOfTheOracleAndNoPromiseIsBroken) {
  const bool slow = std::getenv("DEEPINFER_STORE_SLOW") != nullptr;
  const char* folder = std::getenv("DEEPINFER_TRACES");
  std::vector<Request> loop;
  if (folder != nullptr)
    loop = read_trace(std::string(folder) + "/mooncake-fast25/conversation_trace.jsonl.gz");
  if (loop.empty()) loop = drawn_trace();
  const double hours = slow ? 80 : 4;
  loop = sample(std::move(loop), slow ? 10 : 20);
  ASSERT_GT(loop.size(), 100u);
  uint64_t per_loop = 0;
  {
    std::unordered_map<uint64_t, bool> seen;
    for (const Request& request : loop)
      for (const uint64_t id : request.blocks) per_loop += seen.emplace(id, true).second ? 1 : 0;
  }
  // Room for all, for half, for a tenth of what arrives.
  for (const double share : {1.4, 0.5, 0.1}) {
    const auto blocks = static_cast<uint64_t>(share * static_cast<double>(per_loop) * hours * 3600 /
                                              (loop.back().seconds + 1));
    const Outcome outcome = replay(loop, hours, blocks);
    EXPECT_EQ(outcome.broken, 0u);
    const double difference = static_cast<double>(outcome.hit) - static_cast<double>(outcome.oracle_hit);
    EXPECT_LE(std::abs(difference), 0.01 * static_cast<double>(outcome.asked)) << "share " << share;
  }
}

}  // namespace
}  // namespace deepinfer::store
