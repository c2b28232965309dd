// Matrix products at the sizes of the released model (docs/spec/model.md 4.1, 4.6, 7, 8).
#include <algorithm>

#include "verify/compare.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kLargestSide = int64_t{1} << 20;

// Weights [rows][cols] from the n-th call of their name, with the scales of another.
struct MatrixCalls {
  std::string_view codes, scales;
  int codes_n = 0, scales_n = 0;
};
Result<Matrix> generate_fp8(OpCheck& op, const MatrixCalls& calls, int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const auto codes, op.inputs.e4m3(calls.codes, rows * cols, calls.codes_n));
  ASSIGN_OR_RETURN(const auto scales, op.inputs.e8m0(calls.scales, rows / 32 * (cols / 32), calls.scales_n));
  return Matrix::pack_fp8(rows, cols, codes, scales);
}
Result<Matrix> generate_fp4(OpCheck& op, const MatrixCalls& calls, int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const auto codes, op.inputs.packed_bytes(calls.codes, rows * cols / 2, calls.codes_n));
  ASSIGN_OR_RETURN(const auto scales, op.inputs.e8m0(calls.scales, rows * cols / 32, calls.scales_n));
  return Matrix::pack_fp4(rows, cols, codes, scales);
}
Result<Matrix> generate_bf16(OpCheck& op, std::string_view name, int64_t rows, int64_t cols) {
  ASSIGN_OR_RETURN(const auto values, op.inputs.bf16(name, rows * cols));
  return Matrix::pack_bf16(rows, cols, values);
}

// Sizes of a quantized product, from its calls "w ... [rows,cols]; scale ...; x ... [tokens,cols]".
struct ProductSizes {
  bool fp4 = false;
  int64_t rows = 0, cols = 0, tokens = 0;
};
Result<ProductSizes> product_sizes(const GeneratorCalls& inputs) {
  ASSIGN_OR_RETURN(const GeneratorCall* w, inputs.find("w"));
  ASSIGN_OR_RETURN(const GeneratorCall* x, inputs.find("x"));
  const auto is_matrix = [](const Shape& shape) {
    return shape.size() == 2 &&
           std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 1 && size <= kLargestSide; });
  };
  if (!is_matrix(w->shape) || !is_matrix(x->shape)) {
    return Error(Code::kInvalidArgument, "inputs: w and x: found sizes {} and {}, expected [rows, cols] up to {}",
                 shape_string(w->shape), shape_string(x->shape), kLargestSide);
  }
  const bool fp4 = w->kind == "packed bytes";
  const ProductSizes sizes{fp4, w->shape[0], fp4 ? 2 * w->shape[1] : w->shape[1], x->shape[0]};
  if (sizes.cols % 32 != 0 || x->shape[1] != sizes.cols || (!fp4 && sizes.rows % 32 != 0)) {
    return Error(Code::kInvalidArgument, "inputs: sizes of w {} and x {} don't fit together", shape_string(w->shape),
                 shape_string(x->shape));
  }
  return sizes;
}

Status compare_bf16(OpCheck& op, const std::string& item, std::span<const Bf16> found, const Shape& shape) {
  ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16(item, shape));
  op.compare(item, kBf16Ulps, worst_bf16_ulps(expected, widen(found), shape.back()), 1);
  return Status();
}

// A result of fp32 sums: no element off by more than 1e-5 of its row's rms.
Status compare_sums(OpCheck& op, const std::string& item, std::span<const float> found, const Shape& shape) {
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(item, shape));
  op.compare(item, kOfRms, worst_of_rms(expected, found, shape.back()), kSumLimit);
  return Status();
}

// "1 bf16 ulp, rarely": at most this share of the results may differ at all.
constexpr double kRarely = 0.01;

struct ExpertWeights {
  Matrix w1, w3, w2;
};
constexpr int64_t kInner = 2304;
constexpr int64_t kExpertTokens = 4;

Status check_one_expert(OpCheck& op, const std::string& kind, const ExpertWeights& expert,
                        std::span<const Bf16> x, const float* route_weights) {
  const Shape inner = {kExpertTokens, kInner}, outer = {kExpertTokens, kHidden};
  const Product g = op.bench.quantized_product(expert.w1.view(), x);
  const Product u = op.bench.quantized_product(expert.w3.view(), x);
  RETURN_IF_ERROR(compare_bf16(op, kind + ".g", g.y, inner));
  RETURN_IF_ERROR(compare_bf16(op, kind + ".u", u.y, inner));

  const auto swiglu = [&](const std::vector<Bf16>& gate, const std::vector<Bf16>& up) {
    std::vector<Bf16> a(gate.size());
    op.bench.ops().swiglu(gate.data(), up.data(), route_weights, kExpertTokens, kInner,
                          kSwigluLimit, a.data());
    return a;
  };
  // a from the golden g and u, y through the whole chain.
  ASSIGN_OR_RETURN(const auto golden_g, op.file.read<Bf16>(kind + ".g", inner));
  ASSIGN_OR_RETURN(const auto golden_u, op.file.read<Bf16>(kind + ".u", inner));
  RETURN_IF_ERROR(compare_bf16(op, kind + ".a", swiglu(golden_g, golden_u), inner));
  const Product y = op.bench.quantized_product(expert.w2.view(), swiglu(g.y, u.y));
  ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16(kind + ".y", outer));
  op.compare(kind + ".y", kRelativeRms, relative_rms(expected, widen(y.y)), 0.005);
  return Status();
}

}  // namespace

