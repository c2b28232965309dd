#include "cache/block_pool.h"

namespace deepinfer {

BlockPool::BlockPool(int64_t num_blocks) : references_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int64_t id = num_blocks - 1; id >= 0; --id) free_.push_back(static_cast<BlockId>(id));
}

Result<BlockId> BlockPool::allocate() {
  if (free_.empty()) return Error(Code::kResourceExhausted, "all {} KV blocks are in use", num_blocks());
  const BlockId block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::add_ref(BlockId block) {
  int32_t& references = references_[static_cast<size_t>(block)];
  CHECK(references > 0);
  ++references;
}

void BlockPool::release(BlockId block) {
  int32_t& references = references_[static_cast<size_t>(block)];
  CHECK(references > 0);
  if (--references == 0) free_.push_back(block);
}

}  // namespace deepinfer
