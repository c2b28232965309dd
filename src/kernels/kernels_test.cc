// Every table against the scalar reference, bit for bit, and every row alone against the row in company.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/linear_list.h"
#include "kernels/one_op.h"
#include "kernels/ops.h"
#include "kernels/quantize.h"
#include "kernels/tables.h"

namespace deepinfer {
namespace {

class Workbench {
 public:
  explicit Workbench(int threads) : pool_(threads), scratch_(*AlignedBuffer::allocate(size_t{1} << 22)) {
    context_ = {&pool_, scratch_.data(), scratch_.size() / threads / 64 * 64};
  }
  KernelContext& context() { return context_; }

 private:
  ThreadPool pool_;
  AlignedBuffer scratch_;
  KernelContext context_;
};

std::vector<uint8_t> random_bytes(std::mt19937& rng, size_t count, int low = 0, int high = 255) {
  std::uniform_int_distribution<int> pick(low, high);
  std::vector<uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(pick(rng));
  return bytes;
}

std::vector<Bf16> random_bf16(std::mt19937& rng, size_t count, float spread = 1.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<Bf16> values(count);
  for (auto& value : values) value = to_bf16(normal(rng));
  return values;
}

Matrix random_matrix(std::mt19937& rng, MatrixKind kind, int64_t rows, int64_t cols) {
  switch (kind) {
    case MatrixKind::kFp8:
      return *Matrix::pack_fp8(rows, cols, random_bytes(rng, rows * cols, 0, 126),
                               random_bytes(rng, (rows + 31) / 32 * (cols / 32), 100, 140));
    case MatrixKind::kFp4:
      return *Matrix::pack_fp4(rows, cols, random_bytes(rng, rows * cols / 2),
                               random_bytes(rng, rows * cols / 32, 100, 140));
    case MatrixKind::kBf16: return *Matrix::pack_bf16(rows, cols, random_bf16(rng, rows * cols));
    case MatrixKind::kF32: {
      std::normal_distribution<float> normal;
      std::vector<float> values(rows * cols);
      for (float& value : values) value = normal(rng);
      return *Matrix::pack_f32(rows, cols, values);
    }
  }
  return {};
}

struct Operand {
  std::vector<Bf16> values;
  int64_t stride;
  ActivationRows rows(int64_t first, int64_t count) const {
    return {.values = values.data() + first * stride, .count = count, .stride = stride};
  }
};

Operand quantized_operand(const std::vector<Bf16>& x, int64_t cols) {
  Operand operand{std::vector<Bf16>(x.size()), cols};
  (*select_ops("ref"))->quantize_rows(x.data(), std::ssize(x) / cols, cols, operand.values.data());
  return operand;
}
Operand plain_operand(const std::vector<Bf16>& x, int64_t cols) {
  const int64_t rows = std::ssize(x) / cols, stride = (cols + 1) / 2 * 2;
  Operand operand{std::vector<Bf16>(rows * stride), stride};
  (*select_ops("ref"))->pair_rows(x.data(), rows, cols, operand.values.data());
  return operand;
}

// Bits, all NaN being one.
std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  return bits;
}
std::vector<uint16_t> bits_of(std::span<const Bf16> values) {
  std::vector<uint16_t> bits;
  for (const Bf16 value : values) bits.push_back(std::isnan(to_float(value)) ? 0x7fc0 : value.bits);
  return bits;
}

class TableTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto ops = select_ops(GetParam());
    if (!ops.ok()) GTEST_SKIP() << ops.error().message();
    ops_ = *ops;
    ASSERT_EQ(ops_->name, GetParam());
  }
  const Ops* ops_ = nullptr;
  const Ops* ref_ = *select_ops("ref");
  Workbench bench_{2};
  std::mt19937 rng_{42};
};

// Products of `x` rows [0, count) with both tables, for every count given.
void compare_products(const Ops& ref, const Ops& ops, KernelContext& ctx, const MatrixView& w, const Operand& x,
                      const std::vector<int64_t>& counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<float> expected(most * w.rows), found(most * w.rows);
  std::vector<Bf16> rounded(most * w.rows);
  run_linear(ref, ctx, w, x.rows(0, most), {.f32 = expected.data(), .stride = w.rows});
  const auto expected_bits = bits_of(std::span<const float>(expected));
  for (const int64_t count : counts) {
    std::fill(found.begin(), found.end(), -1.0f);
    run_linear(ops, ctx, w, x.rows(0, count), {.f32 = found.data(), .stride = w.rows});
    run_linear(ops, ctx, w, x.rows(0, count), {.bf16 = rounded.data(), .stride = w.rows});
    const auto found_bits = bits_of(std::span<const float>(found));
    for (int64_t i = 0; i < count * w.rows; ++i) {
      ASSERT_EQ(found_bits[i], expected_bits[i])
          << "kind " << int(w.kind) << " shape " << w.rows << "x" << w.cols << " rows " << count << ", row "
          << i / w.rows << " output " << i % w.rows << ": found " << found[i] << " expected " << expected[i];
      ASSERT_EQ(std::isnan(found[i]) ? std::isnan(to_float(rounded[i])) : rounded[i] == to_bf16(found[i]), true);
    }
    for (int64_t i = count * w.rows; i < most * w.rows; ++i) ASSERT_EQ(found[i], -1.0f) << "written beyond its rows";
  }
}

