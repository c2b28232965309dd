// What flows between the products: norms, rotations, hyper-connections (docs/spec/model.md 3, 4.1, 4.2).
#include "model/rope.h"
#include "verify/compare.h"
#include "verify/generator.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

// cos and sin of the golden positions, interleaved as the rotation reads them.
struct Angles {
  std::vector<float> rows;  // [positions][kRotaryDim]
  std::vector<const float*> pointers;
};

Angles make_angles(const std::vector<float>& frequencies, std::span<const int32_t> positions) {
  Angles angles;
  angles.rows.resize(positions.size() * kRotaryDim);
  for (size_t i = 0; i < positions.size(); ++i) {
    float* row = angles.rows.data() + i * kRotaryDim;
    fill_rope_row(frequencies, positions[i], row);
    angles.pointers.push_back(row);
  }
  return angles;
}

// cos and sin differ by at most 1e-6 wherever the frequency, and so the fp32 angle, is the golden one.
Status check_angles(OpCheck& op, const std::string& kind, const std::vector<float>& frequencies,
                    const Angles& angles) {
  const auto positions = static_cast<int64_t>(angles.pointers.size());
  const Shape shape = {positions, kRotaryDim / 2};
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(kind + ".freq", {kRotaryDim / 2}));
  op.compare(kind + ".freq", kF32Ulps, worst_f32_ulps(expected, frequencies), 1);
  for (const int offset : {0, 1}) {
    const std::string item = kind + (offset == 0 ? ".cos" : ".sin");
    ASSIGN_OR_RETURN(auto golden, op.file.read<float>(item, shape));
    std::vector<float> found(golden.size());
    int64_t skipped = 0;
    for (size_t i = 0; i < golden.size(); ++i) {
      found[i] = angles.rows[2 * i + offset];
      if (expected[i % (kRotaryDim / 2)] == frequencies[i % (kRotaryDim / 2)]) continue;
      found[i] = golden[i];
      ++skipped;
    }
    op.compare(item, kAbsolute, worst_absolute(golden, found), 1e-6,
               skipped > 0 ? fmt::format("{} of other frequencies left out", skipped) : "");
  }
  return Status();
}

Status check_rotation(OpCheck& op, const std::string& item, Ops::Rotation rotation, const Angles& angles) {
  const auto positions = static_cast<int64_t>(angles.pointers.size());
  ASSIGN_OR_RETURN(auto x, op.inputs.bf16("x", positions * kRotaryDim));
  op.bench.ops().rotate(x.data(), positions, 1, kRotaryDim, kRotaryDim,
                        angles.pointers.data(), rotation);
  ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16(item, {1, positions, kRotaryDim}));
  op.compare(item, kBf16Ulps, worst_bf16_ulps(expected, widen(x), kRotaryDim), 1);
  return Status();
}

// A, P and C of several tokens as plain rows.
struct MixRows {
  std::vector<float> a, p, c;
  explicit MixRows(std::span<const HcMix> mixes) {
    for (const HcMix& mix : mixes) {
      a.insert(a.end(), mix.a, mix.a + 4);
      p.insert(p.end(), mix.p, mix.p + 4);
      c.insert(c.end(), &mix.c[0][0], &mix.c[0][0] + 16);
    }
  }
};

Status compare_mixes(OpCheck& op, const std::string& prefix, std::span<const HcMix> mixes) {
  const auto rows = static_cast<int64_t>(mixes.size());
  const MixRows found(mixes);
  const auto compare = [&](const std::string& item, const std::vector<float>& values,
                           const Shape& shape) -> Status {
    ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(prefix + item, shape));
    op.compare(prefix + item, kAbsolute, worst_absolute(expected, values), 2e-6);
    return Status();
  };
  RETURN_IF_ERROR(compare("A", found.a, {rows, 4}));
  RETURN_IF_ERROR(compare("P", found.p, {rows, 4}));
  return compare("C", found.c, {rows, 4, 4});
}

constexpr int64_t kMixNumbers = 24;

// The mixing weights for given numbers m: with all streams 1 the statistic is exactly 1, so a matrix whose
// first column is m makes the products of the mix equal to m.
Status check_split(OpCheck& op, HcParams params) {
  constexpr int64_t kTokens = 64, kSmallHidden = 8;
  ASSIGN_OR_RETURN(const auto m, op.inputs.f32("split.*: m", kTokens * kMixNumbers));
  const std::vector<Bf16> ones(4 * kSmallHidden, to_bf16(1.0f));
  std::vector<float> products(kMixNumbers);
  std::vector<HcMix> mixes(kTokens);
  for (int64_t token = 0; token < kTokens; ++token) {
    std::vector<float> fn(kMixNumbers * ones.size());
    for (int64_t j = 0; j < kMixNumbers; ++j) fn[j * ones.size()] = m[token * kMixNumbers + j];
    ASSIGN_OR_RETURN(const Matrix matrix,
                     Matrix::pack_f32(kMixNumbers, static_cast<int64_t>(ones.size()), fn));
    params.fn = matrix.view();
    op.bench.ops().hc_mix(params, ones.data(), 1, kSmallHidden, products.data(), &mixes[token],
                          op.bench.kernels().scratch);
  }
  return compare_mixes(op, "split.", mixes);
}

constexpr int64_t kMixTokens = 4;

