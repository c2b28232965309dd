// The kernels as the op checks call them: one table, its threads and scratch memory. Products are computed
// with the table under test, and part of each again with the scalar reference, which must give the same bits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/ops.h"

namespace deepinfer::golden {

// A matrix product of several rows, row-major: the fp32 accumulators and their rounding to bf16.
struct Product {
  std::vector<float> acc;
  std::vector<Bf16> y;
};

// Owned by the one thread that verifies.
class Bench {
 public:
  // kInvalidArgument, kUnimplemented: see select_ops().
  static Result<std::unique_ptr<Bench>> make(std::string_view isa, int threads);

  const Ops& ops() const { return *ops_; }
  KernelContext& kernels() { return kernels_; }
  // Makes sure that every thread has `size_bytes` of scratch.
  Status reserve_scratch(size_t size_bytes);

  // W x for rows of x [rows * cols] that are quantized by Q8 first (Lin8, Lin4) or taken as they are (LinB).
  Product quantized_product(const MatrixView& weights, std::span<const Bf16> x);
  Product plain_product(const MatrixView& weights, std::span<const Bf16> x);

  // Outputs that the scalar reference computed as well, and how many of them differed, since the last reset.
  int64_t num_compared() const { return num_compared_; }
  int64_t num_different() const { return num_different_; }
  void reset_comparison() { num_compared_ = num_different_ = 0; }

 private:
  Bench(const Ops* ops, int threads) : ops_(ops), pool_(threads) { kernels_.pool = &pool_; }
  Product product(const MatrixView& weights, const ActivationRows& x);
  void compare_with_reference(const MatrixView& weights, const ActivationRows& x, const Product& product);

  const Ops* ops_;
  ThreadPool pool_;
  AlignedBuffer scratch_;
  KernelContext kernels_;
  int64_t num_compared_ = 0;
  int64_t num_different_ = 0;
};

}  // namespace deepinfer::golden