TEST_P(TableTest, ProductsOfEveryKindEqualTheReferenceForOneToThirtyThreeRows) {
  std::vector<int64_t> counts(33);
  std::iota(counts.begin(), counts.end(), 1);
  for (const MatrixKind kind : {MatrixKind::kFp8, MatrixKind::kFp4, MatrixKind::kBf16}) {
    const Matrix matrix = random_matrix(rng_, kind, 112, 192);
    const Operand x = quantized_operand(random_bf16(rng_, 33 * 192, 3.0f), 192);
    compare_products(*ref_, *ops_, bench_.context(), matrix.view(), x, counts);
  }
}

TEST_P(TableTest, ProductsOfEveryShapeEqualTheReference) {
  const int64_t shapes[][2] = {{16, 32}, {48, 64}, {4, 96}, {24, 256}, {100, 160}, {1, 32}, {300, 544}, {65, 1056}};
  for (const MatrixKind kind : {MatrixKind::kFp8, MatrixKind::kFp4, MatrixKind::kBf16}) {
    for (const auto& [rows, cols] : shapes) {
      const Matrix matrix = random_matrix(rng_, kind, rows, cols);
      const auto x = random_bf16(rng_, 70 * cols, 3.0f);
      compare_products(*ref_, *ops_, bench_.context(), matrix.view(), quantized_operand(x, cols),
                       {1, 2, 3, 6, 7, 64, 65, 66, 67, 68, 69, 70});
      compare_products(*ref_, *ops_, bench_.context(), matrix.view(), plain_operand(x, cols),
                       {1, 5, 70});
    }
  }
}

TEST_P(TableTest, ManyRowsEqualTheReferenceBeyondEveryTile) {
  const Matrix matrix = random_matrix(rng_, MatrixKind::kFp4, 72, 576);
  const Operand x = quantized_operand(random_bf16(rng_, 601 * 576, 3.0f), 576);
  compare_products(*ref_, *ops_, bench_.context(), matrix.view(), x, {255, 256, 257, 601});
}

// One number beyond what the dot product instructions keep, in the second group of rows.
TEST_P(TableTest, PlainWeightsOfEveryMagnitudeEqualTheReference) {
  for (const uint16_t bits : {0x0001, 0x0080, 0x2b7f, 0x2b80, 0x5d80, 0x5d81, 0x7f00}) {
    auto weights = random_bf16(rng_, 48 * 96);
    weights[20 * 96 + 7].bits = bits;
    const Matrix matrix = *Matrix::pack_bf16(48, 96, weights);
    const uint8_t strange = bits < 0x2b80 || bits > 0x5d80 ? 1 : 0;
    EXPECT_EQ(std::vector<uint8_t>(matrix.view().scales, matrix.view().scales + 3),
              (std::vector<uint8_t>{0, strange, 0}));
    const auto x = random_bf16(rng_, 66 * 96);
    compare_products(*ref_, *ops_, bench_.context(), matrix.view(), plain_operand(x, 96),
                     {1, 4, 8, 20, 66});
  }
}

TEST_P(TableTest, OddNumbersOfColumnsEndAtTheirLastColumn) {
  for (const int64_t cols : {1, 3, 33, 95}) {
    const Matrix matrix = random_matrix(rng_, MatrixKind::kBf16, 20, cols);
    auto x = random_bf16(rng_, 67 * cols);
    for (int64_t row = 0; row < 67; ++row) x[row * cols + cols - 1] = to_bf16(-0.0f);
    compare_products(*ref_, *ops_, bench_.context(), matrix.view(), plain_operand(x, cols), {1, 2, 9, 67});
  }
}

