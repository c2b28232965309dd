// Matrix products at the sizes of the released model (docs/spec/model.md 4.1, 4.6, 7, 8).
#include <cstdio>

#include "verify/compare.h"
#include "verify/generator.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

// One generator call of a manifest: "scale e8m0(seed 2001, base 112) [40,160]".
struct InputCall {
  std::string name, kind;
  uint64_t seed = 0;
  int parameter = 0;  // base or e0
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t size() const { return rows * cols; }
};

constexpr int64_t kLargestSide = int64_t{1} << 20;

Result<InputCall> parse_call(const std::string& text) {
  char name[16], kind[16];
  InputCall call;
  int used = 0, used_by_parameter = 0;
  bool ok = std::sscanf(text.c_str(), " %15s %15[^(](seed %lu%n", name, kind, &call.seed, &used) == 3;
  if (ok) {
    const char* rest = text.c_str() + used;
    if (std::sscanf(rest, ", %*[a-z0] %d%n", &call.parameter, &used_by_parameter) == 1)
      rest += used_by_parameter;
    ok = std::sscanf(rest, ") [%ld,%ld]", &call.rows, &call.cols) == 2;
  }
  if (!ok || call.rows < 1 || call.cols < 1 || call.rows > kLargestSide || call.cols > kLargestSide) {
    return Error(Code::kInvalidArgument,
                 "inputs: found '{}', expected 'NAME KIND(seed S, PARAMETER N) [rows,cols]'", text);
  }
  call.name = name;
  call.kind = kind;
  return call;
}

// The calls "w ...; scale ...; x ..." of a quantized product.
struct ProductInputs {
  InputCall w, scale, x;
};

Result<ProductInputs> parse_product_inputs(const std::string& text) {
  const size_t first = text.find(';'), second = text.find(';', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    return Error(Code::kInvalidArgument,
                 "inputs: found '{}', expected the three calls 'w ...; scale ...; x ...'", text);
  }
  ProductInputs inputs;
  ASSIGN_OR_RETURN(inputs.w, parse_call(text.substr(0, first)));
  ASSIGN_OR_RETURN(inputs.scale, parse_call(text.substr(first + 1, second - first - 1)));
  ASSIGN_OR_RETURN(inputs.x, parse_call(text.substr(second + 1)));
  const auto& [w, scale, x] = inputs;
  const bool fp4 = w.kind == "packed bytes";
  const int64_t rows = w.rows, cols = fp4 ? 2 * w.cols : w.cols;
  const bool kinds = (fp4 || w.kind == "e4m3") && scale.kind == "e8m0" && x.kind == "bf16";
  const bool shapes = cols % 32 == 0 && x.cols == cols && scale.cols == cols / 32 &&
                      (fp4 ? scale.rows == rows : rows % 32 == 0 && scale.rows == rows / 32);
  if (!kinds || !shapes) {
    return Error(Code::kInvalidArgument, "inputs: kinds or shapes of w, scale and x don't fit together: '{}'",
                 text);
  }
  return inputs;
}

Result<Matrix> generate_fp8(uint64_t seed, uint64_t scale_seed, int base, int64_t rows, int64_t cols) {
  return Matrix::pack_fp8(rows, cols, generate_e4m3(seed, rows * cols),
                          generate_e8m0(scale_seed, base, rows / 32 * (cols / 32)));
}

Result<Matrix> generate_fp4(uint64_t seed, uint64_t scale_seed, int base, int64_t rows, int64_t cols) {
  return Matrix::pack_fp4(rows, cols, generate_bytes(seed, rows * cols / 2),
                          generate_e8m0(scale_seed, base, rows * cols / 32));
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
  ASSIGN_OR_RETURN(const ProductInputs inputs, parse_product_inputs(op.inputs));
  const auto& [w, scale, x] = inputs;
  auto weights = w.kind == "e4m3" ? generate_fp8(w.seed, scale.seed, scale.parameter, w.rows, w.cols)
                                  : generate_fp4(w.seed, scale.seed, scale.parameter, w.rows, 2 * w.cols);
  if (!weights.ok()) return weights.error();
  const Product found =
      op.bench.quantized_product(weights->view(), generate_bf16(x.seed, x.parameter, x.size()));

  const Shape shape = {x.rows, w.rows};
  RETURN_IF_ERROR(compare_sums(op, "acc", found.acc, shape));
  RETURN_IF_ERROR(compare_bf16(op, "y", found.y, shape));
  ASSIGN_OR_RETURN(const auto y, op.file.read<Bf16>("y", shape));
  const auto different = static_cast<double>(count_mismatches<Bf16>(y, found.y));
  op.compare("y", "share different", different / static_cast<double>(y.size()), kRarely);
  return Status();
}

