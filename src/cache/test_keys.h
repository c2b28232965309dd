// Keys and payloads for tests of what stores blocks.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "cache/keys.h"

namespace deepinfer {

inline Digest test_digest(uint64_t number) {
  Key key{};
  key[0] = std::byte{7};
  Mac mac(key);
  const std::span<const std::byte> part = std::as_bytes(std::span(&number, 1));
  return mac.digest(std::span(&part, 1));
}

// Payload of a key: any byte of another block shows.
inline std::vector<std::byte> payload_of(const Digest& key, size_t bytes) {
  std::vector<std::byte> payload(bytes);
  uint64_t state;
  std::memcpy(&state, key.data(), sizeof state);
  for (size_t i = 0; i < bytes; i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(payload.data() + i, &state, std::min<size_t>(8, bytes - i));
  }
  return payload;
}

}  // namespace deepinfer