// Scales at both ends of their range, codes of every kind, denormal activations, infinities, rows of zeros.
TEST_P(TableTest, ProductsOfExtremeNumbersEqualTheReference) {
  const int64_t rows = 64, cols = 128;
  for (const int low : {0, 20, 60, 190, 250}) {
    for (const MatrixKind kind : {MatrixKind::kFp8, MatrixKind::kFp4}) {
      const auto codes = random_bytes(rng_, rows * cols);
      const auto scales = random_bytes(rng_, rows * cols / 32, low, low + 5);
      const Matrix matrix = kind == MatrixKind::kFp8
                                ? *Matrix::pack_fp8(rows, cols, codes, std::span(scales).first(rows * cols / 1024))
                                : *Matrix::pack_fp4(rows, cols, std::span(codes).first(rows * cols / 2), scales);
      auto x = random_bf16(rng_, 67 * cols);
      std::fill_n(x.begin() + cols, cols, Bf16{0});
      for (int64_t k = 0; k < cols; ++k) x[2 * cols + k].bits = static_cast<uint16_t>(k);           // denormal
      for (int64_t k = 0; k < cols; ++k) x[3 * cols + k].bits = static_cast<uint16_t>(0x0080 + k);  // just normal
      for (int64_t k = 0; k < cols; ++k) x[4 * cols + k].bits = static_cast<uint16_t>(0x2b00 + 8 * k);  // 2^-41 and on
      for (int64_t k = 0; k < cols; k += 5) x[5 * cols + k].bits = 0x7f80;                           // infinite
      for (int64_t k = 0; k < cols; ++k) x[6 * cols + k].bits = static_cast<uint16_t>(0x7f00 + k % 128);  // huge
      const Operand plain = plain_operand(x, cols);
      compare_products(*ref_, *ops_, bench_.context(), matrix.view(), plain, {12, 67});
      for (int64_t row = 0; row < 12; ++row) {
        compare_products(*ref_, *ops_, bench_.context(), matrix.view(),
                         {{plain.values.begin() + row * cols, plain.values.begin() + (row + 1) * cols}, cols},
                         {1});
      }
      for (int64_t row = 2; row < 67; ++row) std::copy_n(x.begin() + row % 2 * cols, cols, x.begin() + row * cols);
      compare_products(*ref_, *ops_, bench_.context(), matrix.view(), quantized_operand(x, cols),
                       {1, 2, 67});
    }
  }
}

// Fast mode: FP4 weights and INT8 activations.
std::vector<Int8Block> int8_operand(const Operand& x) {
  std::vector<Int8Block> blocks(x.values.size() / 32);
  (*select_ops("ref"))
      ->encode_int8(x.values.data(), std::ssize(x.values) / x.stride, x.stride, blocks.data());
  return blocks;
}

TEST_P(TableTest, Int8ActivationsEqualTheReference) {
  for (const float spread : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
    auto x = random_bf16(rng_, 40 * 96, spread);
    std::fill_n(x.begin() + 96, 96, Bf16{0});
    Operand operand = quantized_operand(x, 96);
    operand.values[3 * 96 + 5].bits = 0x7fc0;
    operand.values[4 * 96 + 70].bits = 0xff80;
    const auto expected = int8_operand(operand);
    std::vector<Int8Block> found(expected.size());
    ops_->encode_int8(operand.values.data(), 40, 96, found.data());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(std::equal(expected[i].codes, expected[i].codes + 32, found[i].codes)) << i;
      EXPECT_EQ(expected[i].minus_12_sum, found[i].minus_12_sum);
      EXPECT_EQ(std::isnan(expected[i].scale) ? -1 : expected[i].scale,
                std::isnan(found[i].scale) ? -1 : found[i].scale);
    }
    EXPECT_TRUE(std::isnan(found[9].scale) && std::isnan(found[14].scale));
    EXPECT_EQ(found[3].minus_12_sum, 0);
  }
}

TEST_P(TableTest, Int8ActivationsLoseNothingOfLargeNumbers) {
  std::vector<Bf16> x(32);
  const auto set = [&](int64_t column, float value) { x[column ^ 1] = to_bf16(value); };
  set(0, 448.0f);
  set(1, -36.0f);
  set(6, 416.0f);
  set(31, 6.0f);  // between two codes: to the even one
  Int8Block block;
  ops_->encode_int8(x.data(), 1, 32, &block);
  const auto value = [&](int column) {
    const auto place = std::find(kInt8Order, kInt8Order + 8, column % 8) - kInt8Order;
    return static_cast<float>(block.codes[column / 8 * 8 + place]) * 2 * block.scale;
  };
  EXPECT_EQ(value(0), 448.0f);
  EXPECT_EQ(value(1), -36.0f);
  EXPECT_EQ(value(6), 416.0f);
  EXPECT_EQ(value(31), 8.0f);
  EXPECT_EQ(value(30), 0.0f);
}

