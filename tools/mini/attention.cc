// Attention of the trainer with its gradient: a sliding window and compressed rows of the query's own document, one softmax.
//
// A block of 8 positions x 4 heads (32 rows) meets tiles of 16 keys; tiles that no position of the block sees are skipped,
// so cost follows the documents and not the row length. Scores are kept for one block only; the gradient makes them anew.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "vector.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F = ffi::Buffer<ffi::F32>;
using I = ffi::Buffer<ffi::S32>;
using P = ffi::Buffer<ffi::PRED>;
using R = ffi::ResultBuffer<ffi::F32>;

namespace {

constexpr int D = 64, H = 4, Q = 8, ROWS = Q * H, K = 16;   // head size, heads, positions and rows a block, keys a tile
typedef int8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));
constexpr float kScale = 0.125f, kNone = -1e30f;
using Rows = float[ROWS][D];
struct Tile {   // a value for each row and key
  V v[ROWS];
  V& operator[](long row) { return v[row]; }
  const V& operator[](long row) const { return v[row]; }
};

// out[row][key] = a[row] . key, for keys transposed to [D][K]
void dots(const Rows& a, const V* keys, Tile& out) {
  for (int row = 0; row < ROWS; row += 8) {
    V s[8] = {};
    for (int d = 0; d < D; ++d) {
      const V k = keys[d];
      for (int i = 0; i < 8; ++i) s[i] += a[row + i][d] * k;
    }
    for (int i = 0; i < 8; ++i) out[row + i] = s[i];
  }
}

// out[row] += sum over keys of p[row][key] key
void add_keys(const Tile& p, const float* keys, Rows& out) {
  for (int row = 0; row < ROWS; row += 4) {
    V s[4][4];
    for (int i = 0; i < 4; ++i)
      for (int c = 0; c < 4; ++c) s[i][c] = load(&out[row + i][16 * c]);
    for (int j = 0; j < K; ++j)
      for (int c = 0; c < 4; ++c) {
        const V k = load(keys + j * D + 16 * c);
        for (int i = 0; i < 4; ++i) s[i][c] += p[row + i][j] * k;
      }
    for (int i = 0; i < 4; ++i)
      for (int c = 0; c < 4; ++c) store(&out[row + i][16 * c], s[i][c]);
  }
}

// grad[key] += sum over rows of p[row][key] a[row] + q[row][key] b[row]
void add_rows(const Tile& p, const Rows& a, const Tile& q, const Rows& b, float* grad) {
  for (int j = 0; j < K; j += 4) {
    V s[4][4];
    for (int i = 0; i < 4; ++i)
      for (int c = 0; c < 4; ++c) s[i][c] = load(grad + (j + i) * D + 16 * c);
    for (int row = 0; row < ROWS; ++row)
      for (int c = 0; c < 4; ++c) {
        const V x = load(&a[row][16 * c]), y = load(&b[row][16 * c]);
        for (int i = 0; i < 4; ++i) s[i][c] += p[row][j + i] * x + q[row][j + i] * y;
      }
    for (int i = 0; i < 4; ++i)
      for (int c = 0; c < 4; ++c) store(grad + (j + i) * D + 16 * c, s[i][c]);
  }
}

// One set of keys of a batch row, and which of them a position sees.
struct Keys {
  const float* rows;
  long count, ratio, window;   // window: number of newest keys, 0 for all
  const bool* selected;        // [positions, count] or null
  std::vector<V> turned;

  Keys(const float* rows, long count, long ratio, long window, const bool* selected)
      : rows(rows), count(count), ratio(ratio), window(window), selected(selected), turned(count / K * D) {
    for (long j = 0; j < count; ++j)
      for (int d = 0; d < D; ++d) turned[j / K * D + d][j % K] = rows[j * D + d];
  }
  long first(long t, long start) const { return window ? std::max(start, t - window + 1) : start / ratio; }
  long last(long t) const { return (t + 1) / ratio - 1; }

