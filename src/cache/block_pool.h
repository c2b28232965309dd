// Ids of KV blocks and who uses them: arithmetic only, the bytes live in the model's arena.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace deepinfer {

inline constexpr int64_t kBlockTokens = 128;  // positions of one KV block, on every path and in every store

enum class BlockId : int32_t {};

// Reference-counted block ids 0 .. num_blocks - 1. Thread-compatible.
class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

  // A block with one reference; kResourceExhausted when none is free.
  Result<BlockId> allocate();
  void add_ref(BlockId block);  // requires a block in use
  void release(BlockId block);  // requires a block in use; frees it with its last reference

 private:
  std::vector<int32_t> references_;
  std::vector<BlockId> free_;
};

}  // namespace deepinfer