TEST_P(TableTest, FastProductsEqualTheReferenceForAnyNumberOfRows) {
  const int64_t shapes[][2] = {{112, 192}, {16, 32}, {24, 256}, {100, 544}, {65, 1056}};
  for (const auto& [rows, cols] : shapes) {
    for (const int low : {0, 110, 245}) {  // scales at both ends of their range, too
      const Matrix matrix = *Matrix::pack_fp4(rows, cols, random_bytes(rng_, rows * cols / 2),
                                              random_bytes(rng_, rows * cols / 32, low, low + 10));
      const int64_t most = cols == 192 ? 270 : 35;
      const Operand x = quantized_operand(random_bf16(rng_, most * cols, low == 245 ? 1e-4f : 3.0f), cols);
      const auto blocks = int8_operand(x);
      const auto product = [&](const Ops& ops, int64_t count) {
        std::vector<float> y(count * rows);
        ActivationRows operand = x.rows(0, count);
        operand.int8 = blocks.data();
        run_linear(ops, bench_.context(), matrix.view(), operand, {.f32 = y.data(), .stride = rows});
        return bits_of(std::span<const float>(y));
      };
      const auto expected = product(*ref_, most);
      for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 65, 66, 67, 256, 257, 270}) {
        if (count > most) break;
        const auto found = product(*ops_, count);
        ASSERT_TRUE(std::equal(found.begin(), found.end(), expected.begin()))
            << rows << "x" << cols << " rows " << count;
      }
    }
  }
}

// Both modes multiply the same weights: where the codes hold every activation, only the order of the sum
// differs.
TEST_P(TableTest, FastProductsOfExactCodesAreThoseOfTheExactMode) {
  const int64_t rows = 48, cols = 64;
  const Matrix matrix = random_matrix(rng_, MatrixKind::kFp4, rows, cols);
  std::vector<Bf16> values(3 * cols);
  for (auto& value : values) value = to_bf16(static_cast<float>(static_cast<int>(rng_() % 15) - 7));
  const Operand x = {values, cols};
  const auto blocks = int8_operand(x);
  std::vector<float> exact(3 * rows), fast(3 * rows);
  run_linear(*ops_, bench_.context(), matrix.view(), x.rows(0, 3), {.f32 = exact.data(), .stride = rows});
  ActivationRows operand = x.rows(0, 3);
  operand.int8 = blocks.data();
  run_linear(*ops_, bench_.context(), matrix.view(), operand, {.f32 = fast.data(), .stride = rows});
  EXPECT_EQ(exact, fast);  // few whole numbers: every partial sum is exact, whatever its order
}

TEST_P(TableTest, RowsMayBeGatheredAndMatricesCut) {
  const Matrix matrix = random_matrix(rng_, MatrixKind::kFp8, 96, 64);
  const Operand x = quantized_operand(random_bf16(rng_, 8 * 64, 3.0f), 64);
  std::vector<float> all(8 * 96), part(3 * 32);
  run_linear(*ref_, bench_.context(), matrix.view(), x.rows(0, 8), {.f32 = all.data(), .stride = 96});
  const int32_t index[] = {5, 0, 7};
  ActivationRows gathered = x.rows(0, 3);
  gathered.row_index = index;
  run_linear(*ops_, bench_.context(), matrix.view().row_range(64, 32), gathered, {.f32 = part.data(), .stride = 32});
  for (int i = 0; i < 3; ++i) {
    for (int n = 0; n < 32; ++n) ASSERT_EQ(part[i * 32 + n], all[index[i] * 96 + 64 + n]);
  }
}

TEST_P(TableTest, ListsOfProductsEqualTheirProductsAlone) {
  const MatrixKind kinds[] = {MatrixKind::kFp8, MatrixKind::kBf16, MatrixKind::kFp4, MatrixKind::kFp4};
  const int64_t rows[] = {96, 20, 160, 16}, counts[] = {1, 3, 2, 11}, cols = 96;
  const Operand x = quantized_operand(random_bf16(rng_, 11 * cols), cols);
  std::vector<Matrix> matrices;
  std::vector<std::vector<float>> expected, found;
  std::vector<LinearTask> tasks;
  for (int i = 0; i < 4; ++i) {
    matrices.push_back(random_matrix(rng_, kinds[i], rows[i], cols));
    expected.emplace_back(rows[i] * counts[i]);
    found.emplace_back(rows[i] * counts[i]);
    run_linear(*ref_, bench_.context(), matrices[i].view(), x.rows(0, counts[i]),
               {.f32 = expected[i].data(), .stride = rows[i]});
  }
  for (int i = 0; i < 4; ++i) {
    tasks.push_back({matrices[i].view(), x.rows(0, counts[i]), {.f32 = found[i].data(), .stride = rows[i]}});
  }
  run_linear_list(*ops_, bench_.context(), tasks);
  EXPECT_EQ(expected, found);
  run_linear_list(*ops_, bench_.context(), {});
}

