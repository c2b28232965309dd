// The trainer's experts with their gradient: only the chosen ones of each token are computed, in blocks of 16 tokens.
#include <algorithm>
#include <cstring>
#include <vector>

#include "vector.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F = ffi::Buffer<ffi::F32>;
using R = ffi::ResultBuffer<ffi::F32>;

namespace {

constexpr int D = 128, I = 64, N = 16;   // hidden size, inner size, tokens a block

// c[N][cols] (+)= a[N][depth] b[depth][cols]
template <int depth, int cols>
void multiply(const float (*a)[depth], const float* b, float (*c)[cols], bool add = false) {
  for (int c0 = 0; c0 < cols; c0 += 64)
    for (int row = 0; row < N; row += 4) {
      V s[4][4] = {};
      if (add)
        for (int i = 0; i < 4; ++i)
          for (int v = 0; v < 4; ++v) s[i][v] = load(&c[row + i][c0 + 16 * v]);
      for (int k = 0; k < depth; ++k)
        for (int v = 0; v < 4; ++v) {
          const V x = load(b + k * cols + c0 + 16 * v);
          for (int i = 0; i < 4; ++i) s[i][v] += a[row + i][k] * x;
        }
      for (int i = 0; i < 4; ++i)
        for (int v = 0; v < 4; ++v) store(&c[row + i][c0 + 16 * v], s[i][v]);
    }
}

// c[rows][cols] += a[N][rows]^T b[N][cols]
template <int rows, int cols>
void add_outer(const float (*a)[rows], const float (*b)[cols], float* c) {
  for (int c0 = 0; c0 < cols; c0 += 64)
    for (int r = 0; r < rows; r += 4) {
      V s[4][4];
      for (int i = 0; i < 4; ++i)
        for (int v = 0; v < 4; ++v) s[i][v] = load(c + (r + i) * cols + c0 + 16 * v);
      for (int n = 0; n < N; ++n)
        for (int v = 0; v < 4; ++v) {
          const V x = load(&b[n][c0 + 16 * v]);
          for (int i = 0; i < 4; ++i) s[i][v] += a[n][r + i] * x;
        }
      for (int i = 0; i < 4; ++i)
        for (int v = 0; v < 4; ++v) store(c + (r + i) * cols + c0 + 16 * v, s[i][v]);
    }
}

std::vector<float> turned(const float* w, int rows, int cols) {
  std::vector<float> t(static_cast<size_t>(rows) * cols);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c) t[c * rows + r] = w[r * cols + c];
  return t;
}

V sigmoid(V x) {
  const V e = exp(x > 0.0f ? -x : x);
  return (x > 0.0f ? V{} + 1.0f : e) / (1.0f + e);
}

struct Block {
  int count = 0;
  long token[N];
  float weight[N];
};

// Calls use(block) for the tokens whose weight w[token][e] isn't 0.
template <typename Use>
void blocks(const float* w, long tokens, long experts, long e, Use use) {
  Block b;
  for (long t = 0; t < tokens; ++t) {
    if (w[t * experts + e] == 0) continue;
    b.token[b.count] = t, b.weight[b.count++] = w[t * experts + e];
    if (b.count == N) use(b), b.count = 0;
  }
  if (b.count) use(b);
}

void gather(const float* x, const Block& b, float (*to)[D]) {
  std::memset(to, 0, N * D * sizeof(float));
  for (int n = 0; n < b.count; ++n) std::memcpy(to[n], x + b.token[n] * D, D * sizeof(float));
}

void scatter(const float (*from)[D], const Block& b, float* y) {
  for (int n = 0; n < b.count; ++n)
    for (int d = 0; d < D; ++d) y[b.token[n] * D + d] += from[n][d];
}