  // Calls use(tile, seen) for every tile that a position of the block at `at` sees; seen[i] is -1 for visible keys.
  template <typename Use>
  void tiles(long at, const int32_t* start, Use use) const {
    long from = count;
    for (int i = 0; i < Q; ++i) from = std::min(from, first(at + i, start[at + i]));
    for (long tile = from / K; tile * K <= last(at + Q - 1) && tile * K < count; ++tile) {
      VI seen[Q];
      bool any = false;
      for (int i = 0; i < Q; ++i) {
        const VI key = static_cast<int32_t>(tile * K) + VI{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        seen[i] = (key >= static_cast<int32_t>(first(at + i, start[at + i]))) & (key <= static_cast<int32_t>(last(at + i)));
        if (selected)
          seen[i] &= -__builtin_convertvector(
              *reinterpret_cast<const Bytes*>(selected + (at + i) * count + tile * K), VI);
        for (int j = 0; j < K; ++j) any |= seen[i][j] != 0;
      }
      if (any) use(tile, seen);
    }
  }
};

void load_rows(const float* from, float scale, Rows& to) {
  for (int row = 0; row < ROWS; ++row)
    for (int d = 0; d < D; ++d) to[row][d] = from[row * D + d] * scale;
}

// q [B,T,H,D], window rows [B,T,D], compressed rows [B,C,D], sink [H], start of the document [B,T], selection [B,T,C] or
// empty -> out [B,T,H,D], log of the denominator [B,T,H], share of every compressed row, summed over heads, at every n-th position [B,T/n,C] or empty.
ffi::Error Attend(F q, F w, F c, F sink, I start, P select, R out, R lse, R mass, int64_t window) {
  const long B = q.dimensions()[0], T = q.dimensions()[1], C = c.dimensions()[1], ratio = C ? T / C : 1;
  std::vector<Tile> scores;
  std::vector<long> where;
  for (long b = 0; b < B; ++b) {
    const int32_t* first = start.typed_data() + b * T;
    const Keys sets[] = {{w.typed_data() + b * T * D, T, 1, window, nullptr},
                         {c.typed_data() + b * C * D, C, ratio, 0,
                          select.element_count() ? select.typed_data() + b * T * C : nullptr}};
    for (long at = 0; at < T; at += Q) {
      const long row0 = (b * T + at) * H;
      alignas(64) Rows x, o = {};
      load_rows(q.typed_data() + row0 * D, kScale, x);
      scores.resize((T + C) / K + 2);
      where.clear();
      V top[ROWS], sum[ROWS] = {};
      for (V& v : top) v = V{} + kNone;
      long split = 0;
      for (const Keys& keys : sets) {
        keys.tiles(at, first, [&](long tile, const VI* seen) {
          Tile& s = scores[where.size()];
          where.push_back(tile);
          dots(x, &keys.turned[tile * D], s);
          for (int row = 0; row < ROWS; ++row) {
            s[row] = seen[row / H] ? s[row] : V{} + kNone;
            top[row] = s[row] > top[row] ? s[row] : top[row];
          }
        });
        if (&keys == sets) split = static_cast<long>(where.size());
      }
      float best[ROWS], den[ROWS];
      for (int row = 0; row < ROWS; ++row) {
        best[row] = sink.typed_data()[row % H];
        for (int j = 0; j < K; ++j) best[row] = std::max(best[row], top[row][j]);
      }
      for (long i = 0; i < static_cast<long>(where.size()); ++i) {
        for (int row = 0; row < ROWS; ++row) {
          scores[i][row] = scores[i][row] <= kNone ? V{} : exp(scores[i][row] - best[row]);
          sum[row] += scores[i][row];
        }
        add_keys(scores[i], sets[i >= split].rows + where[i] * K * D, o);
      }
      for (int row = 0; row < ROWS; ++row) {
        den[row] = __builtin_expf(sink.typed_data()[row % H] - best[row]);
        for (int j = 0; j < K; ++j) den[row] += sum[row][j];
        lse->typed_data()[row0 + row] = best[row] + __builtin_logf(den[row]);
        for (int d = 0; d < D; ++d) out->typed_data()[(row0 + row) * D + d] = o[row][d] / den[row];
      }
      if (mass->element_count()) {
        const long every = T / mass->dimensions()[1];
        float* m = mass->typed_data() + (b * T + at) / every * C;
        std::fill(m, m + Q / every * C, 0.0f);
        for (long i = split; i < static_cast<long>(where.size()); ++i)
          for (int row = 0; row < ROWS; ++row) {
            if (row / H % every) continue;
            float* to = m + row / H / every * C + where[i] * K;
            store(to, load(to) + scores[i][row] / den[row]);
          }
      }
    }
  }
  return ffi::Error::Success();
}

// Gradients of q, w, c and sink from g, the gradient of out.
ffi::Error AttendGrad(F q, F w, F c, F sink, I start, P select, F out, F lse, F g, R dq, R dw, R dc, R dsink,
                      int64_t window) {
  const long B = q.dimensions()[0], T = q.dimensions()[1], C = c.dimensions()[1], ratio = C ? T / C : 1;
  std::fill_n(dw->typed_data(), B * T * D, 0.0f);
  std::fill_n(dc->typed_data(), B * C * D, 0.0f);
  std::fill_n(dsink->typed_data(), H, 0.0f);
  for (long b = 0; b < B; ++b) {
    const int32_t* first = start.typed_data() + b * T;
    const Keys sets[] = {{w.typed_data() + b * T * D, T, 1, window, nullptr},
                         {c.typed_data() + b * C * D, C, ratio, 0,
                          select.element_count() ? select.typed_data() + b * T * C : nullptr}};
    float* grads[] = {dw->typed_data() + b * T * D, dc->typed_data() + b * C * D};
    for (long at = 0; at < T; at += Q) {
      const long row0 = (b * T + at) * H;
      alignas(64) Rows x, go, dx = {};
      load_rows(q.typed_data() + row0 * D, kScale, x);
      load_rows(g.typed_data() + row0 * D, 1.0f, go);
      const float* l = lse.typed_data() + row0;
      float delta[ROWS];
      for (int row = 0; row < ROWS; ++row) {
        delta[row] = 0;
        for (int d = 0; d < D; ++d) delta[row] += go[row][d] * out.typed_data()[(row0 + row) * D + d];
        dsink->typed_data()[row % H] -= __builtin_expf(sink.typed_data()[row % H] - l[row]) * delta[row];
      }
      for (int which = 0; which < 2; ++which) {
        const Keys& keys = sets[which];
        keys.tiles(at, first, [&](long tile, const VI* seen) {
          Tile p, ds;
          dots(x, &keys.turned[tile * D], p);
          dots(go, &keys.turned[tile * D], ds);
          for (int row = 0; row < ROWS; ++row) {
            p[row] = seen[row / H] ? exp(p[row] - l[row]) : V{};
            ds[row] = p[row] * (ds[row] - delta[row]);
          }
          add_keys(ds, keys.rows + tile * K * D, dx);
          add_rows(ds, x, p, go, grads[which] + tile * K * D);
        });
      }
      for (int row = 0; row < ROWS; ++row)
        for (int d = 0; d < D; ++d) dq->typed_data()[(row0 + row) * D + d] = dx[row][d] * kScale;
    }
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(Attend_, Attend, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<F>().Arg<I>().Arg<P>()
                              .Ret<F>().Ret<F>().Ret<F>().Attr<int64_t>("window"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(AttendGrad_, AttendGrad, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<F>().Arg<I>()
                              .Arg<P>().Arg<F>().Arg<F>().Arg<F>().Ret<F>().Ret<F>().Ret<F>().Ret<F>().Attr<int64_t>("window"));