TEST_P(TableTest, EveryWeightCodeDecodesToItsValue) {
  std::vector<uint8_t> codes(256 * 32, 0);
  for (int n = 0; n < 256; ++n) codes[n * 32 + n % 32] = static_cast<uint8_t>(n);
  const auto fp8 = Matrix::pack_fp8(256, 32, codes, std::vector<uint8_t>(8, 127));
  const std::vector<Bf16> ones(66 * 32, to_bf16(1.0f));
  for (const int64_t count : {1, 12, 66}) {
    std::vector<float> y(256 * count);
    run_linear(*ops_, bench_.context(), fp8->view(), {.values = ones.data(), .count = count, .stride = 32},
               {.f32 = y.data(), .stride = 256});
    for (int64_t i = 0; i < 256 * count; ++i) {
      const auto code = static_cast<uint8_t>(i % 256);
      if ((code & 127) == 127) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(y[i], e4m3_to_float(code));
      }
    }
  }
}

// Numbers of every magnitude, both zeros, and what quantizers saturate.
std::vector<Bf16> wide_bf16(std::mt19937& rng, size_t count) {
  std::vector<Bf16> values(count);
  std::uniform_int_distribution<int> bits(0, 0xffff);
  for (auto& value : values) {
    do value.bits = static_cast<uint16_t>(bits(rng));
    while ((value.bits & 0x7f80) == 0x7f80);
  }
  return values;
}

TEST_P(TableTest, OperandsEqualTheReference) {
  for (const float spread : {0.0f, 1e-6f, 1.0f, 1e30f}) {
    auto x = spread == 0.0f ? wide_bf16(rng_, 40 * 96) : random_bf16(rng_, 40 * 96, spread);
    std::fill_n(x.begin() + 96, 96, Bf16{0});
    x[5].bits = 0x7fc0;
    x[300].bits = 0xff80;
    std::vector<Bf16> expected(x.size()), found(x.size());
    ref_->quantize_rows(x.data(), 40, 96, expected.data());
    ops_->quantize_rows(x.data(), 40, 96, found.data());
    EXPECT_EQ(bits_of(std::span<const Bf16>(expected)), bits_of(std::span<const Bf16>(found)));
    for (const int64_t cols : {1, 7, 16, 96}) {
      std::vector<Bf16> pairs(40 * (cols + 1)), pairs_found(40 * (cols + 1));
      ref_->pair_rows(x.data(), 40, cols, pairs.data());
      ops_->pair_rows(x.data(), 40, cols, pairs_found.data());
      EXPECT_EQ(pairs, pairs_found);
    }
  }
}

TEST_P(TableTest, NormRotationAndSwigluEqualTheReference) {
  for (const int64_t cols : {32, 100, 256, 1280}) {
    const auto x = random_bf16(rng_, 9 * cols, 3.0f), w = random_bf16(rng_, cols);
    std::vector<Bf16> expected(x.size()), found(x.size());
    ref_->rms_norm(x.data(), w.data(), 9, cols, 1e-20f, expected.data());
    ops_->rms_norm(x.data(), w.data(), 9, cols, 1e-20f, found.data());
    EXPECT_EQ(expected, found);

    const auto up = random_bf16(rng_, 9 * cols, 20.0f);
    const std::vector<float> weights = {0.1f, 2.0f, 0.3f, 1.5f, 0.0f, 1e-3f, 0.7f, 0.9f, 1.0f};
    for (const float* slot_weights : {weights.data(), static_cast<const float*>(nullptr)}) {
      ref_->swiglu(x.data(), up.data(), slot_weights, 9, cols, 5.0f, expected.data());
      ops_->swiglu(x.data(), up.data(), slot_weights, 9, cols, 5.0f, found.data());
      EXPECT_EQ(expected, found);
    }
  }
  for (const int64_t cols : {20, 64}) {
    const auto x = random_bf16(rng_, 11 * cols);
    const std::vector<int32_t> index = {0, 3, 10, 4, 4, 1, 9, 8, 0};
    std::vector<Bf16> expected(3 * cols), found(3 * cols);
    ref_->sum_rows(x.data(), index.data(), 3, 3, cols, {0, cols}, expected.data());
    ops_->sum_rows(x.data(), index.data(), 3, 3, cols, {0, cols}, found.data());
    EXPECT_EQ(expected, found);
  }
  for (const int64_t rotary : {6, 16, 64}) {
    std::vector<float> angles(rotary);
    std::normal_distribution<float> normal;
    for (float& angle : angles) angle = normal(rng_);
    const std::vector<const float*> rows(3, angles.data());
    auto expected = random_bf16(rng_, 3 * 5 * 96);
    auto found = expected;
    for (const auto rotation : {Ops::Rotation::kForward, Ops::Rotation::kInverse}) {
      ref_->rotate(expected.data(), 3, 5, 96, rotary, rows.data(), rotation);
      ops_->rotate(found.data(), 3, 5, 96, rotary, rows.data(), rotation);
      EXPECT_EQ(expected, found);
    }
  }
}

