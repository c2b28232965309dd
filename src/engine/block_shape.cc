#include "engine/block_shape.h"

#include "model/kv_arena.h"
#include "model/model.h"

namespace deepinfer {

store::StoreOptions block_shape(const Model& model) {
  const KvLayout layout(model.config());
  store::StoreOptions options;
  options.payload_bytes = static_cast<uint32_t>(layout.block_bytes);
  const size_t count = std::min(layout.groups.size(), store::kMaxGroups);
  for (size_t i = 0; i < count; ++i) {
    const int64_t end = i + 1 < count ? layout.groups[i + 1].index_offset : layout.block_bytes;
    options.group_bytes[i] = static_cast<uint32_t>(end - layout.groups[i].index_offset);
  }
  return options;
}

}  // namespace deepinfer
