// Counter-based random numbers: the word for (key, counter) depends on nothing else, so a draw does not depend on
// batch, thread or history.
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer {

// Philox4x32-10 (Salmon et al., SC'11). Vectors: docs/spec/model.md A.6.
std::array<uint32_t, 4> philox4x32(uint64_t key, std::array<uint32_t, 4> counter);

// A seed from the operating system, for requests that give none. Thread-safe.
uint64_t system_seed();

}  // namespace deepinfer