TEST_P(TableTest, HyperConnectionsEqualTheReferenceForAnyNumberOfRows) {
  for (const int64_t hidden : {6, 8, 160}) {
    const Matrix fn = random_matrix(rng_, MatrixKind::kF32, 24, 4 * hidden);
    std::vector<float> base(24, 0.1f), scale = {0.7f, 0.9f, 1.1f};
    const HcParams params{fn.view(), base.data(), scale.data()};
    const auto h = random_bf16(rng_, 37 * 4 * hidden), y = random_bf16(rng_, 37 * hidden);
    for (const int64_t rows : {1, 3, 4, 7, 37}) {
      std::vector<float> products(rows * 24), products_found(rows * 24);
      std::vector<HcMix> expected(rows), found(rows);
      ref_->hc_mix(params, h.data(), rows, hidden, products.data(), expected.data(), bench_.context().scratch);
      ops_->hc_mix(params, h.data(), rows, hidden, products_found.data(), found.data(), bench_.context().scratch);
      EXPECT_EQ(products, products_found);
      EXPECT_EQ(std::memcmp(expected.data(), found.data(), rows * sizeof(HcMix)), 0);

      std::vector<Bf16> folded(rows * hidden), folded_found(rows * hidden);
      ref_->hc_fold(h.data(), &expected[0].a[0], sizeof(HcMix) / 4, rows, hidden, {0, hidden}, folded.data());
      ops_->hc_fold(h.data(), &expected[0].a[0], sizeof(HcMix) / 4, rows, hidden, {0, hidden}, folded_found.data());
      EXPECT_EQ(folded, folded_found);
      auto unfolded = h, unfolded_found = h;
      ref_->hc_unfold(y.data(), expected.data(), rows, hidden, {0, hidden}, unfolded.data());
      ops_->hc_unfold(y.data(), expected.data(), rows, hidden, {0, hidden}, unfolded_found.data());
      EXPECT_EQ(unfolded, unfolded_found);
    }
  }
}

// Columns of what works column by column, alone as in company.
TEST_P(TableTest, ColumnsOfRowsAreThoseOfTheWholeRows) {
  const int64_t hidden = 160, rows = 3;
  const Matrix fn = random_matrix(rng_, MatrixKind::kF32, 24, 4 * hidden);
  std::vector<float> base(24, 0.1f), scale = {0.7f, 0.9f, 1.1f};
  const HcParams params{fn.view(), base.data(), scale.data()};
  const auto h = random_bf16(rng_, rows * 4 * hidden), y = random_bf16(rng_, 9 * hidden);
  const std::vector<int32_t> index = {0, 3, 8, 4, 4, 1, 5, 8, 0};
  std::vector<float> products(rows * 24);
  std::vector<HcMix> mixes(rows);
  ops_->hc_mix(params, h.data(), rows, hidden, products.data(), mixes.data(), bench_.context().scratch);
  const int64_t sums_size = rows * (4 * hidden / kSumBlock) * kHcSumStride;
  const auto all_of = [&](std::vector<Columns> parts) {
    std::vector<Bf16> folded(rows * hidden), summed(rows * hidden), unfolded = h;
    std::vector<float> sums(sums_size);
    for (const Columns& columns : parts) {
      ops_->hc_fold(h.data(), mixes[0].a, sizeof(HcMix) / 4, rows, hidden, columns, folded.data());
      ops_->hc_unfold(y.data(), mixes.data(), rows, hidden, columns, unfolded.data());
      ops_->sum_rows(y.data(), index.data(), 3, rows, hidden, columns, summed.data());
      for (int64_t stream = 0; stream < 4; ++stream) {
        ops_->hc_sums(params, h.data(), rows, hidden, (stream * hidden + columns.first) / kSumBlock,
                      (stream * hidden + columns.end) / kSumBlock, sums.data());
      }
    }
    std::vector<HcMix> again(rows);
    ops_->hc_finish(params, sums.data(), rows, hidden, products.data(), again.data());
    EXPECT_EQ(std::memcmp(again.data(), mixes.data(), rows * sizeof(HcMix)), 0);
    return std::tuple(folded, unfolded, summed);
  };
  EXPECT_EQ(all_of({{0, hidden}}), all_of({{64, 128}, {0, 64}, {128, hidden}}));
}

TEST_P(TableTest, EngramGateEqualsTheReference) {
  for (const int64_t hidden : {20, 64, 320}) {
    const auto q = random_bf16(rng_, 4 * hidden), k = random_bf16(rng_, 4 * hidden), kv = random_bf16(rng_, 3 * 5 * hidden);
    auto expected = random_bf16(rng_, 3 * 4 * hidden);
    auto found = expected;
    EngramGateArgs args{.hidden = hidden, .q_weight = q.data(), .k_weight = k.data(), .key_value = kv.data(),
                        .h = expected.data()};
    ref_->engram_gate(args, 3);
    args.h = found.data();
    ops_->engram_gate(args, 3);
    EXPECT_EQ(expected, found);
  }
}

