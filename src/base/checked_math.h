// Arithmetic on sizes that come from files and peers: every overflow is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace deepinfer {

inline std::optional<size_t> checked_mul(size_t a, size_t b) {
  size_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<size_t> checked_add(size_t a, size_t b) {
  size_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Smallest multiple of `unit` that is >= value. Requires unit > 0 and no overflow (sizes of memory that exists).
constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
constexpr size_t ceil_div(size_t value, size_t unit) { return (value + unit - 1) / unit; }

}  // namespace deepinfer