// x [n, D], w [n, E] weights, w1, w3 [E, I, D], w2 [E, D, I] -> sum over e of w_e W2 (silu(min(W1 x, limit)) clip(W3 x, limit))
ffi::Error Experts(F x, F w, F w1, F w2, F w3, R y, float limit) {
  const long n = x.dimensions()[0], E = w.dimensions()[1];
  std::fill_n(y->typed_data(), n * D, 0.0f);
  for (long e = 0; e < E; ++e) {
    const auto t1 = turned(w1.typed_data() + e * I * D, I, D), t3 = turned(w3.typed_data() + e * I * D, I, D),
               t2 = turned(w2.typed_data() + e * D * I, D, I);
    blocks(w.typed_data(), n, E, e, [&](const Block& b) {
      alignas(64) float in[N][D], g[N][I], u[N][I], out[N][D];
      gather(x.typed_data(), b, in);
      multiply<D, I>(in, t1.data(), g);
      multiply<D, I>(in, t3.data(), u);
      for (int k = 0; k < b.count; ++k)
        for (int i = 0; i < I; i += 16) {
          V a = load(&g[k][i]), c = load(&u[k][i]);
          a = a > limit ? V{} + limit : a;
          c = c > limit ? V{} + limit : c < -limit ? V{} - limit : c;
          store(&g[k][i], a * sigmoid(a) * c * b.weight[k]);
        }
      multiply<I, D>(g, t2.data(), out);
      scatter(out, b, y->typed_data());
    });
  }
  return ffi::Error::Success();
}

// Gradients of all five from dy.
ffi::Error ExpertsGrad(F x, F w, F w1, F w2, F w3, F dy, R dx, R dw, R d1, R d2, R d3, float limit) {
  const long n = x.dimensions()[0], E = w.dimensions()[1];
  for (R* r : {&dx, &dw, &d1, &d2, &d3}) std::fill_n((*r)->typed_data(), (*r)->element_count(), 0.0f);
  for (long e = 0; e < E; ++e) {
    const float *p1 = w1.typed_data() + e * I * D, *p2 = w2.typed_data() + e * D * I, *p3 = w3.typed_data() + e * I * D;
    const auto t1 = turned(p1, I, D), t3 = turned(p3, I, D);
    blocks(w.typed_data(), n, E, e, [&](const Block& b) {
      alignas(64) float in[N][D], go[N][D], g[N][I], u[N][I], a[N][I] = {}, da[N][I], di[N][D];
      gather(x.typed_data(), b, in);
      gather(dy.typed_data(), b, go);
      multiply<D, I>(in, t1.data(), g);
      multiply<D, I>(in, t3.data(), u);
      multiply<D, I>(go, p2, da);
      for (int k = 0; k < N; ++k) {
        const float weight = k < b.count ? b.weight[k] : 0;
        V sum = {};
        for (int i = 0; i < I; i += 16) {
          const V g0 = load(&g[k][i]), u0 = load(&u[k][i]), d = load(&da[k][i]);
          const V gl = g0 > limit ? V{} + limit : g0, ul = u0 > limit ? V{} + limit : u0 < -limit ? V{} - limit : u0;
          const V s = sigmoid(gl), inner = gl * s * ul;
          sum += d * inner;
          store(&a[k][i], inner * weight);
          store(&g[k][i], g0 > limit ? V{} : d * weight * ul * s * (1.0f + gl * (1.0f - s)));
          store(&u[k][i], u0 > limit ? V{} : u0 < -limit ? V{} : d * weight * gl * s);
        }
        if (k < b.count)
          for (int j = 0; j < 16; ++j) dw->typed_data()[b.token[k] * E + e] += sum[j];
      }
      multiply<I, D>(g, p1, di);
      multiply<I, D>(u, p3, di, true);
      scatter(di, b, dx->typed_data());
      add_outer<I, D>(g, in, d1->typed_data() + e * I * D);
      add_outer<I, D>(u, in, d3->typed_data() + e * I * D);
      add_outer<D, I>(go, a, d2->typed_data() + e * D * I);
    });
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(Experts_, Experts, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<F>().Arg<F>().Ret<F>()
                              .Attr<float>("limit"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(ExpertsGrad_, ExpertsGrad, ffi::Ffi::Bind().Arg<F>().Arg<F>().Arg<F>().Arg<F>().Arg<F>()
                              .Arg<F>().Ret<F>().Ret<F>().Ret<F>().Ret<F>().Ret<F>().Attr<float>("limit"));
