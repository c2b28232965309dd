// Memory that operations name by buffer and offset, not by address: where it lies is a property of the buffer, so that
// an op (op.h) says the same to a processor and to a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"

namespace deepinfer {

// Where a buffer lies.
enum class Place : uint8_t {
  kHost,  // memory of this process, which its processors address
};

// Numbers of a buffer, from element `offset` on.
template <typename T>
struct Ref {
  int64_t buffer : 16 = -1;
  int64_t offset : 48 = 0;

  bool exists() const { return buffer >= 0; }
};

// A fixed array in a buffer of its own, and its address where that is in reach.
template <typename T>
class Array {
 public:
  Ref<T> at(int64_t offset = 0) const { return {.buffer = id_, .offset = offset}; }
  T* data() { return reinterpret_cast<T*>(base_); }
  T& operator[](int64_t i) { return data()[i]; }
  int64_t size() const { return count_; }

 private:
  friend class Buffers;
  std::byte* base_ = nullptr;
  int64_t count_ = 0;
  int16_t id_ = -1;
};

// Makes buffers at places, owns them, and knows the address of each. Movable; addresses stay.
class Buffers {
 public:
  // Keeps the first failure: once one is refused, nothing more is allocated.
  template <typename T>
  void allocate(Array<T>& array, Place place, int64_t count) {
    array.id_ = allocate_bytes(place, static_cast<size_t>(count) * sizeof(T));
    array.base_ = array.id_ >= 0 ? bases_[static_cast<size_t>(array.id_)] : nullptr;
    array.count_ = count;
  }
  const Status& status() const { return status_; }
  uint64_t size_bytes(Place place) const;

  // Addresses of the buffers at kHost, by number; stay as they are once all are allocated.
  std::byte* const* host_bases() const { return bases_.data(); }

 private:
  struct Buffer {
    Place place;
    AlignedBuffer memory;
  };
  int16_t allocate_bytes(Place place, size_t size_bytes);

  std::vector<Buffer> buffers_;
  std::vector<std::byte*> bases_;  // of buffers_
  Status status_;
};

}  // namespace deepinfer