TEST_P(TableTest, SparseAttentionEqualsTheReferenceForEveryListLength) {
  const int64_t dim = 64, max_rows = 100;
  std::vector<std::byte> window(max_rows * window_row_bytes(dim)), compressed(max_rows * compressed_row_bytes(dim));
  std::vector<const std::byte*> window_rows, compressed_rows;
  for (int64_t i = 0; i < max_rows; ++i) {
    window_rows.push_back(window.data() + i * window_row_bytes(dim));
    compressed_rows.push_back(compressed.data() + i * compressed_row_bytes(dim));
    pack_window_row(random_bf16(rng_, dim).data(), dim, window.data() + i * window_row_bytes(dim));
    pack_compressed_row(random_bf16(rng_, dim).data(), dim, compressed.data() + i * compressed_row_bytes(dim));
  }
  for (const int64_t heads : {3, 17, 70}) {
    // The larger spread makes weights that are denormal to some instructions.
    const float spread = heads == 17 ? 30.0f : 1.0f;
    std::vector<AttentionList> lists;
    for (const int32_t n : {0, 1, 7, 8, 9, 31, 32, 33, 100}) {
      lists.push_back({window_rows.data(), compressed_rows.data(), n, 0});
      lists.push_back({window_rows.data(), compressed_rows.data(), 100 - n, n});
    }
    const auto tokens = static_cast<int64_t>(lists.size());
    const auto query = random_bf16(rng_, tokens * heads * dim, spread);
    std::vector<float> sinks(heads, 0.3f);
    std::vector<Bf16> expected(query.size()), found(query.size());
    AttentionArgs args{tokens, heads, dim, 0.125f, sinks.data(), query.data(), lists.data(), expected.data(), 40};
    run_attention(*ref_, bench_.context(), args);
    args.out = found.data();
    run_attention(*ops_, bench_.context(), args);
    EXPECT_EQ(expected, found) << heads << " heads";
    args.num_tokens = 1;  // alone: the heads are split over threads
    args.lists += 17;
    args.query += 17 * heads * dim;
    run_attention(*ops_, bench_.context(), args);
    EXPECT_TRUE(std::equal(found.begin(), found.begin() + heads * dim, expected.begin() + 17 * heads * dim));
  }
}

