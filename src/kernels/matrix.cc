#include "kernels/matrix.h"

#include <cstring>

namespace deepinfer {
namespace {

int64_t element_bits(MatrixKind kind) {
  switch (kind) {
    case MatrixKind::kFp8: return 8;
    case MatrixKind::kFp4: return 4;
    case MatrixKind::kBf16: return 16;
    case MatrixKind::kF32: return 32;
  }
  return 0;
}

// Moves row-major elements of type T to their interleaved places.
template <typename T>
void interleave(int64_t rows, int64_t cols, const T* source, T* packed) {
  for (int64_t n = 0; n < rows; ++n) {
    T* group = packed + n / kRowGroup * kRowGroup * cols + n % kRowGroup;
    const T* row = source + n * cols;
    for (int64_t k = 0; k < cols; ++k) group[k * kRowGroup] = row[k];
  }
}

}  // namespace

int64_t MatrixView::group_bytes() const { return kRowGroup * cols * element_bits(kind) / 8; }

MatrixView MatrixView::row_range(int64_t first, int64_t count) const {
  CHECK(first % 32 == 0 && first + count <= rows);
  MatrixView part = *this;
  part.rows = count;
  part.data += first / kRowGroup * group_bytes();
  if (kind == MatrixKind::kFp8) part.scales += first / 32 * num_blocks();
  if (kind == MatrixKind::kFp4) part.scales += first / kRowGroup * num_blocks() * kRowGroup;
  return part;
}

float MatrixView::element(int64_t row, int64_t col) const {
  const std::byte* group = data + row / kRowGroup * group_bytes();
  const int64_t lane = row % kRowGroup;
  switch (kind) {
    case MatrixKind::kFp8: return e4m3_to_float(static_cast<uint8_t>(group[col * kRowGroup + lane]));
    case MatrixKind::kFp4: {
      const auto pair = static_cast<uint8_t>(group[col / 2 * kRowGroup + lane]);
      return e2m1_to_float(col % 2 == 0 ? pair & 15 : pair >> 4);
    }
    case MatrixKind::kBf16: return to_float(reinterpret_cast<const Bf16*>(group)[col * kRowGroup + lane]);
    case MatrixKind::kF32: return reinterpret_cast<const float*>(group)[col * kRowGroup + lane];
  }
  return 0;
}

float MatrixView::scale(int64_t row, int64_t col) const {
  switch (kind) {
    case MatrixKind::kFp8: return e8m0_to_float(scales[row / 32 * num_blocks() + col / 32]);
    case MatrixKind::kFp4:
      return e8m0_to_float(scales[(row / kRowGroup * num_blocks() + col / 32) * kRowGroup + row % kRowGroup]);
    case MatrixKind::kBf16:
    case MatrixKind::kF32: return 1.0f;
  }
  return 1.0f;
}

namespace {

Result<AlignedBuffer> allocate_elements(const MatrixView& view) {
  return AlignedBuffer::allocate(static_cast<size_t>(view.num_groups() * view.group_bytes()));
}

}  // namespace

Result<Matrix> Matrix::pack_fp8(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                std::span<const uint8_t> scales) {
  CHECK(cols % kSumBlock == 0 && codes.size() == static_cast<size_t>(rows * cols));
  CHECK(scales.size() == ceil_div(rows, 32) * ceil_div(cols, 32));
  Matrix matrix;
  matrix.view_ = {MatrixKind::kFp8, rows, cols};
  ASSIGN_OR_RETURN(matrix.data_, allocate_elements(matrix.view_));
  ASSIGN_OR_RETURN(matrix.scales_, AlignedBuffer::allocate(scales.size()));
  interleave(rows, cols, codes.data(), matrix.data_.as<uint8_t>());
  std::memcpy(matrix.scales_.data(), scales.data(), scales.size());
  matrix.view_.data = matrix.data_.data();
  matrix.view_.scales = matrix.scales_.as<uint8_t>();
  return matrix;
}

Result<Matrix> Matrix::pack_fp4(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                std::span<const uint8_t> scales) {
  CHECK(cols % kSumBlock == 0 && codes.size() == static_cast<size_t>(rows * cols / 2));
  CHECK(scales.size() == static_cast<size_t>(rows * cols / 32));
  Matrix matrix;
  matrix.view_ = {MatrixKind::kFp4, rows, cols};
  ASSIGN_OR_RETURN(matrix.data_, allocate_elements(matrix.view_));
  ASSIGN_OR_RETURN(matrix.scales_, AlignedBuffer::allocate(static_cast<size_t>(
                                       matrix.view_.num_groups() * matrix.view_.num_blocks() * kRowGroup)));
  interleave(rows, cols / 2, codes.data(), matrix.data_.as<uint8_t>());
  interleave(rows, cols / 32, scales.data(), matrix.scales_.as<uint8_t>());
  matrix.view_.data = matrix.data_.data();
  matrix.view_.scales = matrix.scales_.as<uint8_t>();
  return matrix;
}

Result<Matrix> Matrix::pack_bf16(int64_t rows, int64_t cols, std::span<const Bf16> values) {
  CHECK(values.size() == static_cast<size_t>(rows * cols));
  Matrix matrix;
  matrix.view_ = {MatrixKind::kBf16, rows, cols};
  ASSIGN_OR_RETURN(matrix.data_, allocate_elements(matrix.view_));
  interleave(rows, cols, values.data(), matrix.data_.as<Bf16>());
  matrix.view_.data = matrix.data_.data();
  return matrix;
}

Result<Matrix> Matrix::pack_f32(int64_t rows, int64_t cols, std::span<const float> values) {
  CHECK(values.size() == static_cast<size_t>(rows * cols));
  Matrix matrix;
  matrix.view_ = {MatrixKind::kF32, rows, cols};
  ASSIGN_OR_RETURN(matrix.data_, allocate_elements(matrix.view_));
  interleave(rows, cols, values.data(), matrix.data_.as<float>());
  matrix.view_.data = matrix.data_.data();
  return matrix;
}

}  // namespace deepinfer
