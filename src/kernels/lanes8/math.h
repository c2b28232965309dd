// exp and sigmoid of eight lanes (private to the kernels room); to be included as lanes8/linear.h is.

// exp_f32 of eight values, the same operations in the same order.
inline F8 exp8(F8 x) {
  const F8 n = round8(mul8(x, set8(kLog2e)));
  F8 r = fma8(n, set8(-kLn2High), x);
  r = fma8(n, set8(-kLn2Low), r);
  F8 p = set8(kExpPolynomial[0]);
#pragma GCC unroll 6
  for (int i = 1; i < 6; ++i) p = fma8(p, r, set8(kExpPolynomial[i]));
  p = add8(fma8(p, mul8(r, r), r), set8(1.0f));
  F8 result = select8(less8(x, set8(kExpLowest)), zero8(), raise8(p, n));
  result = select8(less8(set8(kExpHighest), x), set8(__builtin_inff()), result);
  return select8(is_nan8(x), x, result);
}

// sigmoid_f32 of eight values.
inline F8 sigmoid8(F8 x) {
  const F8 one = set8(1.0f);
  return div8(one, add8(one, exp8(negate8(x))));
}
