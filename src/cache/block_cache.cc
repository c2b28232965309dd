#include "cache/block_cache.h"

#include <algorithm>

namespace deepinfer {

BlockCache::BlockCache(int64_t num_blocks) : blocks_(static_cast<size_t>(num_blocks)) {
  free_.reserve(blocks_.size());
  index_.reserve(blocks_.size());
  for (int64_t id = num_blocks - 1; id >= 0; --id) free_.push_back(static_cast<BlockId>(id));
}

Result<BlockId> BlockCache::allocate() {
  if (free_.empty() && oldest_ == kNone) {
    return Error(Code::kResourceExhausted, "all {} KV blocks are in use", num_blocks());
  }
  BlockId block;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = static_cast<BlockId>(oldest_);
    unlink(block);
    remember_eviction(at(block).key);
    forget_name(at(block));
  }
  at(block).references = 1;
  return block;
}

void BlockCache::add_ref(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.references > 0 || entry.named);
  if (entry.references++ == 0) unlink(block);
}

void BlockCache::release(BlockId block) {
  Block& entry = at(block);
  CHECK(entry.references > 0);
  if (--entry.references > 0) return;
  if (entry.named) {
    link_newest(block);
  } else {
    free_.push_back(block);
  }
}

void BlockCache::release_all(std::span<const BlockId> blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) release(*block);
}

void BlockCache::publish(BlockId block, const PrefixKey& key, std::span<const int32_t> tokens) {
  CHECK(std::ssize(tokens) == kBlockTokens && at(block).references > 0 && !at(block).named);
  if (!index_.emplace(key, block).second) return;
  Block& entry = at(block);
  entry.named = true;
  entry.key = key;
  std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
  ++version_;
}

std::optional<BlockId> BlockCache::find(const PrefixKey& key, std::span<const int32_t> tokens) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  const Block& block = at(found->second);
  if (!std::equal(block.tokens.begin(), block.tokens.end(), tokens.begin(), tokens.end())) return std::nullopt;
  return found->second;
}

void BlockCache::link_newest(BlockId block) {
  Block& entry = at(block);
  entry.previous = newest_;
  entry.next = kNone;
  const auto id = static_cast<int32_t>(block);
  (newest_ == kNone ? oldest_ : blocks_[newest_].next) = id;
  newest_ = id;
  ++num_cached_;
}

void BlockCache::unlink(BlockId block) {
  Block& entry = at(block);
  (entry.previous == kNone ? oldest_ : blocks_[entry.previous].next) = entry.next;
  (entry.next == kNone ? newest_ : blocks_[entry.next].previous) = entry.previous;
  --num_cached_;
}

void BlockCache::forget_name(Block& block) {
  index_.erase(block.key);
  block.named = false;
  ++version_;
}

void BlockCache::remember_eviction(const PrefixKey& key) {
  const size_t ghost = PrefixKeyHash()(key);
  if (!ghosts_.insert(ghost).second) return;
  ghost_order_.push_back(ghost);
  if (ghost_order_.size() <= 4 * blocks_.size()) return;
  ghosts_.erase(ghost_order_.front());
  ghost_order_.pop_front();
}

}  // namespace deepinfer
