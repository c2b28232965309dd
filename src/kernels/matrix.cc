#include "kernels/matrix.h"

#include <cstring>

namespace deepinfer {
namespace {

constexpr int64_t kLineBytes = 64;

// Columns of all rows of a group in 64 bytes; the last line may be filled in part.
int64_t line_columns(MatrixKind kind) {
  switch (kind) {
    case MatrixKind::kFp8: return 4;
    case MatrixKind::kFp4: return 8;
    case MatrixKind::kBf16:
    case MatrixKind::kF32: return 2;
  }
  return 1;
}

int64_t row_bytes(const MatrixView& view) {
  switch (view.kind) {
    case MatrixKind::kFp8: return view.cols;
    case MatrixKind::kFp4: return view.cols / 2;
    case MatrixKind::kBf16: return view.cols * 2;
    case MatrixKind::kF32: return view.cols * 4;
  }
  return 0;
}

// Four bytes of a row, as the checkpoint has them, moved within the four bytes.
inline uint32_t exchange_bytes(uint32_t x) { return (x & 0x00ff00ffu) << 8 | (x >> 8 & 0x00ff00ffu); }
inline uint32_t exchange_halves(uint32_t x) { return x << 16 | x >> 16; }
// Eight nibbles: those with odd index to the lower half, those with even index to the upper.
inline uint32_t part_nibbles(uint32_t x) {
  const auto gather = [](uint32_t even) {
    even = (even | even >> 4) & 0x00ff00ffu;
    return (even | even >> 8) & 0xffffu;
  };
  return gather(x & 0x0f0f0f0fu) << 16 | gather(x >> 4 & 0x0f0f0f0fu);
}

// One row of a group: `words` times four bytes, each to its line. place(line, word) stores one.
template <typename Place>
void pack_row(const std::byte* source, int64_t bytes, std::byte* line, Place&& place) {
  for (int64_t i = 0; i < bytes; i += 4, line += kLineBytes) {
    uint32_t word = 0;
    std::memcpy(&word, source + i, static_cast<size_t>(bytes - i < 4 ? bytes - i : 4));
    place(line, word);
  }
}

bool all_ordinary(const std::byte* source, int64_t bytes) {
  constexpr uint32_t kLeast = (127 - 40) << 7, kMost = (127 + 60) << 7;
  bool ordinary = true;
  for (int64_t i = 0; i < bytes; i += 2) {
    uint16_t bits;
    std::memcpy(&bits, source + i, 2);
    const uint32_t magnitude = bits & 0x7fffu;
    ordinary &= magnitude == 0 || magnitude - kLeast <= kMost - kLeast;
  }
  return ordinary;
}

}  // namespace

int64_t MatrixView::group_bytes() const {
  return static_cast<int64_t>(ceil_div(cols, line_columns(kind))) * kLineBytes;
}

int64_t MatrixView::scale_bytes() const {
  switch (kind) {
    case MatrixKind::kFp8: return static_cast<int64_t>(ceil_div(rows, 32)) * num_blocks();
    case MatrixKind::kFp4: return num_groups() * num_blocks() * kRowGroup;
    case MatrixKind::kBf16:
      return num_groups();
    case MatrixKind::kF32: return 0;
  }
  return 0;
}

MatrixView MatrixView::row_range(int64_t first, int64_t count) const {
  CHECK(first % 32 == 0 && first + count <= rows);
  MatrixView part = *this;
  part.rows = count;
  part.data += first / group_rows() * group_bytes();
  if (kind == MatrixKind::kFp8) part.scales += first / 32 * num_blocks();
  if (kind == MatrixKind::kFp4) part.scales += first / kRowGroup * num_blocks() * kRowGroup;
  if (kind == MatrixKind::kBf16) part.scales += first / kRowGroup;
  return part;
}

float MatrixView::element(int64_t row, int64_t col) const {
  const int64_t lane = row % group_rows(), column = col % line_columns(kind);
  const std::byte* line = data + row / group_rows() * group_bytes() + col / line_columns(kind) * kLineBytes;
  switch (kind) {
    case MatrixKind::kFp8:
      return e4m3_to_float(static_cast<uint8_t>(line[lane / 4 * 16 + column / 2 * 8 + lane % 4 * 2 + (column + 1) % 2]));
    case MatrixKind::kFp4: {
      const auto pair = static_cast<uint8_t>(line[lane * 4 + (column + 1) % 2 * 2 + column / 4]);
      return e2m1_to_float(column / 2 % 2 == 0 ? pair & 15 : pair >> 4);
    }
    case MatrixKind::kBf16: return to_float(reinterpret_cast<const Bf16*>(line)[lane * 2 + (column + 1) % 2]);
    case MatrixKind::kF32: return reinterpret_cast<const float*>(line)[column * 8 + lane];
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

int64_t Matrix::size_bytes(MatrixKind kind, int64_t rows, int64_t cols) {
  const MatrixView view = {kind, rows, cols};
  return view.data_bytes() + static_cast<int64_t>(round_up(static_cast<size_t>(view.scale_bytes()), kLineBytes));
}

Matrix Matrix::place(MatrixKind kind, int64_t rows, int64_t cols, std::byte* memory) {
  CHECK(kind == MatrixKind::kBf16 || kind == MatrixKind::kF32 || cols % kSumBlock == 0);
  Matrix matrix;
  matrix.view_ = {kind, rows, cols};
  matrix.data_ = memory;
  matrix.scales_ = reinterpret_cast<uint8_t*>(memory + matrix.view_.data_bytes());
  matrix.view_.data = matrix.data_;
  matrix.view_.scales = matrix.scales_;
  return matrix;
}

void Matrix::pack_rows(int64_t first, int64_t count, const std::byte* source) {
  const int64_t bytes = row_bytes(view_), group_rows = view_.group_rows();
  for (int64_t row = first; row < first + count; ++row, source += bytes) {
    const int64_t lane = row % group_rows;
    std::byte* group = data_ + row / group_rows * view_.group_bytes();
    const auto store = [lane](std::byte* line, uint32_t word) { std::memcpy(line + lane * 4, &word, 4); };
    switch (view_.kind) {
      case MatrixKind::kFp8:
        pack_row(source, bytes, group + lane / 4 * 16 + lane % 4 * 2, [](std::byte* line, uint32_t word) {
          const uint32_t exchanged = exchange_bytes(word);
          std::memcpy(line, &exchanged, 2);
          const uint32_t upper = exchanged >> 16;
          std::memcpy(line + 8, &upper, 2);
        });
        break;
      case MatrixKind::kFp4:
        pack_row(source, bytes, group, [&](std::byte* line, uint32_t word) { store(line, part_nibbles(word)); });
        break;
      case MatrixKind::kBf16:
        pack_row(source, bytes, group, [&](std::byte* line, uint32_t word) { store(line, exchange_halves(word)); });
        if (lane == 0) scales_[row / kRowGroup] = 0;
        if (!all_ordinary(source, bytes)) scales_[row / kRowGroup] = 1;
        break;
      case MatrixKind::kF32:
        for (int64_t k = 0; k < view_.cols; ++k) std::memcpy(group + (k * 8 + lane) * 4, source + 4 * k, 4);
        break;
    }
  }
}

void Matrix::pack_scales(const std::byte* source) {
  if (view_.kind == MatrixKind::kFp8) std::memcpy(scales_, source, static_cast<size_t>(view_.scale_bytes()));
  if (view_.kind != MatrixKind::kFp4) return;
  const int64_t blocks = view_.num_blocks();
  for (int64_t row = 0; row < view_.rows; ++row, source += blocks) {
    uint8_t* lane = scales_ + row / kRowGroup * blocks * kRowGroup + row % kRowGroup;
    for (int64_t block = 0; block < blocks; ++block) lane[block * kRowGroup] = static_cast<uint8_t>(source[block]);
  }
}

Result<Matrix> Matrix::pack_whole(MatrixKind kind, int64_t rows, int64_t cols, std::span<const std::byte> elements,
                                  std::span<const uint8_t> scales) {
  ASSIGN_OR_RETURN(AlignedBuffer own, AlignedBuffer::allocate(static_cast<size_t>(size_bytes(kind, rows, cols))));
  Matrix matrix = place(kind, rows, cols, own.data());
  matrix.own_ = std::move(own);
  CHECK(elements.size() == static_cast<size_t>(rows * row_bytes(matrix.view_)));
  matrix.pack_rows(0, rows, elements.data());
  matrix.pack_scales(reinterpret_cast<const std::byte*>(scales.data()));
  return matrix;
}

Result<Matrix> Matrix::pack_fp8(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                std::span<const uint8_t> scales) {
  CHECK(scales.size() == ceil_div(rows, 32) * ceil_div(cols, 32));
  return pack_whole(MatrixKind::kFp8, rows, cols, std::as_bytes(codes), scales);
}
Result<Matrix> Matrix::pack_fp4(int64_t rows, int64_t cols, std::span<const uint8_t> codes,
                                std::span<const uint8_t> scales) {
  CHECK(scales.size() == static_cast<size_t>(rows * cols / 32));
  return pack_whole(MatrixKind::kFp4, rows, cols, std::as_bytes(codes), scales);
}
Result<Matrix> Matrix::pack_bf16(int64_t rows, int64_t cols, std::span<const Bf16> values) {
  return pack_whole(MatrixKind::kBf16, rows, cols, std::as_bytes(values), {});
}
Result<Matrix> Matrix::pack_f32(int64_t rows, int64_t cols, std::span<const float> values) {
  return pack_whole(MatrixKind::kF32, rows, cols, std::as_bytes(values), {});
}

}  // namespace deepinfer
