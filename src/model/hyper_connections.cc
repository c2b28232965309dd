// Hyper-connections around a sublayer (docs/spec/model.md 3):
//
//   (A, P, C) = mix(h);   x = fold(h, pre);   y = sublayer(norm(x));   h' = P y + C^T h;   pre' = A
//
// The fold uses the A of the sublayer BEFORE, and hands its own A on; P and C stay with the sublayer that made them.
//
// Of few rows the fold and the sums of the mix are made column by column, by the share that unfolds those columns where
// the next sublayer is known by then, and only their end is left to hc_enter. Of many rows each share mixes its own.
#include "model/forward_pass.h"

namespace deepinfer {
namespace {

bool are_few(const ForwardPass& pass) { return pass.num_rows() <= pass.ws.most_sum_rows; }

// Fold, and block sums of the mix, of some columns of every stream.
void make_sums(const ForwardPass& pass, const HcWeights& weights, Columns columns, const float* fold_weights,
               int64_t weight_stride) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), hidden = pass.config.hidden_size;
  pass.ops.hc_fold(ws.h.data(), fold_weights, weight_stride, rows, hidden, columns, ws.x.data());
  const HcParams params = weights.params(pass.config);
  for (int64_t start = 0; start < 4 * hidden; start += hidden) {
    const int64_t first = (start + columns.first) / kSumBlock, end = (start + columns.end) / kSumBlock;
    pass.ops.hc_sums(params, ws.h.data(), rows, hidden, first, end, ws.hc_sums.data());
  }
}

}  // namespace

Phase hc_enter(ForwardPass& pass, const HcWeights& weights, const std::vector<Bf16>& norm) {
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows(), hidden = pass.config.hidden_size;
  if (!are_few(pass)) {
    const int64_t elements = 100 * hidden;  // 24 products of each
    return pass.add_rows(rows, elements, {pass.left}, [&](int64_t begin, int64_t end, int thread) {
      const Bf16* h = ws.h.data() + begin * 4 * pass.config.hidden_size;
      Bf16* x = ws.x.data() + begin * pass.config.hidden_size;
      pass.ops.hc_mix(weights.params(pass.config), h, end - begin, pass.config.hidden_size,
                      ws.hc_products.data() + begin * 24, ws.mix.data() + begin, pass.kernel.thread_scratch(thread));
      pass.ops.hc_fold(h, ws.pre.data() + begin * 4, 4, end - begin, pass.config.hidden_size,
                       {0, pass.config.hidden_size}, x);
      pass.rms_norm(x, norm, end - begin, x);
      pass.make_operands(begin, end);
    });
  }
  if (!std::exchange(pass.has_sums, false)) {
    pass.left = pass.region.add(pass.column_shares(rows * hidden * 8), {pass.left}, [&](const Share& share) {
      make_sums(pass, weights, columns_of(share, pass.config.hidden_size), pass.ws.pre.data(), 4);
    });
  }
  return pass.add_rows(rows, 16 * hidden, {pass.left}, [&](int64_t begin, int64_t end, int) {
    const HcParams params = weights.params(pass.config);
    Bf16* x = ws.x.data() + begin * pass.config.hidden_size;
    pass.ops.hc_finish(params, ws.hc_sums.data() + begin * params.fn.num_blocks() * kHcSumStride, end - begin,
                       pass.config.hidden_size, ws.hc_products.data() + begin * 24, ws.mix.data() + begin);
    pass.rms_norm(x, norm, end - begin, x);
    pass.make_operands(begin, end);
  });
}

void hc_leave(const ForwardPass& pass, Columns columns, const HcWeights* next) {
  if (columns.first == columns.end) return;
  Workspace& ws = pass.ws;
  const int64_t rows = pass.num_rows();
  pass.ops.hc_unfold(ws.y.data(), ws.mix.data(), rows, pass.config.hidden_size, columns, ws.h.data());
  if (columns.first == 0) {  // once
    for (int64_t row = 0; row < rows; ++row) std::copy_n(ws.mix[row].a, 4, ws.pre.data() + 4 * row);
  }
  if (next != nullptr && are_few(pass)) make_sums(pass, *next, columns, ws.mix[0].a, sizeof(HcMix) / sizeof(float));
}

void hc_left(ForwardPass& pass, Phase phase, const HcWeights* next) {
  pass.left = phase;
  pass.has_sums = next != nullptr && are_few(pass);
}

}  // namespace deepinfer
