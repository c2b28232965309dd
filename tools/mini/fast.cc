// CPU kernels of the trainer that XLA compiles badly: stream folds and unfolds, the Sinkhorn rounds, RMS norms.
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F = ffi::Buffer<ffi::F32>;
using R = ffi::ResultBuffer<ffi::F32>;

namespace {

constexpr long S = 4;  // residual streams

// Runs f(begin, end, part) over two halves.
void halves(long n, const std::function<void(long, long, int)>& f) {
  const long mid = n / 2 / 8 * 8;
  std::thread other([&] { f(mid, n, 1); });
  f(0, mid, 0);
  other.join();
}

// out[n,j] = P[j,n] y[n] + sum_i C[i,j,n] h[n,i]
ffi::Error Unfold(F y, F h, F p, F c, R out) {
  const long n = y.dimensions()[0], d = y.dimensions()[1];
  const float *Y = y.typed_data(), *H = h.typed_data(), *P = p.typed_data(), *C = c.typed_data();
  float* O = out->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; ++t) {
      const float *yt = Y + t * d, *ht = H + t * S * d;
      for (long j = 0; j < S; ++j) {
        const float pj = P[j * n + t], c0 = C[j * n + t], c1 = C[(S + j) * n + t], c2 = C[(2 * S + j) * n + t],
                    c3 = C[(3 * S + j) * n + t];
        float* o = O + (t * S + j) * d;
        for (long k = 0; k < d; ++k)
          o[k] = pj * yt[k] + (c0 * ht[k] + c1 * ht[d + k] + c2 * ht[2 * d + k] + c3 * ht[3 * d + k]);
      }
    }
  });
  return ffi::Error::Success();
}

ffi::Error UnfoldGrad(F y, F h, F p, F c, F g, R dy, R dh, R dp, R dc) {
  const long n = y.dimensions()[0], d = y.dimensions()[1];
  const float *Y = y.typed_data(), *H = h.typed_data(), *P = p.typed_data(), *C = c.typed_data(), *G = g.typed_data();
  float *DY = dy->typed_data(), *DH = dh->typed_data(), *DP = dp->typed_data(), *DC = dc->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; ++t) {
      const float *yt = Y + t * d, *ht = H + t * S * d, *gt = G + t * S * d;
      const float p0 = P[t], p1 = P[n + t], p2 = P[2 * n + t], p3 = P[3 * n + t];
      float* o = DY + t * d;
      for (long k = 0; k < d; ++k) o[k] = p0 * gt[k] + p1 * gt[d + k] + p2 * gt[2 * d + k] + p3 * gt[3 * d + k];
      for (long i = 0; i < S; ++i) {
        const float* ci = C + i * S * n + t;
        const float c0 = ci[0], c1 = ci[n], c2 = ci[2 * n], c3 = ci[3 * n];
        float* q = DH + (t * S + i) * d;
        for (long k = 0; k < d; ++k) q[k] = c0 * gt[k] + c1 * gt[d + k] + c2 * gt[2 * d + k] + c3 * gt[3 * d + k];
      }
      for (long j = 0; j < S; ++j) {
        const float *gj = gt + j * d, *h1 = ht + d, *h2 = ht + 2 * d, *h3 = ht + 3 * d;
        float sp = 0, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (long k = 0; k < d; ++k) {
          const float v = gj[k];
          sp += v * yt[k], s0 += v * ht[k], s1 += v * h1[k], s2 += v * h2[k], s3 += v * h3[k];
        }
        DP[j * n + t] = sp;
        DC[j * n + t] = s0, DC[(S + j) * n + t] = s1, DC[(2 * S + j) * n + t] = s2, DC[(3 * S + j) * n + t] = s3;
      }
    }
  });
  return ffi::Error::Success();
}

// x[n] = sum_i w[i,n] h[n,i]
ffi::Error Fold(F h, F w, R x) {
  const long n = h.dimensions()[0], d = h.dimensions()[2];
  const float *H = h.typed_data(), *W = w.typed_data();
  float* X = x->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; ++t) {
      const float *ht = H + t * S * d, w0 = W[t], w1 = W[n + t], w2 = W[2 * n + t], w3 = W[3 * n + t];
      float* o = X + t * d;
      for (long k = 0; k < d; ++k) o[k] = w0 * ht[k] + w1 * ht[d + k] + w2 * ht[2 * d + k] + w3 * ht[3 * d + k];
    }
  });
  return ffi::Error::Success();
}

ffi::Error FoldGrad(F h, F w, F g, R dh, R dw) {
  const long n = h.dimensions()[0], d = h.dimensions()[2];
  const float *H = h.typed_data(), *W = w.typed_data(), *G = g.typed_data();
  float *DH = dh->typed_data(), *DW = dw->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; ++t)
      for (long i = 0; i < S; ++i) {
        const float *gt = G + t * d, *ht = H + (t * S + i) * d, wi = W[i * n + t];
        float *o = DH + (t * S + i) * d, s = 0;
        for (long k = 0; k < d; ++k) o[k] = wi * gt[k], s += gt[k] * ht[k];
        DW[i * n + t] = s;
      }
  });
  return ffi::Error::Success();
}

constexpr int L = 8;          // tokens side by side
constexpr int kRounds = 20;   // hc_sinkhorn_iters
using Mat = float[16][L];

