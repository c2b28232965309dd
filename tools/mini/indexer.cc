// The indexer: its selection; its loss with gradient, the KL of the attention's shares against the softmax of the scores, over the rows of the
// query's own document. The score of a row is sum over heads of w relu(q . key).
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "vector.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F = ffi::Buffer<ffi::F32>;
using I = ffi::Buffer<ffi::S32>;
using Mask = ffi::Buffer<ffi::PRED>;
using R = ffi::ResultBuffer<ffi::F32>;

namespace {

constexpr int D = 32, H = 4, K = 16;   // key size, heads, keys a tile
constexpr float kNone = -1e30f;

struct Tile {
  V dot[H], score, target;
};

// q [B,P,H,D], w [B,P,H], keys [B,C,D], start of the document [B,T], shares [B,P,C]; the P queries stand at every T/P-th
// position; their weights focus [B,P] -> mean KL over positions that see at least two rows, and its gradients of q, w, keys.
ffi::Error IndexLoss(F q, F w, F keys, I start, F shares, F focus, R loss, R dq, R dw, R dkeys) {
  const long B = q.dimensions()[0], P = q.dimensions()[1], C = keys.dimensions()[1], T = start.dimensions()[1],
             every = T / P, ratio = T / C;
  for (R* r : {&dq, &dw, &dkeys}) std::fill_n((*r)->typed_data(), (*r)->element_count(), 0.0f);
  const auto range = [&](long b, long p) {
    const long t = p * every;
    return std::pair{start.typed_data()[b * T + t] / ratio, (t + 1) / ratio};   // first row, end
  };
  float weights = 1e-9f;
  for (long b = 0; b < B; ++b)
    for (long p = 0; p < P; ++p)
      if (range(b, p).second - range(b, p).first > 1) weights += focus.typed_data()[b * P + p];
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
      const float share_of_one = focus.typed_data()[b * P + p] / weights;
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
      for (int j = 0; j < K; ++j) total += kl[j] * share_of_one;
    }
  }
  loss->typed_data()[0] = static_cast<float>(total);
  return ffi::Error::Success();
}

// Marks the k best of n values; `at` names them in `marks`.
void mark_best(const std::vector<float>& values, const std::vector<long>& at, long k, bool* marks) {
  float least = 2 * kNone;
  if (static_cast<long>(values.size()) > k) {
    std::vector<float> order = values;
    std::nth_element(order.begin(), order.begin() + k - 1, order.end(), std::greater<>());
    least = order[k - 1];
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] >= least) marks[at[i]] = true;
}

// q [B,T,H,D], w [B,T,H], keys [B,C,D], start [B,T], allowed rows [B,T,C] or empty -> the k best allowed rows of the own
// document [B,T,C] and, with `blocks`, its rows in the best so many blocks of `size` rows, the newest one's block included.
ffi::Error Select(F q, F w, F keys, I start, Mask allowed, ffi::Result<Mask> best, ffi::Result<Mask> near,
                  int64_t k, int64_t blocks, int64_t size) {
  const long B = q.dimensions()[0], T = q.dimensions()[1], C = keys.dimensions()[1], ratio = T / C;
  std::fill_n(best->typed_data(), B * T * C, false);
  std::fill_n(near->typed_data(), near->element_count(), false);
  std::vector<V> turned(C / K * D);
  std::vector<float> scores(C), values;
  std::vector<long> at;
  for (long b = 0; b < B; ++b) {
    const float* key = keys.typed_data() + b * C * D;
    for (long j = 0; j < C; ++j)
      for (int d = 0; d < D; ++d) turned[j / K * D + d][j % K] = key[j * D + d];
    for (long t = 0; t < T; ++t) {
      const long first = start.typed_data()[b * T + t] / ratio, end = (t + 1) / ratio, row = (b * T + t) * C;
      if (first >= end) continue;
      const bool* may = allowed.element_count() ? allowed.typed_data() + row : nullptr;
      if (end - first <= k && !may && !near->element_count()) {
        std::fill(best->typed_data() + row + first, best->typed_data() + row + end, true);
        continue;
      }
      const float *x = q.typed_data() + (b * T + t) * H * D, *weight = w.typed_data() + (b * T + t) * H;
      for (long tile = first / K; tile * K < end; ++tile) {
        V dot[H] = {}, score = {};
        for (int d = 0; d < D; ++d)
          for (int h = 0; h < H; ++h) dot[h] += x[h * D + d] * turned[tile * D + d];
        for (int h = 0; h < H; ++h) score += weight[h] * (dot[h] > 0.0f ? dot[h] : V{});
        store(&scores[tile * K], score);
      }
      values.clear(), at.clear();
      for (long j = first; j < end; ++j)
        if (!may || may[j]) values.push_back(scores[j]), at.push_back(j);
      mark_best(values, at, k, best->typed_data() + row);
      if (!near->element_count()) continue;
      values.clear(), at.clear();
      for (long block = first / size; block * size < end; ++block) {
        const long a = std::max(first, block * size), z = std::min(end, (block + 1) * size);
        values.push_back(z == end ? -kNone : *std::max_element(&scores[a], &scores[0] + z));
        at.push_back(block);
      }
      std::vector<char> kept(C / size + 1);
      mark_best(values, at, blocks, reinterpret_cast<bool*>(kept.data()));
      for (long j = first; j < end; ++j) near->typed_data()[row + j] = kept[j / size];
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(Select_, Select, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<I>().Arg<Mask>()
                              .Ret<Mask>().Ret<Mask>().Attr<int64_t>("k")
                              .Attr<int64_t>("blocks").Attr<int64_t>("size"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(IndexLoss_, IndexLoss, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<I>().Arg<F>()
                              .Arg<F>().Ret<F>().Ret<F>().Ret<F>().Ret<F>());
