#include "store/log/index.h"

#include <algorithm>
#include <vector>

namespace deepinfer::store {
namespace {

uint64_t mix(uint64_t x) {  // finalizer of splitmix64
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ x >> 31;
}

uint64_t reduce(uint64_t hash, uint64_t n) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(hash) * n >> 64);
}

}  // namespace

Result<Index> Index::make(uint64_t max_entries) {
  Index index;
  index.num_buckets_ = std::max<uint64_t>(4, (max_entries * 100 / 85 + kWays - 1) / kWays);
  auto table = AlignedBuffer::allocate(index.num_buckets_ * sizeof(Bucket));
  if (!table.ok()) return table.error().in("KV index");
  index.table_ = std::move(table).value();
  return index;
}

Index::Packed Index::pack(uint64_t tag, const IndexEntry& entry) {
  const uint64_t rest = entry.at.segment | static_cast<uint64_t>(entry.at.slot) << 20 |
                        static_cast<uint64_t>(entry.retention) << 34 |
                        static_cast<uint64_t>(entry.lineage) << 36 | static_cast<uint64_t>(entry.hits) << 37 |
                        static_cast<uint64_t>(entry.use_hour) << 39;
  return {{static_cast<uint32_t>(tag), static_cast<uint32_t>(tag >> 32 | (rest & 0xffff) << 16),
           static_cast<uint32_t>(rest >> 16)}};
}

uint64_t Index::tag_of(const Packed& packed) {
  return packed.words[0] | static_cast<uint64_t>(packed.words[1] & 0xffff) << 32;
}

bool Index::empty(const Packed& packed) {
  return (packed.words[2] >> 4 & 0x3fff) == 0;
}

IndexEntry Index::unpack(const Packed& packed) {
  const uint64_t rest = packed.words[1] >> 16 | static_cast<uint64_t>(packed.words[2]) << 16;
  IndexEntry entry;
  entry.at.segment = static_cast<uint32_t>(rest & 0xfffff);
  entry.at.slot = static_cast<uint32_t>(rest >> 20 & 0x3fff);
  entry.retention = static_cast<RetentionClass>(rest >> 34 & 3);
  entry.lineage = static_cast<Lineage>(rest >> 36 & 1);
  entry.hits = static_cast<uint8_t>(rest >> 37 & 3);
  entry.use_hour = static_cast<uint16_t>(rest >> 39 & 0x1ff);
  return entry;
}

Index::Place Index::place(const Digest& key) const {
  uint64_t hash, tag;
  std::memcpy(&hash, key.data(), 8);
  std::memcpy(&tag, key.data() + 8, 8);
  return {reduce(hash, num_buckets_), tag & 0xffff'ffff'ffff};
}

// An involution for each tag, so that either bucket leads to the other.
uint64_t Index::other_bucket(uint64_t bucket, uint64_t tag) const {
  const uint64_t sum = reduce(mix(tag), num_buckets_);
  return sum >= bucket ? sum - bucket : sum + num_buckets_ - bucket;
}

void Index::prefetch(const Digest& key) const {
  const Place at = place(key);
  __builtin_prefetch(&buckets()[at.bucket]);
  __builtin_prefetch(&buckets()[other_bucket(at.bucket, at.tag)]);
}

Index::Packed* Index::find_packed(const Digest& key) const {
  const Place at = place(key);
  for (const uint64_t b : {at.bucket, other_bucket(at.bucket, at.tag)})
    for (Packed& packed : buckets()[b].entries)
      if (tag_of(packed) == at.tag && !empty(packed)) return &packed;
  return nullptr;
}

std::optional<IndexEntry> Index::find(const Digest& key) const {
  const Packed* packed = find_packed(key);
  return packed == nullptr ? std::nullopt : std::optional(unpack(*packed));
}

bool Index::update(const Digest& key, const IndexEntry& entry) {
  Packed* packed = find_packed(key);
  if (packed == nullptr || unpack(*packed).at != entry.at) return false;
  *packed = pack(tag_of(*packed), entry);
  return true;
}

bool Index::erase(const Digest& key, Location at) {
  Packed* packed = find_packed(key);
  if (packed == nullptr || unpack(*packed).at != at) return false;
  *packed = {};
  --size_;
  return true;
}

bool Index::insert(const Digest& key, const IndexEntry& entry) {
  const Place at = place(key);
  const uint64_t both[2] = {at.bucket, other_bucket(at.bucket, at.tag)};
  if (Packed* packed = find_packed(key)) {
    *packed = pack(at.tag, entry);
    return true;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const uint64_t b : both) {
      for (Packed& packed : buckets()[b].entries) {
        if (!empty(packed)) continue;
        packed = pack(at.tag, entry);
        ++size_;
        return true;
      }
    }
    if (attempt == 0 && !make_way(both[0])) return false;
  }
  return false;
}

// Breadth-first search for the shortest chain of moves that frees an entry of `bucket`.
bool Index::make_way(uint64_t bucket) {
  struct Step {
    uint64_t bucket;
    int parent;  // index in `steps`
    int way;     // entry of the parent's bucket that would move here
  };
  std::vector<Step> steps = {{bucket, -1, 0}};
  for (size_t i = 0; i < steps.size() && steps.size() < 500; ++i) {
    for (int way = 0; way < kWays; ++way) {
      const uint64_t from = steps[i].bucket;
      const uint64_t to = other_bucket(from, tag_of(buckets()[from].entries[way]));
      steps.push_back({to, static_cast<int>(i), way});
      Packed* hole = std::find_if(std::begin(buckets()[to].entries), std::end(buckets()[to].entries), empty);
      if (hole == std::end(buckets()[to].entries)) continue;
      for (int at = static_cast<int>(steps.size()) - 1; steps[static_cast<size_t>(at)].parent >= 0;) {
        const Step& step = steps[static_cast<size_t>(at)];
        Packed& source = buckets()[steps[static_cast<size_t>(step.parent)].bucket].entries[step.way];
        // A bucket that occurs twice on the path may have changed meanwhile; then the move is not valid any
        // more.
        if (empty(source) ||
            other_bucket(steps[static_cast<size_t>(step.parent)].bucket, tag_of(source)) != step.bucket)
          return false;
        *hole = source;
        source = {};
        hole = &source;
        at = step.parent;
      }
      return true;
    }
  }
  return false;
}

}  // namespace deepinfer::store
