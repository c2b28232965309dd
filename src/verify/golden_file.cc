#include "verify/golden_file.h"

namespace deepinfer::golden {
namespace {

bool shape_matches(const Shape& found, const Shape& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] >= 0 && expected[i] != found[i]) return false;
  }
  return true;
}

}  // namespace

Result<GoldenFile> GoldenFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::load(path));
  return GoldenFile(path, std::move(file));
}

Result<Shape> GoldenFile::shape(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorView view, file_.find(name));
  return view.shape;
}

Result<TensorView> GoldenFile::checked(std::string_view name, DType dtype, const Shape& expected) const {
  ASSIGN_OR_RETURN(TensorView view, file_.find(name));
  if (view.dtype != dtype || !shape_matches(view.shape, expected)) {
    return Error(Code::kInvalidArgument, "{}: tensor '{}': found {} {}, expected {} {} (-1 = any)", path_,
                 name, dtype_name(view.dtype), shape_string(view.shape), dtype_name(dtype),
                 shape_string(expected));
  }
  return view;
}

Result<std::vector<float>> GoldenFile::read_bf16(std::string_view name, const Shape& expected) const {
  ASSIGN_OR_RETURN(const std::vector<Bf16> values, read<Bf16>(name, expected));
  return widen(values);
}

Result<std::vector<uint8_t>> GoldenFile::read_codes(std::string_view name, const Shape& expected) const {
  ASSIGN_OR_RETURN(const TensorView view, checked(name, DType::kU8, expected));
  const auto codes = view.codes();
  return std::vector<uint8_t>(codes.begin(), codes.end());
}

std::vector<float> widen(std::span<const Bf16> values) {
  std::vector<float> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) wide[i] = to_float(values[i]);
  return wide;
}

}  // namespace deepinfer::golden
