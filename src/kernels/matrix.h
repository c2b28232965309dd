// Weight matrices in the form in which the kernels read them: 16 output rows interleaved, so that one SIMD lane belongs
// to one output row and no sum crosses lanes.
//
//   element (n, k) of a group of 16 rows lies at [n / 16][k][n % 16]; rows beyond N are zero.
//
// A matrix is packed once at load from the row-major tensor of the checkpoint. Packing changes places, never values.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "tensor/formats.h"

namespace deepinfer {

inline constexpr int64_t kRowGroup = 16;   // output rows interleaved
inline constexpr int64_t kSumBlock = 32;   // terms of one partial sum, and the K side of every scale block

enum class MatrixKind { kFp8, kFp4, kBf16, kF32 };

// A borrowed view of a packed matrix, or of a range of its row groups.
struct MatrixView {
  MatrixKind kind = MatrixKind::kBf16;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;    // packed elements
  const uint8_t* scales = nullptr;    // E8M0; kFp8: [rows / 32][cols / 32], kFp4: [rows / 16][cols / 32][16]

  int64_t num_groups() const { return static_cast<int64_t>(ceil_div(rows, kRowGroup)); }
  int64_t num_blocks() const { return static_cast<int64_t>(ceil_div(cols, kSumBlock)); }
  // Bytes of one group of 16 rows.
  int64_t group_bytes() const;
  // Rows [first, first + count) as a matrix of its own. Requires first % 32 == 0.
  MatrixView row_range(int64_t first, int64_t count) const;

  // The stored element without its scale, and its scale (1 for kinds without scales). For reading, not for speed.
  float element(int64_t row, int64_t col) const;
  float scale(int64_t row, int64_t col) const;
};

// Owns a packed matrix. Immutable after packing; thread-safe.
class Matrix {
 public:
  Matrix() = default;
  // Row-major sources; sizes must match (CHECKed: the checkpoint has verified shapes before).
  //   fp8: codes [rows * cols], scales [ceil(rows/32) * ceil(cols/32)];  requires cols % 32 == 0
  //   fp4: codes [rows * cols / 2], scales [rows * cols / 32];           requires cols % 32 == 0
  static Result<Matrix> pack_fp8(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                 std::span<const uint8_t> scales);
  static Result<Matrix> pack_fp4(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                 std::span<const uint8_t> scales);
  static Result<Matrix> pack_bf16(int64_t rows, int64_t cols, std::span<const Bf16> values);
  static Result<Matrix> pack_f32(int64_t rows, int64_t cols, std::span<const float> values);

  const MatrixView& view() const { return view_; }
  size_t size_bytes() const { return data_.size() + scales_.size(); }

 private:
  AlignedBuffer data_, scales_;
  MatrixView view_;
};

}  // namespace deepinfer
