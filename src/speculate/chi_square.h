// For tests of distributions: counts against what is expected of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace deepinfer {

// Upper tail of the chi-square distribution: the regularized incomplete gamma function Q(df / 2, x / 2), by
// its series or its continued fraction.
inline double chi_square_p(double x, double df) {
  const double a = df / 2, z = x / 2;
  const double front = std::exp(-z + a * std::log(z) - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000; ++n) {
      term *= z / (a + n);
      sum += term;
    }
    return 1 - sum * front;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 10000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
  }
  return front * h;
}

struct ChiSquare {
  double statistic = 0;
  int64_t degrees = 0;
  double p = 1;  // of a statistic at least as large, were `expected` true
};

// `expected` are probabilities that sum to 1. Cells that expect fewer than 5 counts are taken together.
inline ChiSquare chi_square(std::span<const int64_t> seen, std::span<const double> expected) {
  double total = 0;
  for (const int64_t count : seen) total += static_cast<double>(count);
  ChiSquare out;
  out.degrees = -1;
  double rare_seen = 0, rare_wanted = 0;
  const auto add = [&out](double count, double wanted) {
    if (wanted <= 0) return;
    out.statistic += (count - wanted) * (count - wanted) / wanted;
    ++out.degrees;
  };
  for (size_t i = 0; i < seen.size(); ++i) {
    const double wanted = expected[i] * total;
    if (wanted >= 5) {
      add(static_cast<double>(seen[i]), wanted);
    } else {
      rare_seen += static_cast<double>(seen[i]);
      rare_wanted += wanted;
    }
  }
  add(rare_seen, rare_wanted);
  out.p = chi_square_p(out.statistic, static_cast<double>(out.degrees));
  return out;
}

}  // namespace deepinfer
