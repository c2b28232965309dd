#include "model/buffers.h"

#include <utility>

namespace deepinfer {

int16_t Buffers::allocate_bytes(Place place, size_t size_bytes) {
  if (!status_.ok()) return -1;
  switch (place) {
    case Place::kHost: {
      auto memory = AlignedBuffer::allocate(size_bytes);
      if (!memory.ok()) {
        status_ = memory.error();
        return -1;
      }
      buffers_.push_back({place, std::move(*memory)});
      bases_.push_back(buffers_.back().memory.data());
      return static_cast<int16_t>(buffers_.size() - 1);
    }
  }
  return -1;
}

uint64_t Buffers::size_bytes(Place place) const {
  uint64_t total = 0;
  for (const Buffer& buffer : buffers_) total += buffer.place == place ? buffer.memory.size() : 0;
  return total;
}

}  // namespace deepinfer
