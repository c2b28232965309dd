// The indexer's loss with its gradient: KL of the attention's shares against the softmax of the scores, over the rows of the
// query's own document. The score of a row is sum over heads of w relu(q . key).
#include <algorithm>
#include <cmath>
#include <vector>

#include "vector.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F = ffi::Buffer<ffi::F32>;
using I = ffi::Buffer<ffi::S32>;
using R = ffi::ResultBuffer<ffi::F32>;

namespace {

constexpr int D = 32, H = 4, K = 16;   // key size, heads, keys a tile
constexpr float kNone = -1e30f;

struct Tile {
  V dot[H], score, target;
};

// q [B,P,H,D], w [B,P,H], keys [B,C,D], start of the document [B,T], shares [B,P,C]; the P queries stand at every T/P-th
// position -> mean KL over positions that see at least two rows, and its gradients of q, w, keys.
ffi::Error IndexLoss(F q, F w, F keys, I start, F shares, R loss, R dq, R dw, R dkeys) {
  const long B = q.dimensions()[0], P = q.dimensions()[1], C = keys.dimensions()[1], T = start.dimensions()[1],
             every = T / P, ratio = T / C;
  for (R* r : {&dq, &dw, &dkeys}) std::fill_n((*r)->typed_data(), (*r)->element_count(), 0.0f);
  const auto range = [&](long b, long p) {
    const long t = p * every;
    return std::pair{start.typed_data()[b * T + t] / ratio, (t + 1) / ratio};   // first row, end
  };
  long count = 0;
  for (long b = 0; b < B; ++b)
    for (long p = 0; p < P; ++p) count += range(b, p).second - range(b, p).first > 1;
  const float share_of_one = 1.0f / static_cast<float>(std::max(count, 1L));
  double total = 0;
  std::vector<V> turned(C / K * D);
  std::vector<Tile> tiles(C / K + 1);
  for (long b = 0; b < B; ++b) {
    const float* key = keys.typed_data() + b * C * D;
    for (long j = 0; j < C; ++j)
      for (int d = 0; d < D; ++d) turned[j / K * D + d][j % K] = key[j * D + d];
    for (long p = 0; p < P; ++p) {
      const auto [first, end] = range(b, p);
      if (end - first < 2) continue;
      const float *x = q.typed_data() + (b * P + p) * H * D, *weight = w.typed_data() + (b * P + p) * H,
                  *share = shares.typed_data() + (b * P + p) * C;
      const long from = first / K, to = (end + K - 1) / K;
      V top = V{} + kNone, mass = {};
      for (long tile = from; tile < to; ++tile) {
        Tile& t = tiles[tile];
        std::fill_n(t.dot, H, V{});
        for (int d = 0; d < D; ++d)
          for (int h = 0; h < H; ++h) t.dot[h] += x[h * D + d] * turned[tile * D + d];
        t.score = V{};
        for (int h = 0; h < H; ++h) t.score += weight[h] * (t.dot[h] > 0.0f ? t.dot[h] : V{});
        for (int j = 0; j < K; ++j)
          if (tile * K + j < first || tile * K + j >= end) t.score[j] = kNone;
        t.target = load(share + tile * K);
        mass += t.target;
        top = t.score > top ? t.score : top;
      }
      float best = kNone, sum = 1e-9f, den = 0;
      for (int j = 0; j < K; ++j) best = std::max(best, top[j]), sum += mass[j];
      V dens = {};
      for (long tile = from; tile < to; ++tile) dens += tiles[tile].score <= kNone ? V{} : exp(tiles[tile].score - best);
      for (int j = 0; j < K; ++j) den += dens[j];
      const float log_den = std::log(den) + best;
      V kl = {}, gw[H] = {}, gq[H][2] = {};
      for (long tile = from; tile < to; ++tile) {
        Tile& t = tiles[tile];
        const V hidden = {}, target = t.target / sum, chance = t.score <= kNone ? hidden : exp(t.score - log_den);
        for (int j = 0; j < K; ++j)
          if (target[j] > 1e-9f && t.score[j] > kNone) kl[j] += target[j] * (std::log(target[j]) - t.score[j] + log_den);
        const V g = (chance - (t.score <= kNone ? hidden : target)) * share_of_one;
        V gd[H];
        for (int h = 0; h < H; ++h) {
          gw[h] += g * (t.dot[h] > 0.0f ? t.dot[h] : hidden);
          gd[h] = t.dot[h] > 0.0f ? g * weight[h] : hidden;
        }
        for (int j = 0; j < K; ++j) {
          const float* k = key + (tile * K + j) * D;
          float* gk = dkeys->typed_data() + (b * C + tile * K + j) * D;
          const V k0 = load(k), k1 = load(k + 16);
          V g0 = load(gk), g1 = load(gk + 16);
          for (int h = 0; h < H; ++h) {
            gq[h][0] += gd[h][j] * k0, gq[h][1] += gd[h][j] * k1;
            g0 += gd[h][j] * load(x + h * D), g1 += gd[h][j] * load(x + h * D + 16);
          }
          store(gk, g0), store(gk + 16, g1);
        }
      }
      for (int h = 0; h < H; ++h) {
        float* to_q = dq->typed_data() + ((b * P + p) * H + h) * D;
        store(to_q, gq[h][0]), store(to_q + 16, gq[h][1]);
        float s = 0;
        for (int j = 0; j < K; ++j) s += gw[h][j];
        dw->typed_data()[(b * P + p) * H + h] = s;
      }
      for (int j = 0; j < K; ++j) total += kl[j];
    }
  }
  loss->typed_data()[0] = static_cast<float>(total * share_of_one);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(IndexLoss_, IndexLoss, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<I>().Arg<F>()
                              .Ret<F>().Ret<F>().Ret<F>().Ret<F>());
