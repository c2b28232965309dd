// A small store on a simulated disk, for tests: 14 records a segment, 16 segments, payloads that follow from
// their keys.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "cache/test_keys.h"
#include "store/io/simulated_disk.h"
#include "store/store.h"

namespace deepinfer::store {

inline StoreOptions small_options() {
  StoreOptions options;
  options.drives = {"/kv"};
  options.capacity_bytes = 1 << 20;
  options.segment_bytes = 1 << 16;
  options.fingerprint = test_digest(99);
  options.payload_bytes = 1000;
  options.group_bytes = {400, 300, 200, 100};
  options.master_key[0] = std::byte{1};
  options.threads = false;
  options.staging_bytes = 1 << 17;
  options.commit_bytes = 1 << 15;
  options.read_queues = 2;
  options.read_bytes = 1 << 16;
  return options;
}

class Rig {
 public:
  explicit Rig(uint64_t seed = 1, StoreOptions o = small_options())
      : disk(clock, seed), options(std::move(o)) {}

  Status open() {
    auto opened = Store::open(options, disk, clock);
    if (!opened.ok()) return opened.error();
    store = std::move(opened).value();
    return {};
  }
  Status reopen() {
    store.reset();
    return open();
  }
  // Chain of `count` keys of a domain; `name` tells chains apart.
  std::vector<Digest> chain(uint32_t domain, uint64_t name, size_t count) {
    const auto key = store->chain_key(domain);
    CHECK(key.ok());
    ChainHasher hasher(*key, options.fingerprint);
    std::vector<Digest> keys;
    Digest parent = hasher.root();
    for (size_t i = 0; i < count; ++i) {
      const uint64_t tokens[2] = {name, i};
      keys.push_back(parent = hasher.next(parent, std::as_bytes(std::span(tokens))));
    }
    return keys;
  }
  PutResult put(uint32_t domain, std::span<const Digest> keys, size_t i,
                std::optional<RetentionClass> retention = std::nullopt, Lineage lineage = Lineage::kExact) {
    BlockInfo info;
    info.domain = domain;
    info.key = keys[i];
    if (i > 0) info.parent = keys[i - 1];
    info.block_index = static_cast<uint32_t>(i);
    info.retention = retention;
    info.lineage = lineage;
    info.cost_us = 4000;
    return store->put(info, payload_of(keys[i], options.payload_bytes));
  }
  Status put_all(uint32_t domain, std::span<const Digest> keys,
                 std::optional<RetentionClass> retention = std::nullopt) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (put(domain, keys, i, retention) == PutResult::kFull) {
        RETURN_IF_ERROR(store->flush(clock.now()));
        (void)put(domain, keys, i, retention);
      }
    }
    return store->flush(clock.now());
  }
  // How many leading blocks come back; every byte that comes back is compared.
  size_t load(uint32_t domain, std::span<const Digest> keys, MissReason* reason = nullptr,
              Lineage accept = Lineage::kDerived) {
    const Hit hit = store->lookup(domain, keys, accept);
    return load(hit, keys, reason);
  }
  size_t load(const Hit& hit, std::span<const Digest> keys, MissReason* reason = nullptr) {
    const LoadResult result = store->load(
        hit, 0, clock.now() + std::chrono::seconds(1), [&](size_t i, std::span<const std::byte> payload) {
          const auto expected = payload_of(keys[i], options.payload_bytes);
          if (!std::equal(payload.begin(), payload.end(), expected.begin(), expected.end())) ++wrong;
        });
    if (reason != nullptr) *reason = result.reason != MissReason::kNone ? result.reason : hit.reason();
    return result.num_blocks;
  }
  // Path of the segment that holds a record of this key, and the record's offset.
  std::optional<std::pair<std::string, uint64_t>> find_record(const Digest& key) {
    for (const std::string& path : disk.files()) {
      if (!path.ends_with(".seg")) continue;
      const auto bytes = disk.contents(path);
      const uint64_t slot = store->geometry().slot_bytes;
      for (uint64_t at = slot; at + slot <= bytes.size(); at += slot) {
        const auto header = parse_record_header(std::span(bytes).subspan(at, kHeaderBytes));
        if (header.ok() && header->key == key) return std::pair(path, at);
      }
    }
    return std::nullopt;
  }

  ManualClock clock;
  SimulatedDisk disk;
  StoreOptions options;
  std::unique_ptr<Store> store;
  size_t wrong = 0;  // blocks delivered with wrong bytes: must stay 0
};

}  // namespace deepinfer::store
