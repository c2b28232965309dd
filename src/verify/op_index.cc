// Compressor and indexer (docs/spec/model.md 4.4, 5).
#include <algorithm>
#include <cmath>

#include "kernels/quantize.h"
#include "model/rope.h"
#include "model/select.h"
#include "verify/compare.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

// ---- compressor
// ------------------------------------------------------------------------------------------------------

constexpr int64_t kCompressorTokens = 9;

struct CompressorWeights {
  Matrix wkv, wgate, wk;
  std::vector<Bf16> norm, k_norm;

  static Result<CompressorWeights> generate(const GeneratorCalls& inputs) {
    CompressorWeights weights;
    const auto make = [&](const char* name, int64_t rows, int64_t cols) -> Result<Matrix> {
      ASSIGN_OR_RETURN(const auto values, inputs.bf16(name, rows * cols));
      return Matrix::pack_bf16(rows, cols, values);
    };
    ASSIGN_OR_RETURN(weights.wkv, make("wkv", kHeadDim, kHidden));
    ASSIGN_OR_RETURN(weights.wgate, make("wgate", kHeadDim, kHidden));
    ASSIGN_OR_RETURN(weights.wk, make("wk", kIndexHeadDim, kHeadDim));
    ASSIGN_OR_RETURN(weights.norm, inputs.bf16("norm", kHeadDim));
    ASSIGN_OR_RETURN(weights.k_norm, inputs.bf16("k_norm", kIndexHeadDim));
    return weights;
  }
};

std::vector<Bf16> normed(Bench& bench, std::vector<Bf16> x, const std::vector<Bf16>& weight) {
  const auto cols = static_cast<int64_t>(weight.size());
  bench.ops().rms_norm(x.data(), weight.data(), static_cast<int64_t>(x.size()) / cols, cols,
                       kNormEps, x.data());
  return x;
}

// Row j rotated at position j * ratio.
std::vector<Bf16> rotated(Bench& bench, std::vector<Bf16> x, int64_t dim, int64_t ratio) {
  const int64_t rows = static_cast<int64_t>(x.size()) / dim;
  const auto frequencies = yarn_frequencies(kCompressTheta, kRotaryDim, kYarn);
  std::vector<float> angles(rows * kRotaryDim);
  std::vector<const float*> pointers;
  for (int64_t j = 0; j < rows; ++j) {
    fill_rope_row(frequencies, j * ratio, angles.data() + j * kRotaryDim);
    pointers.push_back(angles.data() + j * kRotaryDim);
  }
  bench.ops().rotate(x.data(), rows, 1, dim, kRotaryDim, pointers.data(),
                     Ops::Rotation::kForward);
  return x;
}

std::vector<float> packed_rows(std::span<const Bf16> x) {
  std::vector<float> values(x.size());
  std::vector<std::byte> row(compressed_row_bytes(kHeadDim));
  for (size_t i = 0; i < x.size(); i += kHeadDim) {
    pack_compressed_row(x.data() + i, kHeadDim, row.data());
    unpack_compressed_row(row.data(), kHeadDim, values.data() + i);
  }
  return values;
}

std::vector<float> packed_keys(std::span<const Bf16> x, int64_t dim) {
  std::vector<float> values(x.size());
  std::vector<std::byte> codes(index_code_bytes(dim)), scales(index_scale_bytes(dim));
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(dim)) {
    pack_index_row(x.data() + i, dim, codes.data(), scales.data());
    unpack_index_row(codes.data(), scales.data(), dim, values.data() + i);
  }
  return values;
}

// Rows made from a latent may differ only where the latent itself does.
Status compare_rows(OpCheck& op, const std::string& item, std::span<const float> found, int64_t dim,
                    const std::vector<bool>& latent_differs) {
  const auto rows = static_cast<int64_t>(latent_differs.size());
  ASSIGN_OR_RETURN(const auto expected, op.file.read_bf16(item, {rows, dim}));
  int64_t mismatches = 0, exempt = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto wrong =
        count_mismatches(std::span(expected).subspan(row * dim, dim), found.subspan(row * dim, dim));
    (latent_differs[row] ? exempt : mismatches) += wrong;
  }
  op.compare(item, kMismatches, static_cast<double>(mismatches), 0,
             exempt > 0 ? fmt::format("and {} in rows whose latent differs by rounding", exempt) : "");
  return Status();
}

