// Weight matrices in the form in which the kernels read them: 16 output rows interleaved, so that one SIMD lane belongs
// to one output row and no sum crosses lanes. All 16 rows of a group and a few columns fill 64 bytes:
//
//   kFp8   4 columns.  16 bytes hold four rows: columns (1, 0) of each as two bytes, then columns (3, 2).
//   kFp4   8 columns.  4 bytes a row: nibbles of columns 1, 3, 5, 7, then of 0, 2, 4, 6, the low nibble first.
//   kBf16  2 columns.  4 bytes a row: column 1, then 0.
//   kF32   groups of 8 rows, one column after another: [n / 8][k][n % 8].
//
// The odd column of a pair comes first because the dot products of bf16 pairs add the upper number of a pair first, and
// sums run in ascending order (docs/numerics.md). Rows and columns beyond the matrix are zero. A matrix is packed once at
// load from the row-major tensor of the checkpoint. Packing changes places, never values.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/checked_math.h"
#include "base/status.h"
#include "tensor/formats.h"

namespace deepinfer {

inline constexpr int64_t kRowGroup = 16;   // output rows interleaved
// Names the places above; raised with every change of them, because packed weights are kept on disk (model/weights_cache.h).
inline constexpr uint32_t kPackedForm = 1;
inline constexpr int64_t kSumBlock = 32;   // terms of one partial sum, and the K side of every scale block

enum class MatrixKind { kFp8, kFp4, kBf16, kF32 };

// A borrowed view of a packed matrix, or of a range of its row groups.
struct MatrixView {
  MatrixKind kind = MatrixKind::kBf16;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;    // packed elements
  // E8M0; kFp8: [rows / 32][cols / 32], kFp4: [rows / 16][cols / 32][16]. kBf16: [rows / 16], 0 where every
  // number of the group is 0 or 2^-40 .. 2^60 in magnitude, so that no dot product instruction flushes one.
  const uint8_t* scales = nullptr;

  int64_t group_rows() const { return kind == MatrixKind::kF32 ? 8 : kRowGroup; }
  int64_t num_groups() const { return static_cast<int64_t>(ceil_div(rows, group_rows())); }
  int64_t num_blocks() const { return static_cast<int64_t>(ceil_div(cols, kSumBlock)); }
  // Bytes of one group of rows, of all elements and of all scales.
  int64_t group_bytes() const;
  int64_t data_bytes() const { return num_groups() * group_bytes(); }
  int64_t scale_bytes() const;
  // Rows [first, first + count) as a matrix of its own. Requires first % 32 == 0.
  MatrixView row_range(int64_t first, int64_t count) const;

  // The stored element without its scale, and its scale (1 for kinds without scales). For reading, not for speed.
  float element(int64_t row, int64_t col) const;
  float scale(int64_t row, int64_t col) const;
};

// A packed matrix in memory of its own or of a larger buffer. Filled once, then immutable and thread-safe.
class Matrix {
 public:
  Matrix() = default;
  // Bytes that place() needs, a multiple of 64.
  static int64_t size_bytes(MatrixKind kind, int64_t rows, int64_t cols);
  // An unfilled matrix in `memory` of size_bytes(), aligned to 64, zero, borrowed. Requires cols % 32 == 0 for kinds with
  // scales.
  static Matrix place(MatrixKind kind, int64_t rows, int64_t cols, std::byte* memory);

  // Packs row-major rows [first, first + count) of the tensor; fp4 rows are cols / 2 bytes. Requires first % 16 == 0.
  // Disjoint ranges may be filled by several threads at once.
  void pack_rows(int64_t first, int64_t count, const std::byte* source);
  //   fp8: all scales [ceil(rows/32)][cols/32];  fp4: all scales [rows][cols/32]
  void pack_scales(const std::byte* source);

  // Whole matrices from row-major sources, in memory of their own; sizes must match (CHECKed).
  static Result<Matrix> pack_fp8(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                 std::span<const uint8_t> scales);
  static Result<Matrix> pack_fp4(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                 std::span<const uint8_t> scales);
  static Result<Matrix> pack_bf16(int64_t rows, int64_t cols, std::span<const Bf16> values);
  static Result<Matrix> pack_f32(int64_t rows, int64_t cols, std::span<const float> values);

  const MatrixView& view() const { return view_; }

 private:
  static Result<Matrix> pack_whole(MatrixKind kind, int64_t rows, int64_t cols, std::span<const std::byte> elements,
                                   std::span<const uint8_t> scales);

  AlignedBuffer own_;          // empty when the memory is borrowed
  std::byte* data_ = nullptr;
  uint8_t* scales_ = nullptr;
  MatrixView view_;
};

}  // namespace deepinfer
