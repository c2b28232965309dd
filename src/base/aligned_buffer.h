// One block of memory for weights, caches and workspaces: aligned to 64 bytes (2 MiB above that size), zeroed, and
// populated when it is made, because a page fault on first touch costs 10 to 30 times what populating costs.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace deepinfer {

// Owns its memory; movable, not copyable. Thread-compatible.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // kResourceExhausted when the system refuses the memory.
  static Result<AlignedBuffer> allocate(size_t size_bytes);
  // The same without populating: for one large block that several threads populate and fill.
  static Result<AlignedBuffer> reserve(size_t size_bytes);
  // Populates a part of a reserved buffer; parts of different threads may touch. kResourceExhausted as allocate().
  Status populate(size_t offset, size_t size_bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  static Result<AlignedBuffer> make(size_t size_bytes, bool populate);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes of the mapping; 0 when the memory came from the heap
};

}  // namespace deepinfer
