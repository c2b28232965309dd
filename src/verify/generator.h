// The number generator of the golden data (docs/verify.md, "Generated inputs"): the counter form of
// splitmix64, its words cut little-endian into bytes, u16 or u32, one for each element in row-major order.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/formats.h"

namespace deepinfer::golden {

uint64_t splitmix64(uint64_t seed, uint64_t index);

std::vector<uint8_t> generate_bytes(uint64_t seed, int64_t count);  // also "packed bytes": two FP4 codes each
std::vector<uint8_t> generate_e4m3(uint64_t seed, int64_t count);
std::vector<uint8_t> generate_e8m0(uint64_t seed, int base, int64_t count);
std::vector<Bf16> generate_bf16(uint64_t seed, int e0, int64_t count);
std::vector<float> generate_f32(uint64_t seed, int shift, int64_t count);

std::vector<Bf16> absolute(std::vector<Bf16> values);

}  // namespace deepinfer::golden
