// float64 rounded to the 16-bit floating-point types, once.
#pragma once

#include <cmath>
#include <cstdint>

namespace qattn::reference {

/// Bits of the nearest value of a type with a sign, `exponent_bits` and the rest fraction; ties to
/// even, past the largest value to infinity. Assumes the rounding mode to nearest.
inline std::uint16_t short_float_bits(double x, int exponent_bits) noexcept {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int infinity = ((1 << exponent_bits) - 1) << fraction_bits;
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  if (std::isnan(x)) return 0x7FFF;
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  if (x == 0) return sign;
  int exponent = 0;
  std::frexp(x, &exponent);
  // x lies in [2^exponent, 2^(exponent + 1)); subnormals are as far apart as the least normals.
  exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(std::fabs(x), fraction_bits - exponent)));
  // The leading 1 of a normal value is among the steps and completes the exponent field.
  const int bits = ((exponent + bias - 1) << fraction_bits) + steps;
  return static_cast<std::uint16_t>(sign | (bits < infinity ? bits : infinity));
}

inline std::uint16_t float16_bits(double x) noexcept { return short_float_bits(x, 5); }
inline std::uint16_t bfloat16_bits(double x) noexcept { return short_float_bits(x, 8); }

}  // namespace qattn::reference
