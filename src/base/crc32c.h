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
  const uint32_t crc = ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~seed);
#if defined(__x86_64__)
  // ISA-L 2.30 leaves the upper halves of the vector registers in use (its AVX-512 version ends without vzeroupper). On Intel's
  // processors every SSE instruction of the thread is slow from then on: a scalar fma took 180 ns instead of 4.
  if (__builtin_cpu_supports("avx512f")) asm volatile("vzeroupper" ::: "memory");
#endif
  return crc;
}

}  // namespace deepinfer