TEST_P(TableTest, IndexScoresEqualTheReferenceForAnyRuns) {
  const int64_t dim = 64, rows_per_block = 64, blocks = 3;
  std::vector<std::vector<std::byte>> storage;
  std::vector<const std::byte*> pointers;
  for (int64_t b = 0; b < blocks; ++b) {
    auto& block = storage.emplace_back(rows_per_block * (index_code_bytes(dim) + index_scale_bytes(dim)));
    for (int64_t slot = 0; slot < rows_per_block; ++slot) {
      pack_index_row(random_bf16(rng_, dim).data(), dim, block.data() + slot * index_code_bytes(dim),
                     block.data() + rows_per_block * index_code_bytes(dim) + slot * index_scale_bytes(dim));
    }
    pointers.push_back(block.data());
  }
  for (const int64_t heads : {4, 8, 11}) {
    std::vector<float> query(heads * dim), weights(heads);
    std::normal_distribution<float> normal;
    for (float& value : query) value = round_bf16(normal(rng_));
    for (float& value : weights) value = normal(rng_);
    const std::vector<RowRun> dense = {{0, 190}}, sparse = {{8, 8}, {60, 9}, {187, 3}};
    std::vector<float> expected(190), found(190), compact(20);
    IndexScoreArgs args{{pointers.data(), rows_per_block, dim}, heads, query.data(), weights.data(), dense,
                        expected.data(), bench_.context().scratch};
    ref_->index_scores(args);
    args.scores = found.data();
    ops_->index_scores(args);
    EXPECT_EQ(expected, found);
    args.runs = sparse;
    args.scores = compact.data();
    ops_->index_scores(args);
    int64_t next = 0;
    for (const RowRun& run : sparse) {
      for (int64_t j = 0; j < run.count; ++j) EXPECT_EQ(compact[next++], expected[run.first + j]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, TableTest, testing::ValuesIn(table_names(TableSet::kBuilt)));

TEST(LinearListTest, SharesOfAListAreAllOfItOnce) {
  std::mt19937 rng(3);
  const Operand x = quantized_operand(random_bf16(rng, 3 * 96), 96);
  std::vector<Matrix> matrices;
  std::vector<LinearTask> tasks;
  const MatrixKind kinds[] = {MatrixKind::kFp8, MatrixKind::kBf16, MatrixKind::kFp4, MatrixKind::kFp4, MatrixKind::kBf16};
  const int64_t rows[] = {320, 20, 1000, 16, 65};
  for (int i = 0; i < 5; ++i) {
    matrices.push_back(random_matrix(rng, kinds[i], rows[i], 96));
    tasks.push_back({matrices.back().view(), x.rows(0, i == 2 ? 3 : 1), {}});
  }
  for (const int shares : {1, 2, 3, 7, 40}) {
    std::vector<std::vector<int>> visits;
    for (const Matrix& matrix : matrices) visits.emplace_back(matrix.view().num_groups());
    for (int share = 0; share < shares; ++share) {
      for_each_linear_part(tasks, {share, shares}, [&](int64_t task, int64_t first, int64_t end) {
        EXPECT_EQ(first % kChunkGroups, 0);
        for (int64_t group = first; group < end; ++group) ++visits[task][group];
      });
    }
    for (const auto& groups : visits) EXPECT_EQ(groups, std::vector<int>(groups.size(), 1)) << shares;
  }
}

TEST(AttentionChunkTest, ChunksAreSixtyFourColumnsWhereverTheWindowEnds) {
  const auto ends = [](int32_t window, int32_t compressed, int64_t window_columns) {
    const AttentionArgs args{.window_columns = window_columns};
    const AttentionList list{.num_window = window, .num_compressed = compressed};
    std::vector<int64_t> ends;
    for (int64_t begin = 0; begin < window + compressed; begin = ends.back()) ends.push_back(args.chunk_end(list, begin));
    return ends;
  };
  using Ends = std::vector<int64_t>;
  EXPECT_EQ(ends(128, 100, 128), (Ends{64, 128, 192, 228}));
  EXPECT_EQ(ends(70, 100, 128), (Ends{64, 70, 134, 170}));   // compressed rows keep their columns
  EXPECT_EQ(ends(16, 8, 16), (Ends{24}));                    // a small window shares its chunk
  EXPECT_EQ(ends(10, 70, 16), (Ends{58, 80}));               // columns 16 to 63, then 64 and on
  EXPECT_EQ(ends(133, 0, 128), (Ends{64, 128, 133}));        // draft rows follow a full window
  EXPECT_EQ(ends(0, 3, 128), (Ends{3}));
  EXPECT_EQ(ends(0, 0, 128), Ends{});
}

// Packed weights are kept on disk under the number of their form. When this fails raise kPackedForm, and take over the digest.
TEST(MatrixTest, ThePackedFormIsTheOneThatItsNumberNames) {
  ASSERT_EQ(kPackedForm, 1u);
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  for (const MatrixKind kind : {MatrixKind::kFp8, MatrixKind::kFp4, MatrixKind::kBf16, MatrixKind::kF32}) {
    const int64_t rows = 80, cols = 96;
    std::vector<std::byte> memory(static_cast<size_t>(Matrix::size_bytes(kind, rows, cols))), source(rows * cols * 4);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 73 + i / 251);
    Matrix matrix = Matrix::place(kind, rows, cols, memory.data());
    matrix.pack_rows(0, rows, source.data());
    matrix.pack_scales(source.data() + 5);
    for (const std::byte byte : memory) digest = (digest ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  EXPECT_EQ(digest, 9086912147935896345u);
}

TEST(SelectOpsTest, TheEnvironmentForcesATableWhereTheCallerLeavesItOpen) {
  ASSERT_EQ(setenv("DEEPINFER_ISA", "ref", 1), 0);
  const auto forced = select_ops("auto");
  const auto named = select_ops("avx2");
  ASSERT_EQ(setenv("DEEPINFER_ISA", "mmx", 1), 0);
  const auto unknown = select_ops("auto");
  ASSERT_EQ(unsetenv("DEEPINFER_ISA"), 0);
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ((*forced)->name, "ref");
  if (named.ok()) {
    EXPECT_EQ((*named)->name, "avx2");
  }
  EXPECT_FALSE(unknown.ok());
}

TEST(SelectOpsTest, UnknownNamesAreRefusedByNamingTheKnownOnes) {
  const auto unknown = select_ops("mmx");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), Code::kInvalidArgument);
  const std::string& message = unknown.error().message();
  EXPECT_TRUE(message.starts_with("instruction set 'mmx' is unknown; expected auto or one of avx512bf16, ")) << message;
  EXPECT_TRUE(message.ends_with(", ref")) << message;
  for (const std::string& name : table_names()) EXPECT_NE(message.find(name), std::string::npos) << name;
  EXPECT_TRUE(select_ops("auto").ok());
}

}  // namespace
}  // namespace deepinfer
