// The KV store beside a raw io_uring loop and RocksDB BlobDB, in the same run on the same file system.
//
//   ./run bench store [--dir DIR] [--gib N] [--rounds N]
//
// Each round measures every line once, in turn; medians of the ratios are printed, so that a machine whose
// speed drifts does not favour one side. RocksDB is a bench opponent only (apt: librocksdb-dev); without it
// its lines are left out.
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "machine_probe.h"
#include "store/log/index.h"
#include "cache/keys.h"
#include "store/store.h"

#ifdef DEEPINFER_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#endif

namespace deepinfer::store {
namespace {

constexpr uint32_t kPayload = 113'920;  // DeepSeek-V4.1-Flash
constexpr uint32_t kSlot = 114'688;
constexpr size_t kDepth = 16, kUnit = 32;

using Seconds = std::chrono::duration<double>;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::time_point::clock::now();
  work();
  return Seconds(Clock::time_point::clock::now() - start).count();
}

// Processor time of this thread: what a core can do, whatever else runs on it now.
double processor_seconds_of(const std::function<void()>& work) {
  const auto now = [] {
    timespec time;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "store_bench: {}\n", result.error().message());
    std::exit(1);
  }
  return std::move(result).value();
}

void must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "store_bench: {}\n", status.error().message());
  std::exit(1);
}

struct Setup {
  std::string directory;
  uint64_t blocks = 0;
  int rounds = 5;
};

// Reads or writes `requests` of `bytes` at the given offsets, `depth` in flight; a sync each `sync_every` (0:
// none).
class Raw {
 public:
  Raw(IoBackend& backend, const std::string& path, uint64_t size) : backend_(backend) {
    file_ = must(backend.open(path, OpenMode::kCreate));
    must(backend.allocate(*file_, size));
  }
  void run(IoRequest::Op op, std::span<const uint64_t> offsets, uint64_t bytes, size_t depth,
           size_t sync_every = 0) {
    if (queue_ == nullptr || queue_->memory().size() < depth * bytes)
      queue_ = must(backend_.make_queue(64, depth * bytes));
    std::vector<size_t> idle(depth);
    for (size_t i = 0; i < depth; ++i) idle[i] = i;
    size_t next = 0, since_sync = 0;
    std::array<IoCompletion, 64> done;
    const auto far = Clock::time_point::clock::now() + std::chrono::hours(1);
    while (next < offsets.size() || queue_->in_flight() > 0) {
      std::vector<IoRequest> requests;
      while (next < offsets.size() && !idle.empty() && (sync_every == 0 || since_sync < sync_every)) {
        const size_t lane = idle.back();
        idle.pop_back();
        requests.push_back(
            {op, file_.get(), offsets[next++], queue_->memory().subspan(lane * bytes, bytes), lane});
        ++since_sync;
      }
      queue_->submit(requests);
      if (queue_->in_flight() == 0) {
        sync();
        since_sync = 0;
        continue;
      }
      const size_t count = queue_->wait(done, far);
      for (size_t i = 0; i < count; ++i) {
        must(to_status(done[i], bytes, "raw"));
        idle.push_back(done[i].tag);
      }
    }
    if (sync_every != 0) sync();
  }

 private:
  void sync() {
    const IoRequest request{IoRequest::Op::kSync, file_.get(), 0, {}, 0};
    must(run_one(*queue_, request, system_clock(), std::chrono::minutes(1)));
  }
  IoBackend& backend_;
  std::shared_ptr<IoFile> file_;
  std::unique_ptr<IoQueue> queue_;
};

Digest numbered(Mac& mac, uint64_t number) {
  const std::span<const std::byte> part = std::as_bytes(std::span(&number, 1));
  return mac.digest(std::span(&part, 1));
}

