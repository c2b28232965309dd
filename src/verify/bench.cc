#include "verify/bench.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/one_op.h"
#include "verify/compare.h"

namespace deepinfer::golden {
namespace {

// Rows of a large matrix that the slow scalar reference computes: the first and the last of its scale blocks.
constexpr int64_t kReferenceRows = 32;

}  // namespace

Result<std::unique_ptr<Bench>> Bench::make(std::string_view isa, int threads) {
  ASSIGN_OR_RETURN(const Ops* ops, select_ops(isa));
  return std::unique_ptr<Bench>(new Bench(ops, threads));
}

Status Bench::reserve_scratch(size_t size_bytes) {
  if (size_bytes <= kernels_.scratch_bytes) return Status();
  const size_t piece = round_up(size_bytes, 64);
  ASSIGN_OR_RETURN(scratch_, AlignedBuffer::allocate(piece * static_cast<size_t>(pool_.num_threads())));
  kernels_.scratch = scratch_.data();
  kernels_.scratch_bytes = piece;
  return Status();
}

Product Bench::quantized_product(const MatrixView& weights, std::span<const Bf16> x) {
  const int64_t cols = weights.cols, rows = static_cast<int64_t>(x.size()) / cols;
  std::vector<Bf16> values(x.size());
  ops_->quantize_rows(x.data(), rows, cols, values.data());
  return product(weights, {.values = values.data(), .count = rows, .stride = cols});
}

Product Bench::plain_product(const MatrixView& weights, std::span<const Bf16> x) {
  const int64_t cols = weights.cols, rows = static_cast<int64_t>(x.size()) / cols;
  const int64_t stride = (cols + 1) / 2 * 2;
  std::vector<Bf16> values(rows * stride);
  ops_->pair_rows(x.data(), rows, cols, values.data());
  return product(weights, {.values = values.data(), .count = rows, .stride = stride});
}

Product Bench::product(const MatrixView& weights, const ActivationRows& x) {
  Product product{std::vector<float>(x.count * weights.rows), std::vector<Bf16>(x.count * weights.rows)};
  run_linear(*ops_, kernels_, weights, x, {.f32 = product.acc.data(), .stride = weights.rows});
  run_linear(*ops_, kernels_, weights, x, {.bf16 = product.y.data(), .stride = weights.rows});
  compare_with_reference(weights, x, product);
  return product;
}

void Bench::compare_with_reference(const MatrixView& weights, const ActivationRows& x,
                                   const Product& product) {
  const Ops& reference = **select_ops("ref");
  const int64_t count = std::min(kReferenceRows, weights.rows);
  const int64_t last = (weights.rows - count) / 32 * 32;
  for (const int64_t first : {int64_t{0}, last}) {
    std::vector<float> expected(x.count * count);
    run_linear(reference, kernels_, weights.row_range(first, count), x, {.f32 = expected.data(), .stride = count});
    for (int64_t row = 0; row < x.count; ++row) {
      const auto found = std::span(product.acc).subspan(row * weights.rows + first, count);
      num_different_ += count_mismatches(std::span<const float>(expected).subspan(row * count, count), found);
    }
    num_compared_ += x.count * count;
    if (last == 0) break;
  }
}

}  // namespace deepinfer::golden
