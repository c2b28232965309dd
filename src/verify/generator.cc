#include "verify/generator.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace deepinfer::golden {
namespace {

// Elements 0 ... count - 1 of the stream cut into Ts, each turned into a value.
template <typename T, typename MakeValue>
auto generate(uint64_t seed, int64_t count, MakeValue&& make_value) {
  constexpr int64_t kPerWord = sizeof(uint64_t) / sizeof(T);
  std::vector<std::invoke_result_t<MakeValue, T>> values(static_cast<size_t>(count));
  for (int64_t first = 0; first < count; first += kPerWord) {
    uint64_t word = splitmix64(seed, static_cast<uint64_t>(first / kPerWord));
    for (int64_t k = first; k < std::min(first + kPerWord, count); ++k) {
      values[k] = make_value(static_cast<T>(word));
      word >>= 8 * sizeof(T);
    }
  }
  return values;
}

}  // namespace

uint64_t splitmix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

std::vector<uint8_t> generate_bytes(uint64_t seed, int64_t count) {
  return generate<uint8_t>(seed, count, [](uint8_t b) { return b; });
}

std::vector<uint8_t> generate_e4m3(uint64_t seed, int64_t count) {
  return generate<uint8_t>(seed, count, [](uint8_t b) {
    return static_cast<uint8_t>((b & 0x80) | (4 + (b >> 3 & 7)) << 3 | (b & 7));
  });
}

std::vector<uint8_t> generate_e8m0(uint64_t seed, int base, int64_t count) {
  return generate<uint8_t>(seed, count, [base](uint8_t b) { return static_cast<uint8_t>(base + (b & 3)); });
}

std::vector<Bf16> generate_bf16(uint64_t seed, int e0, int64_t count) {
  return generate<uint16_t>(seed, count, [e0](uint16_t r) {
    return Bf16{static_cast<uint16_t>((r & 0x8000) | (e0 + (r >> 7 & 7)) << 7 | (r & 0x7f))};
  });
}

std::vector<float> generate_f32(uint64_t seed, int shift, int64_t count) {
  return generate<uint32_t>(seed, count, [shift](uint32_t r) {
    return std::ldexp(static_cast<float>(static_cast<int32_t>(r >> 8) - (1 << 23)), -shift);
  });
}

std::vector<Bf16> absolute(std::vector<Bf16> values) {
  for (Bf16& value : values) value.bits &= 0x7fff;
  return values;
}

}  // namespace deepinfer::golden
