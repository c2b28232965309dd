// One safetensors file of the golden data with typed access: a tensor of another type or shape than expected
// is an error that names file and tensor, never a broken invariant.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace deepinfer::golden {

// Immutable after open().
class GoldenFile {
 public:
  static Result<GoldenFile> open(const std::string& path);

  bool contains(std::string_view name) const { return file_.contains(name); }
  std::vector<std::string> names() const { return file_.names(); }
  const std::string& path() const { return path_; }
  // kNotFound.
  Result<Shape> shape(std::string_view name) const;

  // The elements in row-major order. kNotFound; kInvalidArgument for another type or shape (-1 = any length).
  template <typename T>
  Result<std::vector<T>> read(std::string_view name, const Shape& expected) const {
    ASSIGN_OR_RETURN(const TensorView view, checked(name, DTypeOf<T>::value, expected));
    std::vector<T> values(view.size());
    if (!values.empty()) std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    return values;
  }
  // BF16 elements widened to fp32, exactly.
  Result<std::vector<float>> read_bf16(std::string_view name, const Shape& expected) const;
  // The elements of a U8 tensor.
  Result<std::vector<uint8_t>> read_codes(std::string_view name, const Shape& expected) const;

 private:
  GoldenFile(std::string path, SafetensorsFile file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<TensorView> checked(std::string_view name, DType dtype, const Shape& expected) const;

  std::string path_;
  SafetensorsFile file_;
};

std::vector<float> widen(std::span<const Bf16> values);

}  // namespace deepinfer::golden
