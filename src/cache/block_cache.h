// KV blocks by number and by content: who uses a block, which prefix it holds, which one goes when room is needed.
// Numbers only; the bytes lie in the model's arena. Source: docs/spec/kv.md 3, 8, 9.
//
// A block is free (holds nothing), used (one or more references) or cached (no reference, findable by its key). Cached
// blocks are given away in order of their last release. Whoever lets a sequence go releases its last block first
// (release_all), so the tail of a chain always goes before its beginning.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "cache/block_pool.h"
#include "cache/keys.h"

namespace deepinfer {

// Every block it can find holds the bits of a cold run (docs/context-modes.md). Owned by the engine thread.
class BlockCache {
 public:
  explicit BlockCache(int64_t num_blocks);

  int64_t num_blocks() const { return std::ssize(blocks_); }
  int64_t num_free() const { return std::ssize(free_); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_available() const { return num_free() + num_cached_; }
  int64_t num_used() const { return num_blocks() - num_available(); }
  int32_t references(BlockId block) const { return at(block).references; }

  // A block with one reference: a free one, else the cached one that was released first. kResourceExhausted else.
  Result<BlockId> allocate();
  void add_ref(BlockId block);  // requires a used or cached block
  void release(BlockId block);  // requires a used block
  void release_all(std::span<const BlockId> blocks);  // of one sequence, last block first

  // Makes a full block findable. The first holder of a key keeps it; a later one stays without a name. tokens: the 128
  // of this block.
  void publish(BlockId block, const PrefixKey& key, std::span<const int32_t> tokens);

  // The block of this key, if its tokens are these. Changes nothing.
  std::optional<BlockId> find(const PrefixKey& key, std::span<const int32_t> tokens) const;
  // Was a block of this key given away? Remembers the last 4 x num_blocks of them, by 64 bits of the key.
  bool was_evicted(const PrefixKey& key) const { return ghosts_.contains(PrefixKeyHash()(key)); }

  uint64_t version() const { return version_; }  // changes whenever find() may answer otherwise

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t references = 0;
    bool named = false;
    int32_t previous = kNone, next = kNone;  // in the list of cached blocks
    PrefixKey key = {};
    std::array<int32_t, kBlockTokens> tokens = {};
  };


 public:
  // What it needs of memory for each block, for the memory plan: its entry, its place in the index and in the free list.
  static constexpr size_t kBytesPerBlock =
      sizeof(Block) + sizeof(BlockId) + sizeof(PrefixKey) + sizeof(BlockId) + 4 * sizeof(void*);

 private:
  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(BlockId block) const { return blocks_[static_cast<size_t>(block)]; }
  void link_newest(BlockId block);
  void unlink(BlockId block);
  void forget_name(Block& block);
  void remember_eviction(const PrefixKey& key);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::unordered_map<PrefixKey, BlockId, PrefixKeyHash> index_;
  int32_t oldest_ = kNone, newest_ = kNone;
  int64_t num_cached_ = 0;
  std::unordered_set<size_t> ghosts_;
  std::deque<size_t> ghost_order_;
  uint64_t version_ = 0;
};

}  // namespace deepinfer