Status check_expert(OpCheck& op) {
  const auto x = generate_bf16(1100, 118, kExpertTokens * kHidden);
  ASSIGN_OR_RETURN(const auto route_weights, op.file.read<float>("route_w", {kExpertTokens, 1}));
  ExpertWeights routed, shared;
  ASSIGN_OR_RETURN(routed.w1, generate_fp4(1101, 1102, 121, kInner, kHidden));
  ASSIGN_OR_RETURN(routed.w3, generate_fp4(1103, 1104, 121, kInner, kHidden));
  ASSIGN_OR_RETURN(routed.w2, generate_fp4(1105, 1106, 119, kHidden, kInner));
  RETURN_IF_ERROR(check_one_expert(op, "routed", routed, x, route_weights.data()));
  ASSIGN_OR_RETURN(shared.w1, generate_fp8(1107, 1108, 117, kInner, kHidden));
  ASSIGN_OR_RETURN(shared.w3, generate_fp8(1109, 1110, 117, kInner, kHidden));
  ASSIGN_OR_RETURN(shared.w2, generate_fp8(1111, 1112, 115, kHidden, kInner));
  return check_one_expert(op, "shared", shared, x, nullptr);
}

Status check_output_projection(OpCheck& op) {
  constexpr int64_t kTokens = 2, kGroups = 8, kRank = 1024, kGroupDim = 4096;
  const auto o = generate_bf16(1300, 119, kTokens * kGroups * kGroupDim);
  ASSIGN_OR_RETURN(const Matrix wo_a, generate_fp8(1301, 1302, 114, kGroups * kRank, kGroupDim));
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
  ASSIGN_OR_RETURN(const Matrix head,
                   Matrix::pack_bf16(kRows, kHidden, generate_bf16(900, 116, kRows * kHidden)));
  const auto x = generate_bf16(901, 122, kTokens * kHidden);
  RETURN_IF_ERROR(compare_sums(op, "logits", op.bench.plain_product(head.view(), x).acc, {kTokens, kRows}));

  ASSIGN_OR_RETURN(const Matrix markov,
                   Matrix::pack_bf16(kRows, kMarkovRank, generate_bf16(903, 119, kRows * kMarkovRank)));
  const auto embedded = generate_bf16(902, 123, kDrafts * kMarkovRank);
  RETURN_IF_ERROR(compare_sums(op, "markov_logits", op.bench.plain_product(markov.view(), embedded).acc,
                               {kDrafts, kRows}));

  // The confidence head reads [hidden; Markov embedding] of each draft.
  const auto hidden = generate_bf16(904, 121, kDrafts * kHidden);
  std::vector<Bf16> joined;
  for (int64_t draft = 0; draft < kDrafts; ++draft) {
    joined.insert(joined.end(), hidden.begin() + draft * kHidden, hidden.begin() + (draft + 1) * kHidden);
    joined.insert(joined.end(), embedded.begin() + draft * kMarkovRank,
                  embedded.begin() + (draft + 1) * kMarkovRank);
  }
  constexpr int64_t kJoined = kHidden + kMarkovRank;
  ASSIGN_OR_RETURN(const Matrix proj, Matrix::pack_bf16(1, kJoined, generate_bf16(905, 116, kJoined)));
  return compare_sums(op, "confidence", op.bench.plain_product(proj.view(), joined).acc, {kDrafts});
}

}  // namespace deepinfer::golden