// One pass; keeps every normalized matrix and every divisor when `keep` is given.
void sinkhorn_block(Mat m, Mat* keep, float (*div)[4][L]) {
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < L; ++l) {
      const float top = std::max(std::max(m[4 * i][l], m[4 * i + 1][l]), std::max(m[4 * i + 2][l], m[4 * i + 3][l]));
      for (int j = 0; j < 4; ++j) m[4 * i + j][l] = std::exp(m[4 * i + j][l] - top);
    }
  int at = 0;
  auto pass = [&](bool rows, float before, float after) {
    for (int a = 0; a < 4; ++a)
      for (int l = 0; l < L; ++l) {
        float s = before;
        for (int b = 0; b < 4; ++b) s += m[rows ? 4 * a + b : 4 * b + a][l];
        const float inv = 1.0f / s;
        if (div) div[at][a][l] = inv;
        for (int b = 0; b < 4; ++b) {
          float& v = m[rows ? 4 * a + b : 4 * b + a][l];
          v = v * inv;
        }
      }
    if (keep) std::memcpy(keep[at], m, sizeof(Mat));
    ++at;
    if (after != 0)
      for (int e = 0; e < 16; ++e)
        for (int l = 0; l < L; ++l) m[e][l] += after;
  };
  pass(true, 0, 1e-6f);
  pass(false, 1e-6f, 0);
  for (int r = 1; r < kRounds; ++r) pass(true, 1e-6f, 0), pass(false, 1e-6f, 0);
}

ffi::Error Sinkhorn(F c, R out) {
  const long n = c.dimensions()[2];
  const float* C = c.typed_data();
  float* O = out->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; t += L) {
      Mat m;
      for (int e = 0; e < 16; ++e) std::memcpy(m[e], C + e * n + t, sizeof m[e]);
      sinkhorn_block(m, nullptr, nullptr);
      for (int e = 0; e < 16; ++e) std::memcpy(O + e * n + t, m[e], sizeof m[e]);
    }
  });
  return ffi::Error::Success();
}

ffi::Error SinkhornGrad(F c, F g, R dc) {
  const long n = c.dimensions()[2];
  const float *C = c.typed_data(), *G = g.typed_data();
  float* O = dc->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; t += L) {
      Mat m, q, keep[2 * kRounds];
      float div[2 * kRounds][4][L];
      for (int e = 0; e < 16; ++e) {
        std::memcpy(m[e], C + e * n + t, sizeof m[e]);
        std::memcpy(q[e], G + e * n + t, sizeof q[e]);
      }
      sinkhorn_block(m, keep, div);
      // y = x / s with s = sum x: dx = (dy - sum(dy y)) / s. Last step: rows divide exponentials, whose gradient is x dx.
      for (int at = 2 * kRounds - 1; at >= 0; --at) {
        const bool rows = at % 2 == 0;
        for (int x = 0; x < 4; ++x)
          for (int l = 0; l < L; ++l) {
            float s = 0;
            for (int y = 0; y < 4; ++y) {
              const int e = rows ? 4 * x + y : 4 * y + x;
              s += q[e][l] * keep[at][e][l];
            }
            for (int y = 0; y < 4; ++y) {
              const int e = rows ? 4 * x + y : 4 * y + x;
              q[e][l] = (q[e][l] - s) * (at ? div[at][x][l] : keep[0][e][l]);
            }
          }
      }
      for (int e = 0; e < 16; ++e) std::memcpy(O + e * n + t, q[e], sizeof q[e]);
    }
  });
  return ffi::Error::Success();
}

// y = x r w with r = 1 / rms(x); keeps r.
ffi::Error Rms(F x, F w, R y, R r) {
  const long d = w.element_count(), n = x.element_count() / d;
  const float *X = x.typed_data(), *W = w.typed_data();
  float *Y = y->typed_data(), *RR = r->typed_data();
  halves(n, [&](long a, long b, int) {
    for (long t = a; t < b; ++t) {
      const float* xt = X + t * d;
      float s = 0;
      for (long k = 0; k < d; ++k) s += xt[k] * xt[k];
      const float v = 1.0f / std::sqrt(s / d + 1e-20f);
      RR[t] = v;
      for (long k = 0; k < d; ++k) Y[t * d + k] = xt[k] * v * W[k];
    }
  });
  return ffi::Error::Success();
}

ffi::Error RmsGrad(F x, F w, F r, F g, R dx, R dw) {
  const long d = w.element_count(), n = x.element_count() / d;
  const float *X = x.typed_data(), *W = w.typed_data(), *RR = r.typed_data(), *G = g.typed_data();
  float *DX = dx->typed_data(), *DW = dw->typed_data();
  float part[2][1024] = {};
  halves(n, [&](long a, long b, int which) {
    float* acc = part[which];
    for (long t = a; t < b; ++t) {
      const float *xt = X + t * d, *gt = G + t * d, v = RR[t];
      float s = 0;
      for (long k = 0; k < d; ++k) s += gt[k] * W[k] * xt[k];
      const float m = s * v * v / d;
      for (long k = 0; k < d; ++k) {
        DX[t * d + k] = v * (gt[k] * W[k] - xt[k] * m);
        acc[k] += gt[k] * xt[k] * v;
      }
    }
  });
  for (long k = 0; k < d; ++k) DW[k] = part[0][k] + part[1][k];
  return ffi::Error::Success();
}

}  // namespace

#define BIND(name, args, rets) XLA_FFI_DEFINE_HANDLER_SYMBOL(name##_, name, ffi::Ffi::Bind() args rets)
#define A1 .Arg<F>()
#define R1 .Ret<F>()
BIND(Unfold, A1 A1 A1 A1, R1);
BIND(UnfoldGrad, A1 A1 A1 A1 A1, R1 R1 R1 R1);
BIND(Fold, A1 A1, R1);
BIND(FoldGrad, A1 A1 A1, R1 R1);
BIND(Sinkhorn, A1, R1);
BIND(SinkhornGrad, A1 A1, R1);
BIND(Rms, A1 A1, R1 R1);
BIND(RmsGrad, A1 A1 A1 A1, R1 R1);