Status check_latents(OpCheck& op, const std::string& prefix, const CompressorWeights& weights,
                     const std::vector<Bf16>& latent, int64_t ratio) {
  const int64_t rows = static_cast<int64_t>(latent.size()) / kHeadDim;
  ASSIGN_OR_RETURN(const auto expected, op.file.read<Bf16>(prefix + "latent", {rows, kHeadDim}));
  op.compare(prefix + "latent", kBf16Ulps, worst_bf16_ulps(widen(expected), widen(latent), kHeadDim), 1);
  std::vector<bool> differs;
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = [row](const std::vector<Bf16>& all) {
      return std::span(all).subspan(row * kHeadDim, kHeadDim);
    };
    differs.push_back(count_mismatches<Bf16>(at(expected), at(latent)) > 0);
  }
  const auto keys = normed(op.bench, op.bench.plain_product(weights.wk.view(), latent).y, weights.k_norm);
  RETURN_IF_ERROR(compare_rows(op, prefix + "index_key",
                               packed_keys(rotated(op.bench, keys, kIndexHeadDim, ratio), kIndexHeadDim),
                               kIndexHeadDim, differs));
  return compare_rows(op, prefix + "row", packed_rows(rotated(op.bench, latent, kHeadDim, ratio)), kHeadDim,
                      differs);
}

Status check_pending(OpCheck& op, const std::string& item, std::span<const float> found) {
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>(item, {kHeadDim}));
  op.compare(item, kOfRms, worst_of_rms(expected, found, kHeadDim), kSumLimit);
  return Status();
}

// ---- indexer
// ---------------------------------------------------------------------------------------------------------

constexpr int64_t kIndexQueries = 3;
constexpr int64_t kIndexHeads = 32;
constexpr int64_t kIndexRows = 700;
constexpr int64_t kIndexTopk = 512;

// Index keys of the generated rows, laid out as one block.
Result<std::vector<std::byte>> generate_key_block(const GeneratorCalls& inputs) {
  ASSIGN_OR_RETURN(const auto k, inputs.bf16("k", kIndexRows * kIndexHeadDim));
  const int64_t code_bytes = index_code_bytes(kIndexHeadDim), scale_bytes = index_scale_bytes(kIndexHeadDim);
  std::vector<std::byte> block(kIndexRows * (code_bytes + scale_bytes));
  for (int64_t row = 0; row < kIndexRows; ++row) {
    pack_index_row(k.data() + row * kIndexHeadDim, kIndexHeadDim, block.data() + row * code_bytes,
                   block.data() + kIndexRows * code_bytes + row * scale_bytes);
  }
  return block;
}

// Scores of all rows for each query, [kIndexQueries][kIndexRows].
Result<std::vector<float>> index_scores(OpCheck& op) {
  Bench& bench = op.bench;
  ASSIGN_OR_RETURN(const auto block, generate_key_block(op.inputs));
  const std::byte* pointer = block.data();
  ASSIGN_OR_RETURN(const auto q, op.inputs.bf16("q", kIndexQueries * kIndexHeads * kIndexHeadDim));
  const auto query = packed_keys(q, kIndexHeadDim);
  ASSIGN_OR_RETURN(const auto w, op.inputs.bf16("w", kIndexQueries * kIndexHeads));
  auto head_weights = widen(w);
  const float factor = 1.0f / std::sqrt(static_cast<float>(kIndexHeadDim * kIndexHeads));  // 2^-6, exact
  for (float& weight : head_weights) weight *= factor;
  RETURN_IF_ERROR(bench.reserve_scratch(index_scratch_bytes(kIndexHeads, kIndexHeadDim)));

  std::vector<float> scores(kIndexQueries * kIndexRows);
  const RowRun all{0, kIndexRows};
  for (int64_t i = 0; i < kIndexQueries; ++i) {
    bench.ops().index_scores({.keys = {&pointer, kIndexRows, kIndexHeadDim},
                              .num_heads = kIndexHeads,
                              .query = query.data() + i * kIndexHeads * kIndexHeadDim,
                              .head_weights = head_weights.data() + i * kIndexHeads,
                              .runs = {&all, 1},
                              .scores = scores.data() + i * kIndexRows,
                              .scratch = bench.kernels().scratch});
  }
  return scores;
}

