// exp and log whose bits are the same on every machine: only additions, multiplications and bit operations, in a fixed
// order. libm's differ between versions and processors. Compile with -ffp-contract=off.
#pragma once

#include <bit>
#include <cstdint>

namespace millstream {

// e^x for x in [-87, 88], clamped outside; NaN gives e^-87. Error below 2 units in the last place, exact at 0.
// Polynomial of Cephes' expf (S. Moshier): x = n ln 2 + r, e^x = 2^n (1 + r + r^2 P(r)), |r| <= ln 2 / 2.
inline float exp_float(float x) noexcept {
  x = x > -87.0f ? x : -87.0f;
  x = x < 88.0f ? x : 88.0f;
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low mantissa bits
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = (p * (r * r) + r) + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  return e * std::bit_cast<float>(exponent);
}

// Natural logarithm of a positive normal number; error near 1 unit in the last place.
// x = 2^n m with m in [sqrt 1/2, sqrt 2); ln m = 2 artanh((m - 1) / (m + 1)) as a Taylor series.
inline double log_positive(double x) noexcept {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kHalfRootBits = 0x3fe6a09e667f3bcdu;  // sqrt 1/2
  const int64_t n = static_cast<int64_t>(bits - kHalfRootBits) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(n) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 1.0 / 21.0;
  for (int odd = 19; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
  return 2.0 * s * series + static_cast<double>(n) * 0.693147180559945309417;
}

}  // namespace millstream