// fold and unfold with the golden A, P and C.
Status check_fold_and_unfold(OpCheck& op, const std::vector<Bf16>& x) {
  ASSIGN_OR_RETURN(const auto a, op.file.read<float>("A", {kMixTokens, 4}));
  ASSIGN_OR_RETURN(const auto p, op.file.read<float>("P", {kMixTokens, 4}));
  ASSIGN_OR_RETURN(const auto c, op.file.read<float>("C", {kMixTokens, 4, 4}));
  std::vector<Bf16> folded(kMixTokens * kHidden);
  op.bench.ops().hc_fold(x.data(), a.data(), 4, kMixTokens, kHidden, {0, kHidden}, folded.data());
  ASSIGN_OR_RETURN(const auto fold, op.file.read_bf16("fold", {kMixTokens, kHidden}));
  op.compare("fold", kBf16Ulps, worst_bf16_ulps(fold, widen(folded), kHidden), 1);

  std::vector<HcMix> mixes(kMixTokens);
  for (int64_t token = 0; token < kMixTokens; ++token) {
    std::copy_n(p.begin() + token * 4, 4, mixes[token].p);
    std::copy_n(c.begin() + token * 16, 16, &mixes[token].c[0][0]);
  }
  std::vector<Bf16> h = x;
  ASSIGN_OR_RETURN(const auto y, op.inputs.bf16("y", kMixTokens * kHidden));
  op.bench.ops().hc_unfold(y.data(), mixes.data(), kMixTokens, kHidden, {0, kHidden}, h.data());
  ASSIGN_OR_RETURN(const auto unfold, op.file.read_bf16("unfold", {kMixTokens, 4, kHidden}));
  op.compare("unfold", kBf16Ulps, worst_bf16_ulps(unfold, widen(h), kHidden), 1);
  return Status();
}

}  // namespace

Status check_rms_norm(OpCheck& op) {
  constexpr int64_t kSizes[] = {5120, 1280, 512, 128};
  ASSIGN_OR_RETURN(const GeneratorCall* weights, op.inputs.find("w"));
  ASSIGN_OR_RETURN(const GeneratorCall* rows, op.inputs.find("x"));
  if (weights->kind != "bf16" || rows->kind != "bf16" || weights->parameters.size() != 1) {
    return Error(Code::kInvalidArgument, "inputs: w and x: found {} and {}, expected bf16 with e0", weights->kind,
                 rows->kind);
  }
  const auto num_rows = static_cast<int64_t>(rows->parameters.size()) + 1;  // the last row is zeros
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const int64_t size = kSizes[i];
    auto weight = generate_bf16(weights->seed.at(i, 0), weights->parameters[0], size);
    if (weights->absolute) weight = absolute(std::move(weight));
    std::vector<Bf16> x;
    for (size_t j = 0; j < rows->parameters.size(); ++j) {
      const auto row = generate_bf16(rows->seed.at(i, j), rows->parameters[j], size);
      x.insert(x.end(), row.begin(), row.end());
    }
    x.resize(num_rows * size);
    std::vector<Bf16> y(x.size());
    op.bench.ops().rms_norm(x.data(), weight.data(), num_rows, size, kNormEps, y.data());
    const std::string item = fmt::format("y.{}", size);
    ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16(item, {num_rows, size}));
    op.compare(item, kBf16Ulps, worst_bf16_ulps(expected, widen(y), size), 1);
  }
  return Status();
}

Status check_rope(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto positions, op.file.read<int32_t>("pos", {-1}));
  const auto plain = plain_frequencies(10000, kRotaryDim);
  const auto compress = yarn_frequencies(kCompressTheta, kRotaryDim, kYarn);
  RETURN_IF_ERROR(check_angles(op, "plain", plain, make_angles(plain, positions)));
  const Angles angles = make_angles(compress, positions);
  RETURN_IF_ERROR(check_angles(op, "compress", compress, angles));
  RETURN_IF_ERROR(check_rotation(op, "compress.rotated", Ops::Rotation::kForward, angles));
  return check_rotation(op, "compress.inverse", Ops::Rotation::kInverse, angles);
}

Status check_hyper_connections(OpCheck& op) {
  ASSIGN_OR_RETURN(auto x, op.inputs.bf16("x rows 0..2", 3 * 4 * kHidden));
  ASSIGN_OR_RETURN(const auto last, op.inputs.bf16("row 3", 4 * kHidden));
  x.insert(x.end(), last.begin(), last.end());
  ASSIGN_OR_RETURN(const auto fn_values, op.inputs.f32("fn", kMixNumbers * 4 * kHidden));
  ASSIGN_OR_RETURN(const Matrix fn, Matrix::pack_f32(kMixNumbers, 4 * kHidden, fn_values));
  ASSIGN_OR_RETURN(const auto base, op.inputs.f32("base", kMixNumbers));
  ASSIGN_OR_RETURN(const auto scale, op.file.read<float>("scale", {3}));
  const HcParams params{.fn = fn.view(), .base = base.data(), .scale = scale.data()};

  RETURN_IF_ERROR(op.bench.reserve_scratch(hc_scratch_bytes(kHidden)));
  std::vector<float> products(kMixTokens * kMixNumbers);
  std::vector<HcMix> mixes(kMixTokens);
  op.bench.ops().hc_mix(params, x.data(), kMixTokens, kHidden, products.data(), mixes.data(),
                        op.bench.kernels().scratch);
  ASSIGN_OR_RETURN(const auto m, op.file.read<float>("m", {kMixTokens, kMixNumbers}));
  op.compare("m", kOfRms, worst_of_rms(m, products, kMixNumbers), kSumLimit);
  RETURN_IF_ERROR(compare_mixes(op, "", mixes));
  RETURN_IF_ERROR(check_fold_and_unfold(op, x));
  return check_split(op, params);
}

}  // namespace deepinfer::golden
