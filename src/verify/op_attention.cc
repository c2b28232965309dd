// Sparse attention with sinks (docs/spec/model.md 4.5).
#include <algorithm>
#include <cmath>

#include "kernels/one_op.h"
#include "kernels/quantize.h"
#include "verify/compare.h"
#include "verify/op_checks.h"

namespace deepinfer::golden {
namespace {

constexpr int64_t kQueries = 4;
constexpr int64_t kHeads = 64;
constexpr int64_t kRows = 768;
constexpr int64_t kListLength = 640;
constexpr int64_t kWindow = 128;

// What rounding probabilities to bf16 costs against fp64: measured on the reference, rounded up.
constexpr double kProbabilityRms = 0.002;
constexpr double kProbabilityAbsolute = 0.015;
// Half a step for the golden rounding, and half a step for each of ours; the low half is at most 1/8 of the
// high one.
constexpr double kHalvesUlps = 1 + 1.0 / 16;

struct AttentionInputs {
  std::vector<Bf16> query, kv;
  std::vector<float> sinks;
  std::vector<int32_t> idx;  // [kQueries][kListLength], -1 = empty
};

// The attention of 4.5 in fp64: rows(token) lists its rows, as fp32 vectors of kHeadDim.
std::vector<float> exact_attention(const AttentionInputs& inputs,
                                   const std::vector<std::vector<const float*>>& lists) {
  const auto query = widen(inputs.query);
  std::vector<float> out(query.size());
  for (int64_t token = 0; token < kQueries; ++token) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const float* q = query.data() + (token * kHeads + head) * kHeadDim;
      std::vector<double> sum(kHeadDim), scores;
      double peak = inputs.sinks[head];
      for (const float* row : lists[token]) {
        double dot = 0;
        for (int64_t d = 0; d < kHeadDim; ++d) dot += static_cast<double>(q[d]) * row[d];
        scores.push_back(dot / std::sqrt(static_cast<double>(kHeadDim)));
        peak = std::max(peak, scores.back());
      }
      double total = std::exp(inputs.sinks[head] - peak);
      for (size_t i = 0; i < scores.size(); ++i) {
        const double weight = std::exp(scores[i] - peak);
        total += weight;
        for (int64_t d = 0; d < kHeadDim; ++d) sum[d] += weight * lists[token][i][d];
      }
      for (int64_t d = 0; d < kHeadDim; ++d)
        out[(token * kHeads + head) * kHeadDim + d] = static_cast<float>(sum[d] / total);
    }
  }
  return out;
}

// Packed rows of the op under test, numbered as kv is.
struct PackedRows {
  std::vector<std::byte> bytes;
  int64_t row_bytes = 0;
  const std::byte* row(int64_t i) const { return bytes.data() + i * row_bytes; }
};

struct RowLists {
  std::vector<std::vector<const std::byte*>> window, compressed;
  std::vector<AttentionList> lists() const {
    std::vector<AttentionList> lists;
    for (size_t i = 0; i < window.size(); ++i) {
      lists.push_back({window[i].data(), compressed[i].data(), static_cast<int32_t>(window[i].size()),
                       static_cast<int32_t>(compressed[i].size())});
    }
    return lists;
  }
};

Result<std::vector<Bf16>> attention_of(Bench& bench, const AttentionInputs& inputs, std::span<const Bf16> query,
                                       int64_t head_dim, const RowLists& rows) {
  RETURN_IF_ERROR(bench.reserve_scratch(attention_scratch_bytes(kListLength, head_dim)));
  std::vector<Bf16> out(query.size());
  const auto lists = rows.lists();
  run_attention(bench.ops(), bench.kernels(),
                {.num_tokens = kQueries,
                 .num_heads = kHeads,
                 .head_dim = head_dim,
                 .softmax_scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim)),
                 .sinks = inputs.sinks.data(),
                 .query = query.data(),
                 .lists = lists.data(),
                 .out = out.data(),
                 .window_columns = kWindow});
  return out;
}