// The scores of the rows that each query sees, and the selection among them.
Status check_index_selection(OpCheck& op, std::span<const float> scores) {
  ASSIGN_OR_RETURN(const auto visible, op.file.read<int32_t>("visible", {kIndexQueries}));
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>("f32.score", {kIndexQueries, kIndexRows}));
  ASSIGN_OR_RETURN(const auto top, op.file.read<int32_t>("f32.top512", {kIndexQueries, kIndexTopk}));
  ASSIGN_OR_RETURN(const auto margin, op.file.read<float>("f32.margin", {kIndexQueries}));
  double worst = 0;
  int64_t mismatches = 0, ties = 0;
  for (int64_t i = 0; i < kIndexQueries; ++i) {
    if (visible[i] < kIndexTopk || visible[i] > kIndexRows) {
      return Error(Code::kInvalidArgument, "{}: visible: found {}, expected {} to {}", op.file.path(),
                   visible[i], kIndexTopk, kIndexRows);
    }
    const auto seen = scores.subspan(i * kIndexRows, visible[i]);
    worst = std::max(worst,
                     worst_of_rms(std::span(expected).subspan(i * kIndexRows, visible[i]), seen, visible[i]));
    std::vector<int32_t> order(kIndexRows), rows(kIndexTopk);
    select_top_rows(seen, kIndexTopk, order, rows);
    const auto wrong = count_mismatches<int32_t>(std::span(top).subspan(i * kIndexTopk, kIndexTopk), rows);
    (margin[i] < 1e-6f ? ties : mismatches) += wrong;
  }
  op.compare("f32.score", kOfRms, worst, kSumLimit);
  op.compare("f32.top512", kMismatches, static_cast<double>(mismatches), 0,
             ties > 0 ? fmt::format("and {} at ties", ties) : "");
  return Status();
}

Status check_candidate_blocks(OpCheck& op) {
  constexpr int64_t kLists = 2, kRows = 20003, kBlockSize = 8, kKept = 2048,
                    kBlocks = (kRows + kBlockSize - 1) / kBlockSize;
  ASSIGN_OR_RETURN(const auto scores, op.inputs.f32("candidate scores", kLists * kRows));
  ASSIGN_OR_RETURN(const auto lengths, op.file.read<int32_t>("cand.len", {kLists}));
  ASSIGN_OR_RETURN(const auto expected, op.file.read_codes("cand.block_kept", {kLists, kBlocks}));
  ASSIGN_OR_RETURN(const auto counts, op.file.read<int32_t>("cand.count", {kLists}));
  int64_t mismatches = 0;
  for (int64_t i = 0; i < kLists; ++i) {
    if (lengths[i] < 1 || lengths[i] > kRows) {
      return Error(Code::kInvalidArgument, "{}: cand.len: found {}, expected 1 to {}", op.file.path(),
                   lengths[i], kRows);
    }
    std::vector<float> block_scores(kBlocks);
    std::vector<int32_t> order(kBlocks), blocks(kKept);
    const int64_t count = select_candidate_blocks(std::span(scores).subspan(i * kRows, lengths[i]),
                                                  kBlockSize, kKept, block_scores, order, blocks);
    std::vector<uint8_t> kept(kBlocks);
    for (int64_t b = 0; b < count; ++b) kept[blocks[b]] = 1;
    mismatches += count_mismatches<uint8_t>(std::span(expected).subspan(i * kBlocks, kBlocks), kept);
    mismatches += count == counts[i] ? 0 : 1;
  }
  op.compare("cand.block_kept", kMismatches, static_cast<double>(mismatches), 0);
  return Status();
}

}  // namespace

Status check_compressor(OpCheck& op) {
  ASSIGN_OR_RETURN(const CompressorWeights weights, CompressorWeights::generate(op.inputs));
  ASSIGN_OR_RETURN(const auto x, op.inputs.bf16("x", kCompressorTokens * kHidden));
  const Product kv = op.bench.plain_product(weights.wkv.view(), x);
  const Product gate = op.bench.plain_product(weights.wgate.view(), x);

  const int64_t pairs = kCompressorTokens / 2, pending = kCompressorTokens - 1;
  RETURN_IF_ERROR(check_pending(op, "r2.pend_kv", std::span(kv.acc).subspan(pending * kHeadDim)));
  RETURN_IF_ERROR(check_pending(op, "r2.pend_gate", std::span(gate.acc).subspan(pending * kHeadDim)));
  std::vector<Bf16> pooled(pairs * kHeadDim);
  for (int64_t j = 0; j < pairs; ++j) {
    const int64_t first = 2 * j * kHeadDim, second = first + kHeadDim;
    op.bench.ops().pool_pair(&kv.acc[first], &gate.acc[first], &kv.acc[second], &gate.acc[second], kHeadDim,
                             pooled.data() + j * kHeadDim);
  }
  RETURN_IF_ERROR(check_latents(op, "r2.", weights, normed(op.bench, pooled, weights.norm), 2));
  return check_latents(op, "r1.", weights, normed(op.bench, kv.y, weights.norm), 1);
}

Status check_indexer(OpCheck& op) {
  ASSIGN_OR_RETURN(const auto scores, index_scores(op));
  RETURN_IF_ERROR(check_index_selection(op, scores));
  return check_candidate_blocks(op);
}

}  // namespace deepinfer::golden