StoreOptions options_for(const std::string& directory, uint64_t blocks) {
  StoreOptions options;
  options.drives = {directory};
  options.capacity_bytes = std::max<uint64_t>(blocks * kSlot * 3, 20ull << 30);
  options.fingerprint[0] = std::byte{1};
  options.payload_bytes = kPayload;
  options.group_bytes = {22'784, 22'784, 22'784, 45'568};
  options.master_key[0] = std::byte{1};
  options.read_queues = 2;
  options.read_depth = kDepth;
  options.scrub_every = std::chrono::hours(0);
  return options;
}

class Table {
 public:
  void add(const std::string& line, const std::string& unit, double value, double floor, double target) {
    Row& row = rows_[line];
    if (row.values.empty()) order_.push_back(line);
    row.unit = unit;
    row.target = target;
    row.values.push_back(value);
    if (floor > 0) row.ratios.push_back(value / floor), row.floors.push_back(floor);
  }
  void print() {
    fmt::print("{:<44} {:>12} {:>12} {:>8} {:>8}\n", "work", "median", "raw", "share", "wanted");
    for (const std::string& line : order_) {
      const Row& row = rows_[line];
      const std::string value = fmt::format("{:.2f} {}", median(row.values), row.unit);
      if (row.ratios.empty())
        fmt::print("{:<44} {:>12} {:>12} {:>8} {:>8}\n", line, value, "", "",
                   row.target > 0 ? fmt::format("{:g}", row.target) : "");
      else
        fmt::print("{:<44} {:>12} {:>12.2f} {:>7.0f}% {:>7}\n", line, value, median(row.floors),
                   100 * median(row.ratios),
                   row.target > 0 ? fmt::format(">={:.0f}%", 100 * row.target) : "");
    }
  }

 private:
  struct Row {
    std::string unit;
    double target = 0;
    std::vector<double> values, ratios, floors;
  };
  std::map<std::string, Row> rows_;
  std::vector<std::string> order_;
};

void bench_index(Table& table, int rounds) {
  constexpr uint32_t kSegments = 200;
  const Geometry geometry = must(Geometry::make(kPayload, 1u << 30));
  SegmentHeader segment;
  segment.generation = 1;
  segment.geometry = geometry;
  Mac mac(Key{});
  std::vector<std::vector<std::byte>> footers;
  for (uint32_t s = 0; s < kSegments; ++s) {
    std::vector<FooterEntry> entries(geometry.num_slots);
    for (uint32_t i = 0; i < geometry.num_slots; ++i) {
      entries[i].slot = static_cast<uint16_t>(i + 1);
      const uint64_t number = uint64_t{s} << 32 | i;
      if (i % 64 == 0)
        entries[i].key = numbered(mac, number);
      else {  // a cheap mix of the last digest: the index only needs the bits to be uniform
        uint64_t words[4];
        std::memcpy(words, entries[i - 1].key.data(), 32);
        for (uint64_t& word : words) word = (word ^ word >> 29) * 0xbf58476d1ce4e5b9 + number;
        std::memcpy(entries[i].key.data(), words, 32);
      }
    }
    footers.emplace_back(geometry.footer_bytes(geometry.num_slots));
    FooterHeader header;
    header.generation = segment.generation;
    write_footer(footers.back(), header, entries);
  }
  const double records = static_cast<double>(kSegments) * geometry.num_slots;
  for (int round = 0; round < rounds; ++round) {
    Index index = must(Index::make(static_cast<uint64_t>(records)));
    const double seconds = processor_seconds_of([&] {
      for (uint32_t s = 0; s < kSegments; ++s) {
        const auto header = must(parse_footer_header(footers[s], segment));
        must(check_footer_entries(footers[s], header, segment));
        for (uint32_t i = 0; i < header.num_entries; ++i) {
          if (i + 8 < header.num_entries) index.prefetch(footer_key(footers[s], i + 8));
          const FooterEntry entry = footer_entry(footers[s], i);
          if (index.find(entry.key)) continue;
          (void)index.insert(entry.key, {{s, entry.slot}, entry.retention, entry.lineage, 0, 1});
        }
      }
    });
    const double rate = records / seconds;
    table.add("index recovery from footers, a core", "M/s", rate / 1e6, 0, 7);
    table.add("  projected for 100 TB (871 M) on one core", "s", 871e6 / rate, 0, 0);
  }
}