// The kernel on the golden bf16 rows, without loss. A bf16 number has 8 significant bits and is the sum of
// two numbers of 4 bits, which E4M3 holds: the row (high half, low half) of twice the length is exact as a
// window row, and so are the scores of the query (q, q). The output halves add up to o; each was rounded to
// bf16 by itself.
struct SplitRows {
  static constexpr int64_t kDim = 2 * kHeadDim;
  PackedRows packed;
  int64_t inexact = 0;  // elements that packing changed; none, or the check is void

  explicit SplitRows(std::span<const Bf16> kv)
      : packed{std::vector<std::byte>(kRows * window_row_bytes(kDim)), window_row_bytes(kDim)} {
    for (int64_t i = 0; i < kRows; ++i) {
      std::vector<Bf16> halves(kDim);
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const Bf16 value = kv[i * kHeadDim + d];
        const Bf16 high{static_cast<uint16_t>(value.bits & 0xfff0)};  // 1 + 3 significant bits
        halves[d] = high;
        halves[kHeadDim + d] = to_bf16(to_float(value) - to_float(high));
      }
      std::byte* row = packed.bytes.data() + i * packed.row_bytes;
      pack_window_row(halves.data(), kDim, row);
      std::vector<float> values(kDim);
      unpack_window_row(row, kDim, values.data());
      inexact += count_mismatches(widen(halves), values);
    }
  }
};

std::vector<Bf16> doubled(std::span<const Bf16> query) {
  std::vector<Bf16> twice;
  for (size_t i = 0; i < query.size(); i += kHeadDim) {
    for (int half = 0; half < 2; ++half)
      twice.insert(twice.end(), query.begin() + i, query.begin() + i + kHeadDim);
  }
  return twice;
}

// Probabilities are rounded to bf16 relative to the maximum so far, so the chunks matter. Here all rows are
// window rows without empty columns between them: the chunks of a full list are the golden ones, those of
// other lists are not.
Status check_against_golden(OpCheck& op, const AttentionInputs& inputs, std::span<const float> exact) {
  ASSIGN_OR_RETURN(const auto rounded, op.file.read_bf16("o", {kQueries, kHeads, kHeadDim}));
  const SplitRows split(inputs.kv);
  if (split.inexact > 0) {
    return Error(Code::kInternal, "{} elements of kv can't be packed without loss", split.inexact);
  }
  RowLists rows{std::vector<std::vector<const std::byte*>>(kQueries),
                std::vector<std::vector<const std::byte*>>(kQueries)};
  for (size_t i = 0; i < inputs.idx.size(); ++i) {
    if (inputs.idx[i] >= 0) rows.window[i / kListLength].push_back(split.packed.row(inputs.idx[i]));
  }
  ASSIGN_OR_RETURN(const auto halves, attention_of(op.bench, inputs, doubled(inputs.query), SplitRows::kDim, rows));
  std::vector<float> found(exact.size());
  double worst_ulps = 0;  // of full lists, in steps of bf16 at the larger of the result and its halves
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t at = i / kHeadDim * SplitRows::kDim + i % kHeadDim;
    const float high = to_float(halves[at]), low = to_float(halves[at + kHeadDim]);
    found[i] = high + low;
    if (std::ssize(rows.window[i / (kHeads * kHeadDim)]) < kListLength) continue;
    const float size = std::max({std::fabs(high), std::fabs(low), std::fabs(rounded[i])});
    worst_ulps = std::max(worst_ulps, worst_absolute({&rounded[i], 1}, {&found[i], 1}) / bf16_step(size));
  }
  op.compare("o, full lists", kBf16Ulps, worst_ulps, kHalvesUlps, "rows as sums of two exact halves");
  op.compare("o_exact", kRelativeRms, relative_rms(exact, found), kProbabilityRms);
  op.compare("o_exact", kAbsolute, worst_absolute(exact, found), kProbabilityAbsolute);
  return Status();
}

