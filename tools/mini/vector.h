// Vectors of 16 floats for the trainer's kernels.
#pragma once
#include <cstdint>

namespace {

typedef float V __attribute__((vector_size(64)));
typedef float Vu __attribute__((vector_size(64), aligned(4)));
typedef int32_t VI __attribute__((vector_size(64)));

V load(const float* p) { return *reinterpret_cast<const Vu*>(p); }
void store(float* p, V v) { *reinterpret_cast<Vu*>(p) = v; }

// e^x for x <= 0 (or little more)
V exp(V x) {
  x = x < -87.0f ? V{} - 87.0f : x;
  const VI whole = __builtin_convertvector(x * 1.44269504f - 0.5f, VI);
  const V n = __builtin_convertvector(whole, V);
  const V r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  V y = V{} + 1.9875691500e-4f;
  for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    y = y * r + c;
  y = y * r * r + r + 1.0f;
  return y * reinterpret_cast<V>((whole + 127) << 23);
}

}  // namespace
