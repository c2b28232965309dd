// Every table against the scalar reference, bit for bit, and every row alone against the row in company.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "kernels/quantize.h"

namespace deepinfer {
namespace {

class Workbench {
 public:
  explicit Workbench(int threads) : pool_(threads), scratch_(size_t{1} << 22) {
    context_ = {&pool_, scratch_.data(), scratch_.size() / threads / 64 * 64};
  }
  KernelContext& context() { return context_; }

 private:
  ThreadPool pool_;
  std::vector<std::byte> scratch_;
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

struct Quantized {
  std::vector<float> values, scales;
  int64_t cols;
  ActivationRows rows(int64_t first, int64_t count) const {
    return {values.data() + first * cols, scales.data() + first * cols / 32, count, cols, cols / 32};
  }
};

Quantized random_activations(std::mt19937& rng, KernelContext& ctx, int64_t rows, int64_t cols) {
  Quantized quantized{std::vector<float>(rows * cols), std::vector<float>(rows * cols / 32), cols};
  const auto x = random_bf16(rng, rows * cols, 3.0f);
  (*select_ops("ref"))->quantize_rows(ctx, x.data(), rows, cols, quantized.values.data(), quantized.scales.data());
  return quantized;
}

class TableTest : public testing::TestWithParam<const char*> {
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

TEST_P(TableTest, ProductsOfEveryKindEqualTheReferenceForAnyNumberOfRows) {
  const int64_t shapes[][2] = {{16, 32}, {48, 64}, {4, 96}, {24, 256}, {100, 160}};
  for (const MatrixKind kind : {MatrixKind::kFp8, MatrixKind::kFp4, MatrixKind::kBf16, MatrixKind::kF32}) {
    for (const auto& [rows, cols] : shapes) {
      const Matrix matrix = random_matrix(rng_, kind, rows, cols);
      const int64_t tokens = 70;
      const Quantized x = random_activations(rng_, bench_.context(), tokens, cols);
      std::vector<float> expected(tokens * rows), found(tokens * rows);
      ref_->linear(bench_.context(), matrix.view(), x.rows(0, tokens), {.f32 = expected.data(), .stride = rows});
      for (const int64_t count : {1, 2, 3, 4, 5, 33, 64, 70}) {
        std::fill(found.begin(), found.end(), -1.0f);
        ops_->linear(bench_.context(), matrix.view(), x.rows(0, count), {.f32 = found.data(), .stride = rows});
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), count * rows * sizeof(float)), 0)
            << "kind " << int(kind) << " shape " << rows << "x" << cols << " rows " << count;
      }
    }
  }
}

TEST_P(TableTest, RowsMayBeGatheredAndMatricesCut) {
  const Matrix matrix = random_matrix(rng_, MatrixKind::kFp8, 96, 64);
  const Quantized x = random_activations(rng_, bench_.context(), 8, 64);
  std::vector<float> all(8 * 96), part(3 * 32);
  ref_->linear(bench_.context(), matrix.view(), x.rows(0, 8), {.f32 = all.data(), .stride = 96});
  const int32_t index[] = {5, 0, 7};
  ActivationRows gathered = x.rows(0, 3);
  gathered.row_index = index;
  ops_->linear(bench_.context(), matrix.view().row_range(64, 32), gathered, {.f32 = part.data(), .stride = 32});
  for (int i = 0; i < 3; ++i) {
    for (int n = 0; n < 32; ++n) ASSERT_EQ(part[i * 32 + n], all[index[i] * 96 + 64 + n]);
  }
}

TEST_P(TableTest, EveryWeightCodeDecodesToItsValue) {
  std::vector<uint8_t> codes(256 * 32, 0);
  for (int n = 0; n < 256; ++n) codes[n * 32 + n % 32] = static_cast<uint8_t>(n);
  const auto fp8 = Matrix::pack_fp8(256, 32, codes, std::vector<uint8_t>(8, 127));
  const std::vector<float> ones(32, 1.0f);
  std::vector<float> y(256);
  ops_->linear(bench_.context(), fp8->view(), {.values = ones.data(), .count = 1, .stride = 32},
               {.f32 = y.data(), .stride = 256});
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(y[code]));
    } else {
      EXPECT_EQ(y[code], e4m3_to_float(static_cast<uint8_t>(code)));
    }
  }
}

TEST_P(TableTest, HyperConnectionMixEqualsTheReference) {
  const int64_t hidden = 160, rows = 5;
  const Matrix fn = random_matrix(rng_, MatrixKind::kF32, 24, 4 * hidden);
  std::vector<float> base(24, 0.1f), scale = {0.7f, 0.9f, 1.1f};
  const HcParams params{fn.view(), base.data(), scale.data()};
  const auto h = random_bf16(rng_, rows * 4 * hidden);
  std::vector<float> widened(rows * 4 * hidden), products(rows * 24);
  std::vector<HcMix> expected(rows), found(rows);
  ref_->hc_mix(bench_.context(), params, h.data(), rows, hidden, widened.data(), products.data(), expected.data());
  ops_->hc_mix(bench_.context(), params, h.data(), rows, hidden, widened.data(), products.data(), found.data());
  EXPECT_EQ(std::memcmp(expected.data(), found.data(), rows * sizeof(HcMix)), 0);
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
  for (const int64_t heads : {3, 8, 17}) {
    std::vector<AttentionList> lists;
    for (const int32_t n : {0, 1, 7, 8, 9, 31, 32, 33, 100}) {
      lists.push_back({window_rows.data(), compressed_rows.data(), n, 0});
      lists.push_back({window_rows.data(), compressed_rows.data(), 100 - n, n});
    }
    const auto tokens = static_cast<int64_t>(lists.size());
    const auto query = random_bf16(rng_, tokens * heads * dim);
    std::vector<float> sinks(heads, 0.3f);
    std::vector<Bf16> expected(query.size()), found(query.size());
    AttentionArgs args{tokens, heads, dim, 0.125f, sinks.data(), query.data(), lists.data(), expected.data(), 40};
    ref_->sparse_attention(bench_.context(), args);
    args.out = found.data();
    ops_->sparse_attention(bench_.context(), args);
    EXPECT_EQ(expected, found) << heads << " heads";
    args.num_tokens = 1;  // alone: the heads are split over threads
    args.lists += 17;
    args.query += 17 * heads * dim;
    ops_->sparse_attention(bench_.context(), args);
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

INSTANTIATE_TEST_SUITE_P(Tables, TableTest, testing::Values("ref", "avx2"));

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

TEST(SelectOpsTest, UnknownNamesAreRefused) {
  ASSERT_FALSE(select_ops("mmx").ok());
  EXPECT_EQ(select_ops("mmx").error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(select_ops("auto").ok());
}

}  // namespace
}  // namespace deepinfer