// What a tenant can learn from the time of a miss: one asks for prompts that another has stored, and for prompts that
// nobody has. The share is the first beside the second; 100 % is what isolation wants.
void bench_isolation(Table& table, Store& store, int rounds) {
  constexpr int kPrompts = 2000, kBlocks = 8;
  const uint32_t owner = must(store.domain("owner")), stranger = must(store.domain("stranger"));
  const auto chains = [&](uint32_t domain, uint64_t first) {
    ChainHasher hasher(must(store.chain_key(domain)), store.fingerprint());
    std::vector<std::vector<Digest>> all;
    for (uint64_t prompt = first; prompt < first + kPrompts; ++prompt) {
      Digest parent = hasher.root();
      auto& keys = all.emplace_back();
      for (uint64_t i = 0; i < kBlocks; ++i) {
        const uint64_t tokens[2] = {prompt, i};
        keys.push_back(parent = hasher.next(parent, std::as_bytes(std::span(tokens))));
      }
    }
    return all;
  };
  std::vector<std::byte> payload(kPayload);
  const auto soon = system_clock().now() + std::chrono::minutes(2);
  for (const auto& keys : chains(owner, 0)) {  // the first block of each is there for its owner
    BlockInfo info;
    info.domain = owner;
    info.key = keys[0];
    while (store.put(info, payload) == PutResult::kFull) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  must(store.flush(soon));
  const auto stored_elsewhere = chains(stranger, 0), stored_nowhere = chains(stranger, kPrompts);
  const auto median_miss = [&](const std::vector<std::vector<Digest>>& all) {
    std::vector<double> times;
    for (const auto& keys : all) {
      times.push_back(1e9 * seconds_of([&] { CHECK(store.lookup(stranger, keys, Lineage::kDerived).num_blocks() == 0); }));
    }
    return median(times);
  };
  for (int round = 0; round < 3 * rounds; ++round) {
    const bool first = round % 2 == 0;
    const double before = median_miss(first ? stored_elsewhere : stored_nowhere);
    const double after = median_miss(first ? stored_nowhere : stored_elsewhere);
    table.add("miss of a prompt that another tenant stored", "ns", first ? before : after, first ? after : before, 0);
  }
}

#ifdef DEEPINFER_ROCKSDB
std::unique_ptr<rocksdb::DB> open_rocksdb(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.enable_blob_files = true;
  options.min_blob_size = 0;
  options.use_direct_reads = true;
  options.use_direct_io_for_flush_and_compaction = true;
  options.write_buffer_size = 64 << 20;
  rocksdb::DB* db = nullptr;
  const auto status = rocksdb::DB::Open(options, path, &db);
  if (!status.ok()) {
    fmt::print(stderr, "store_bench: RocksDB: {}\n", status.ToString());
    std::exit(1);
  }
  return std::unique_ptr<rocksdb::DB>(db);
}
#endif

int run(const Setup& setup) {
  auto backend = must(make_io_backend(IoKind::kAuto));
  const std::string root = setup.directory + "/store_bench";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  const uint64_t per_round = setup.blocks / static_cast<uint64_t>(setup.rounds);
  Raw raw(*backend, root + "/raw", setup.blocks * kSlot);
  auto store = must(Store::open(options_for(root + "/kv", setup.blocks), *backend, system_clock()));
  const uint32_t domain = must(store->domain("bench"));
  must(store->wait_ready(system_clock().now() + std::chrono::minutes(1)));
#ifdef DEEPINFER_ROCKSDB
  auto rocks = open_rocksdb(root + "/rocksdb");
#endif
  fmt::print("{} blocks of {} bytes, {} rounds, {}, {}\n", per_round * static_cast<uint64_t>(setup.rounds),
             kPayload, setup.rounds, backend->name(), root);
  Mac mac(Key{});
  std::mt19937_64 random(3);
  std::vector<std::byte> payload(kPayload);
  for (auto& b : payload) b = static_cast<std::byte>(random());
  std::vector<Digest> keys;
  Table table;
  const auto gb = [](uint64_t count, double seconds) {
    return static_cast<double>(count) * kPayload / seconds / 1e9;
  };
  const auto soon = [] { return system_clock().now() + std::chrono::minutes(2); };

  // The blocks of `keys` lie in the order of their chain, those of `scattered` in a random one.
  std::vector<Digest> scattered;
  for (int round = 0; round < setup.rounds; ++round) {
    const uint64_t first = keys.size(), half = per_round / 2;
    std::vector<std::pair<Digest, uint64_t>> order;
    for (uint64_t i = 0; i < half; ++i) {
      keys.push_back(numbered(mac, 2 * (first + i)));
      order.emplace_back(keys.back(), first + i);
    }
    for (uint64_t i = 0; i < half; ++i) {
      scattered.push_back(numbered(mac, 2 * (first + i) + 1));
      order.emplace_back(scattered.back(), first + i);
    }
    std::shuffle(order.begin() + static_cast<ptrdiff_t>(half), order.end(), random);

    // put, group commit; raw: the same bytes, a sync each 8 MiB.
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < order.size(); ++i) offsets.push_back((2 * first + i) * kSlot);
    const double raw_write =
        gb(order.size(),
           seconds_of([&] { raw.run(IoRequest::Op::kWrite, offsets, kSlot, kDepth, (8u << 20) / kSlot); }));
    const double put = gb(order.size(), seconds_of([&] {
                            for (const auto& [key, index] : order) {
                              BlockInfo info;
                              info.domain = domain;
                              info.key = key;
                              info.block_index = static_cast<uint32_t>(index);
                              std::memcpy(payload.data(), &index, sizeof index);
                              while (store->put(info, payload) == PutResult::kFull)
                                std::this_thread::sleep_for(std::chrono::microseconds(300));
                            }
                            must(store->flush(soon()));
                          }));
    table.add("put, group commit", "GB/s", put, raw_write, 0.85);

    // Random blocks, 16 in flight.
    const uint64_t count = std::min<uint64_t>(512, scattered.size());
    const uint64_t from = random() % (scattered.size() - count + 1);
    offsets.clear();
    for (uint64_t i = 0; i < count; ++i) offsets.push_back(random() % (2 * keys.size()) * kSlot);
    const double raw_random =
        gb(count, seconds_of([&] { raw.run(IoRequest::Op::kRead, offsets, kSlot, kDepth); }));
    size_t loaded = 0;
    uint64_t sum = 0;
    const BlockSink sink = [&](size_t, std::span<const std::byte> bytes) {
      sum += static_cast<uint64_t>(bytes[17]);
    };
    const double random_read = gb(count, seconds_of([&] {
                                    const Hit hit =
                                        store->lookup(domain, std::span(scattered).subspan(from, count),
                                                      Lineage::kExact, static_cast<uint32_t>(from));
                                    loaded += store->load(hit, 0, soon(), sink).num_blocks;
                                  }));
    if (loaded != count) return fmt::print(stderr, "store_bench: {} of {} blocks\n", loaded, count), 1;
    table.add("random block reads, depth 16, all checked", "GB/s", random_read, raw_random, 0.90);

    // Units of 32 neighbours.
    const uint64_t units = std::min<uint64_t>(24, keys.size() / kUnit);
    offsets.clear();
    std::vector<uint64_t> starts;
    for (uint64_t u = 0; u < units; ++u) {
      starts.push_back(random() % (keys.size() / kUnit) * kUnit);
      offsets.push_back(starts.back() * kSlot);
    }
    const double raw_sequential =
        gb(units * kUnit, seconds_of([&] { raw.run(IoRequest::Op::kRead, offsets, kUnit * kSlot, 2); }));
    loaded = 0;
    const double unit_load = gb(units * kUnit, seconds_of([&] {
                                  for (const uint64_t start : starts) {
                                    const Hit hit =
                                        store->lookup(domain, std::span(keys).subspan(start, kUnit),
                                                      Lineage::kExact, static_cast<uint32_t>(start));
                                    loaded += store->load(hit, 0, soon(), sink).num_blocks;
                                  }
                                }));
    if (loaded != units * kUnit)
      return fmt::print(stderr, "store_bench: {} of {} blocks\n", loaded, units * kUnit), 1;
    table.add("sequential unit loads (32 blocks)", "GB/s", unit_load, raw_sequential, 0.90);

    if (keys.size() >= 1000) {
      std::vector<double> lookups;
      for (int i = 0; i < 50; ++i) {
        const uint64_t start = random() % (keys.size() - 999);
        lookups.push_back(1e6 * seconds_of([&] {
                            const Hit hit = store->lookup(domain, std::span(keys).subspan(start, 1000),
                                                          Lineage::kExact, static_cast<uint32_t>(start));
                            CHECK(hit.num_blocks() == 1000);
                          }));
      }
      table.add("lookup of a 1,000-block prefix", "us", median(lookups), 0, 100);
    }
#ifdef DEEPINFER_ROCKSDB
    rocksdb::WriteOptions no_sync, sync;
    sync.sync = true;
    const auto slice = [](const Digest& key) {
      return rocksdb::Slice(reinterpret_cast<const char*>(key.data()), key.size());
    };
    const double rocks_put =
        gb(order.size(), seconds_of([&] {
             for (size_t i = 0; i < order.size(); ++i) {
               std::memcpy(payload.data(), &i, sizeof i);
               const rocksdb::Slice value(reinterpret_cast<const char*>(payload.data()), payload.size());
               CHECK(rocks->Put(i % 73 == 72 ? sync : no_sync, slice(order[i].first), value).ok());
             }
             CHECK(rocks->Flush(rocksdb::FlushOptions()).ok());
           }));
    table.add("RocksDB BlobDB: put, a sync each 8 MiB", "GB/s", rocks_put, raw_write, 0);
    std::string value;
    const double rocks_read =
        gb(count, seconds_of([&] {
             for (uint64_t i = from; i < from + count; ++i)
               CHECK(rocks->Get(rocksdb::ReadOptions(), slice(scattered[i]), &value).ok());
           }));
    table.add("RocksDB BlobDB: random reads, one by one", "GB/s", rocks_read, raw_random, 0);
#endif
  }
  bench_index(table, setup.rounds);
  bench_isolation(table, *store, setup.rounds);
  table.print();
  const DriveStats drive = store->stats().drives[0];
  fmt::print("write amplification {:.4f} (wanted <= 1.02)\n",
             static_cast<double>(drive.device_bytes) / static_cast<double>(drive.written_bytes));
  store.reset();
  std::filesystem::remove_all(root);
  return 0;
}

}  // namespace
}  // namespace deepinfer::store

int main(int argc, char** argv) {
  deepinfer::store::Setup setup;
  setup.directory = std::filesystem::temp_directory_path();
  double gib = 1.5;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--dir")
      setup.directory = argv[i + 1];
    else if (name == "--gib")
      gib = std::stod(argv[i + 1]);
    else if (name == "--rounds")
      setup.rounds = std::max(1, std::stoi(argv[i + 1]));
    else
      return fmt::print(stderr, "store_bench: unknown option {}\n", name), 2;
  }
  fmt::print("store_bench: priority {}\n", deepinfer::bench::raise_priority());
  setup.blocks = static_cast<uint64_t>(gib * (1 << 30)) / deepinfer::store::kSlot;
  return deepinfer::store::run(setup);
}