// The kernel on rows as the model packs them, window and compressed, against fp64 on the values of the packed
// rows.
Status check_packed_rows(OpCheck& op, const AttentionInputs& inputs) {
  PackedRows window{std::vector<std::byte>(kRows * window_row_bytes(kHeadDim)), window_row_bytes(kHeadDim)};
  PackedRows compressed{std::vector<std::byte>(kRows * compressed_row_bytes(kHeadDim)),
                        compressed_row_bytes(kHeadDim)};
  std::vector<float> window_values(kRows * kHeadDim), compressed_values(kRows * kHeadDim);
  for (int64_t i = 0; i < kRows; ++i) {
    const Bf16* source = inputs.kv.data() + i * kHeadDim;
    pack_window_row(source, kHeadDim, window.bytes.data() + i * window.row_bytes);
    unpack_window_row(window.row(i), kHeadDim, window_values.data() + i * kHeadDim);
    pack_compressed_row(source, kHeadDim, compressed.bytes.data() + i * compressed.row_bytes);
    unpack_compressed_row(compressed.row(i), kHeadDim, compressed_values.data() + i * kHeadDim);
  }
  RowLists rows{std::vector<std::vector<const std::byte*>>(kQueries),
                std::vector<std::vector<const std::byte*>>(kQueries)};
  std::vector<std::vector<const float*>> values(kQueries);
  for (size_t i = 0; i < inputs.idx.size(); ++i) {
    const size_t token = i / kListLength;
    const int32_t row = inputs.idx[i];
    if (row < 0) continue;
    const bool in_window = i % kListLength < kWindow;
    if (in_window)
      rows.window[token].push_back(window.row(row));
    else
      rows.compressed[token].push_back(compressed.row(row));
    values[token].push_back((in_window ? window_values : compressed_values).data() + row * kHeadDim);
  }
  ASSIGN_OR_RETURN(const auto found, attention_of(op.bench, inputs, inputs.query, kHeadDim, rows));
  op.compare("packed rows", kRelativeRms, relative_rms(exact_attention(inputs, values), widen(found)),
             kProbabilityRms, "against fp64 on the packed values");
  return Status();
}

}  // namespace

Status check_sparse_attention(OpCheck& op) {
  AttentionInputs inputs;
  ASSIGN_OR_RETURN(inputs.query, op.inputs.bf16("q", kQueries * kHeads * kHeadDim));
  ASSIGN_OR_RETURN(inputs.kv, op.inputs.bf16("kv", kRows * kHeadDim));
  ASSIGN_OR_RETURN(inputs.sinks, op.inputs.f32("sink", kHeads));
  ASSIGN_OR_RETURN(inputs.idx, op.file.read<int32_t>("idx", {kQueries, kListLength}));
  ASSIGN_OR_RETURN(const auto expected, op.file.read<float>("o_exact", {kQueries, kHeads, kHeadDim}));
  const auto kv = widen(inputs.kv);
  std::vector<std::vector<const float*>> lists(kQueries);
  for (size_t i = 0; i < inputs.idx.size(); ++i) {
    if (inputs.idx[i] >= kRows) {
      return Error(Code::kInvalidArgument, "{}: idx: found row {}, expected less than {}", op.file.path(),
                   inputs.idx[i], kRows);
    }
    if (inputs.idx[i] >= 0) lists[i / kListLength].push_back(kv.data() + inputs.idx[i] * kHeadDim);
  }
  const auto exact = exact_attention(inputs, lists);
  op.compare("fp64 formula", kOfRms, worst_of_rms(expected, exact, kHeadDim), 1e-6,
             "our own fp64 against o_exact");
  RETURN_IF_ERROR(check_against_golden(op, inputs, expected));
  return check_packed_rows(op, inputs);
}

}  // namespace deepinfer::golden
