// Element types, shapes and non-owning views of tensors that lie in row-major order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/formats.h"

namespace deepinfer {

// The element types of a safetensors file that the model or its golden data use. FP4 tensors are stored as kI8 with
// two codes a byte, as the released checkpoint does.
enum class DType { kF32, kBF16, kF8E4M3, kF8E8M0, kI8, kU8, kI32, kI64 };

size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);                   // the spelling of safetensors: "F32", "F8_E4M3", ...
std::optional<DType> dtype_from_name(std::string_view name);  // nullopt for names that we do not read

using Shape = std::vector<int64_t>;
std::string shape_string(const Shape& shape);  // "[24, 20480]"
// Product of the dimensions; nullopt when it overflows or a dimension is negative.
std::optional<size_t> num_elements(const Shape& shape);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

// A borrowed tensor: the owner of `bytes` must outlive it. bytes.size() == num_elements(shape) * dtype_size(dtype).
struct TensorView {
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const std::byte> bytes;

  size_t size() const { return bytes.size() / dtype_size(dtype); }

  // The elements as T. CHECKs the dtype; data read from files is checked before a view of it is made.
  template <typename T>
  std::span<const T> as() const {
    CHECK(dtype == DTypeOf<T>::value);
    return {reinterpret_cast<const T*>(bytes.data()), size()};
  }
  // Raw codes of the one-byte types.
  std::span<const uint8_t> codes() const {
    CHECK(dtype_size(dtype) == 1);
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
};

}  // namespace deepinfer
