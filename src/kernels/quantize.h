// The three block quantizers (docs/spec/model.md 4.1), the packed rows of the caches built from them (4.7), and their
// way back. All bit-exact, all from bf16; Inf and NaN are outside the contract.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer {

// Q8: 32 values -> 32 E4M3 codes and an E8M0 scale byte.
uint8_t quantize_q8(const Bf16* x, uint8_t* codes);
// Q4i: 32 values -> 16 bytes of E2M1 codes and an E8M0 scale byte.
uint8_t quantize_q4i(const Bf16* x, uint8_t* packed);
// Q4k: 16 values -> 8 bytes of E2M1 codes and an E4M3 scale byte.
uint8_t quantize_q4k(const Bf16* x, uint8_t* packed);

// Packed rows. Sizes in bytes for a row of `dim` values (dim % 32 == 0).
constexpr int64_t window_row_bytes(int64_t dim) { return dim + dim / 32; }           // codes, then E8M0 scales
constexpr int64_t compressed_row_bytes(int64_t dim) { return dim / 2 + dim / 16; }   // nibbles, then E4M3 scales
constexpr int64_t index_code_bytes(int64_t dim) { return dim / 2; }
constexpr int64_t index_scale_bytes(int64_t dim) { return dim / 32; }

void pack_window_row(const Bf16* x, int64_t dim, std::byte* row);
void pack_compressed_row(const Bf16* x, int64_t dim, std::byte* row);
void pack_index_row(const Bf16* x, int64_t dim, std::byte* codes, std::byte* scales);

// Exact values, each representable in bf16.
void unpack_window_row(const std::byte* row, int64_t dim, float* x);
void unpack_compressed_row(const std::byte* row, int64_t dim, float* x);
void unpack_index_row(const std::byte* codes, const std::byte* scales, int64_t dim, float* x);

}  // namespace deepinfer
