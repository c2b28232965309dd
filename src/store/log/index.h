// Where each block lies: a table of 12-byte entries, five in a bucket of 64 bytes
// (docs/spec/kv.md 6).
//
// Bucketed cuckoo hashing: a key has two buckets, the second computed from the first and the 48-bit tag, so
// entries move without their keys. A lookup that finds a wrong tag costs one read (3e-14 a lookup): the key
// is compared after reading.
#pragma once

#include <cstdint>
#include <optional>

#include "base/aligned_buffer.h"
#include "store/log/format.h"

namespace deepinfer::store {

inline constexpr uint32_t kMaxSegments = 1u << 20;

struct Location {
  uint32_t segment = 0;  // ordinal of this process, below kMaxSegments
  uint32_t slot = 0;     // 1 .. kMaxSlots
  bool operator==(const Location&) const = default;
};

struct IndexEntry {
  Location at;
  RetentionClass retention = RetentionClass::kBestEffort;
  Lineage lineage = Lineage::kExact;
  uint8_t hits = 0;       // 0 .. 3, saturating
  uint16_t use_hour = 0;  // hour of the last use modulo 512
  bool operator==(const IndexEntry&) const = default;
};

inline constexpr uint32_t kUseHours = 512;

// Thread-compatible.
class Index {
 public:
  // Room for max_entries at 85 % fill. kResourceExhausted when the memory is refused.
  static Result<Index> make(uint64_t max_entries);

  std::optional<IndexEntry> find(const Digest& key) const;
  // Adds or replaces. False when no room was found by moving others (above ~95 % fill); the table is
  // unchanged then.
  bool insert(const Digest& key, const IndexEntry& entry);
  // Only when the key's entry lies at `at`. False otherwise.
  bool update(const Digest& key, const IndexEntry& entry);
  bool erase(const Digest& key, Location at);
  void prefetch(const Digest& key) const;

  uint64_t size() const { return size_; }
  uint64_t memory_bytes() const { return table_.size(); }

 private:
  static constexpr int kWays = 5;
  // 96 bits: tag 48, segment 20, slot 14 (0: empty), class 2, lineage 1, hits 2, hour 9.
  struct Packed {
    uint32_t words[3];
  };
  struct alignas(64) Bucket {
    Packed entries[kWays];
    uint32_t unused;
  };
  struct Place {
    uint64_t bucket;
    uint64_t tag;
  };

  static Packed pack(uint64_t tag, const IndexEntry& entry);
  static IndexEntry unpack(const Packed& packed);
  static uint64_t tag_of(const Packed& packed);
  static bool empty(const Packed& packed);
  Place place(const Digest& key) const;
  uint64_t other_bucket(uint64_t bucket, uint64_t tag) const;
  Packed* find_packed(const Digest& key) const;
  bool make_way(uint64_t bucket);

  Bucket* buckets() const { return reinterpret_cast<Bucket*>(const_cast<std::byte*>(table_.data())); }

  AlignedBuffer table_;
  uint64_t num_buckets_ = 0;
  uint64_t size_ = 0;
};

}  // namespace deepinfer::store
