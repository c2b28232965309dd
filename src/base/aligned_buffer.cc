#include "base/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/checked_math.h"

namespace deepinfer {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallAlignment = 64;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(size_t size_bytes) { return make(size_bytes, true); }
Result<AlignedBuffer> AlignedBuffer::reserve(size_t size_bytes) { return make(size_bytes, false); }

Result<AlignedBuffer> AlignedBuffer::make(size_t size_bytes, bool populate) {
  AlignedBuffer buffer;
  buffer.size_ = size_bytes;
  if (size_bytes == 0) return buffer;
  if (size_bytes > SIZE_MAX - 2 * kHugePage) {
    return Error(Code::kResourceExhausted, "cannot allocate {} bytes: larger than the address space", size_bytes);
  }
  if (size_bytes < kHugePage) {
    buffer.data_ = static_cast<std::byte*>(
        std::aligned_alloc(kSmallAlignment, round_up(size_bytes, kSmallAlignment)));
    if (buffer.data_ == nullptr) {
      return Error(Code::kResourceExhausted, "cannot allocate {} bytes: out of memory", size_bytes);
    }
    std::memset(buffer.data_, 0, size_bytes);
    return buffer;
  }
  // Map one huge page more than needed and give back what lies outside the aligned range.
  const size_t wanted = round_up(size_bytes, kHugePage);
  void* raw = mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return Error(Code::kResourceExhausted, "cannot map {} bytes: {}", size_bytes, std::strerror(errno));
  }
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kHugePage);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = start + wanted + kHugePage;
  if (end > aligned + wanted) munmap(reinterpret_cast<void*>(aligned + wanted), end - aligned - wanted);
  buffer.data_ = reinterpret_cast<std::byte*>(aligned);
  buffer.mapped_ = wanted;
  madvise(buffer.data_, wanted, MADV_HUGEPAGE);  // a hint; without it the pages are small
  if (populate) RETURN_IF_ERROR(buffer.populate(0, size_bytes));
  return buffer;
}

Status AlignedBuffer::populate(size_t offset, size_t size_bytes) {
  CHECK(offset <= size_ && size_bytes <= size_ - offset);
#ifdef MADV_POPULATE_WRITE
  if (mapped_ == 0) return {};
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page, end = round_up(offset + size_bytes, page);
  if (madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM) {
    return Error(Code::kResourceExhausted, "cannot populate {} bytes: out of memory", size_bytes);
  }
#endif
  return {};
}

AlignedBuffer::~AlignedBuffer() {
  if (mapped_ > 0) {
    munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

}  // namespace deepinfer