Status check_gemm(OpCheck& op) {
  ASSIGN_OR_RETURN(const ProductSizes sizes, product_sizes(op.inputs));
  const MatrixCalls calls{"w", "scale"};
  auto weights =
      sizes.fp4 ? generate_fp4(op, calls, sizes.rows, sizes.cols) : generate_fp8(op, calls, sizes.rows, sizes.cols);
  if (!weights.ok()) return weights.error();
  ASSIGN_OR_RETURN(const auto x, op.inputs.bf16("x", sizes.tokens * sizes.cols));
  const Product found = op.bench.quantized_product(weights->view(), x);

  const Shape shape = {sizes.tokens, sizes.rows};
  RETURN_IF_ERROR(compare_sums(op, "acc", found.acc, shape));
  RETURN_IF_ERROR(compare_bf16(op, "y", found.y, shape));
  ASSIGN_OR_RETURN(const auto y, op.file.read<Bf16>("y", shape));
  const auto different = static_cast<double>(count_mismatches<Bf16>(y, found.y));
  op.compare("y", "share different", different / static_cast<double>(y.size()), kRarely);
  return Status();
}

Status check_expert(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto x, op.inputs.bf16("x", kExpertTokens * kHidden));
  ASSIGN_OR_RETURN(const auto route_weights, op.file.read<float>("route_w", {kExpertTokens, 1}));
  constexpr std::string_view kRouted = "routed w1,w3,w2", kShared = "shared w1,w3,w2", kScales = "scales";
  ExpertWeights routed, shared;
  ASSIGN_OR_RETURN(routed.w1, generate_fp4(op, {kRouted, kScales, 0, 0}, kInner, kHidden));
  ASSIGN_OR_RETURN(routed.w3, generate_fp4(op, {kRouted, kScales, 1, 1}, kInner, kHidden));
  ASSIGN_OR_RETURN(routed.w2, generate_fp4(op, {kRouted, kScales, 2, 2}, kHidden, kInner));
  RETURN_IF_ERROR(check_one_expert(op, "routed", routed, x, route_weights.data()));
  ASSIGN_OR_RETURN(shared.w1, generate_fp8(op, {kShared, kScales, 0, 3}, kInner, kHidden));
  ASSIGN_OR_RETURN(shared.w3, generate_fp8(op, {kShared, kScales, 1, 4}, kInner, kHidden));
  ASSIGN_OR_RETURN(shared.w2, generate_fp8(op, {kShared, kScales, 2, 5}, kHidden, kInner));
  return check_one_expert(op, "shared", shared, x, nullptr);
}

Status check_output_projection(OpCheck& op) {
  constexpr int64_t kTokens = 2, kGroups = 8, kRank = 1024, kGroupDim = 4096;
  ASSIGN_OR_RETURN(const auto o, op.inputs.bf16("o", kTokens * kGroups * kGroupDim));
  ASSIGN_OR_RETURN(const Matrix wo_a, generate_fp8(op, {"wo_a", "scale"}, kGroups * kRank, kGroupDim));
  std::vector<Bf16> z(kTokens * kGroups * kRank);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t group = 0; group < kGroups; ++group) {
      const auto input = std::span(o).subspan((token * kGroups + group) * kGroupDim, kGroupDim);
      const Product part = op.bench.plain_product(wo_a.view().row_range(group * kRank, kRank), input);
      std::copy(part.y.begin(), part.y.end(), z.begin() + (token * kGroups + group) * kRank);
    }
  }
  return compare_bf16(op, "z", z, {kTokens, kGroups, kRank});
}

Status check_heads(OpCheck& op) {
  constexpr int64_t kRows = 4096, kMarkovRank = 256, kDrafts = 5, kTokens = 2;
  ASSIGN_OR_RETURN(const Matrix head, generate_bf16(op, "head", kRows, kHidden));
  ASSIGN_OR_RETURN(const auto x, op.inputs.bf16("x", kTokens * kHidden));
  RETURN_IF_ERROR(compare_sums(op, "logits", op.bench.plain_product(head.view(), x).acc, {kTokens, kRows}));

  ASSIGN_OR_RETURN(const Matrix markov, generate_bf16(op, "markov head", kRows, kMarkovRank));
  ASSIGN_OR_RETURN(const auto embedded, op.inputs.bf16("markov embed rows", kDrafts * kMarkovRank));
  RETURN_IF_ERROR(compare_sums(op, "markov_logits", op.bench.plain_product(markov.view(), embedded).acc,
                               {kDrafts, kRows}));

  // The confidence head reads [hidden; Markov embedding] of each draft.
  ASSIGN_OR_RETURN(const auto hidden, op.inputs.bf16("hidden", kDrafts * kHidden));
  std::vector<Bf16> joined;
  for (int64_t draft = 0; draft < kDrafts; ++draft) {
    joined.insert(joined.end(), hidden.begin() + draft * kHidden, hidden.begin() + (draft + 1) * kHidden);
    joined.insert(joined.end(), embedded.begin() + draft * kMarkovRank,
                  embedded.begin() + (draft + 1) * kMarkovRank);
  }
  constexpr int64_t kJoined = kHidden + kMarkovRank;
  ASSIGN_OR_RETURN(const Matrix proj, generate_bf16(op, "proj", 1, kJoined));
  return compare_sums(op, "confidence", op.bench.plain_product(proj.view(), joined).acc, {kDrafts});
}

}  // namespace deepinfer::golden
