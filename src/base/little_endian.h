// Little-endian fields at byte offsets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

namespace deepinfer {

static_assert(std::endian::native == std::endian::little, "files hold native integers");

template <typename T>
T get_le(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void put_le(std::span<std::byte> bytes, size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

}  // namespace deepinfer
