// CRC-32C (Castagnoli) over bytes; ISA-L underneath, which the rooms that use it link.
#pragma once

#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

// crc32c("123456789") == 0xe3069283. `seed` continues an earlier call. Requires bytes.size() < 2^31.
inline uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0) {
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~seed);
}

}  // namespace deepinfer
