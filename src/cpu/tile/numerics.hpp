// The float part of the numerics: the exponentials of docs/numerics.md, on the verbs of a `Lanes`
// policy (xsimd_lanes.hpp, scalar.cpp). Every operation here is part of the specification.
#pragma once

#include <cstdint>

namespace qattn::cpu {
namespace {

// 1.5 * 2^23: adding it to a float of magnitude at most 2^22 rounds to an integer (nearest even)
// whose bits are the low mantissa bits.
constexpr float kInteger = 12582912.0F;
constexpr std::int32_t kIntegerBits = 0x4B400000;
// As kInteger, plus the exponent bias: shifting the bits left by 23 gives 2^integer.
constexpr float kExponent = kInteger + 127.0F;

// Hidden keys have this in place of a score. No score looks like it: kInteger + s is at least 2^23.
constexpr float kHidden = 0.0F;

// Exponents are clamped here: the largest probability times 2^-40 rounds to 0.
constexpr float kLowestExponent = -40.0F;
// Weights below 2^-126 are 0, so no weight is subnormal.
constexpr float kLowestWeight = -126.0F;

// 2^f = scale * power for an argument of 2^(exponent factor * difference of scores).
template <class Lanes>
struct SplitExponent {
  typename Lanes::Floats fraction;  // in [-0.5, 0.5]
  typename Lanes::Floats scale;     // 2^n
};

template <class Lanes>
inline SplitExponent<Lanes> split_exponent(typename Lanes::Floats difference,
                                           typename Lanes::Floats factor) {
  const auto z = Lanes::fma(difference, factor, Lanes::splat(kExponent));
  const auto n = z - Lanes::splat(kExponent);
  return {Lanes::fms(difference, factor, n),
          Lanes::as_floats(Lanes::template shift_left<23>(Lanes::as_ints(z)))};
}

// Polynomials for 2^f on [-0.5, 0.5]: least maximum of the relative error with the constant term
// pinned, so that the largest probability and the weight of the maximum are exact.

// 255 * 2^f; relative error below 1.97e-3.
template <class Lanes>
inline typename Lanes::Floats exp2_times_255(typename Lanes::Floats f) {
  auto p = Lanes::fma(Lanes::splat(0x1.e95298p+5F), f, Lanes::splat(0x1.668014p+7F));
  return Lanes::fma(p, f, Lanes::splat(255.0F));
}

// 65280 * 2^f; relative error below 2.9e-6.
template <class Lanes>
inline typename Lanes::Floats exp2_times_65280(typename Lanes::Floats f) {
  auto p = Lanes::fma(Lanes::splat(0x1.38c8cap+9F), f, Lanes::splat(0x1.c83248p+11F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.ea1774p+13F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.617e4cp+15F));
  return Lanes::fma(p, f, Lanes::splat(65280.0F));
}

// 2^(difference * factor) for differences that are not positive; relative error below 8e-8, and
// exactly 1 for difference 0.
template <class Lanes>
inline typename Lanes::Floats weight(typename Lanes::Floats difference,
                                     typename Lanes::Floats factor) {
  const auto e = split_exponent<Lanes>(difference, factor);
  auto p = Lanes::fma(Lanes::splat(0x1.41fbbcp-13F), e.fraction, Lanes::splat(0x1.5f3e52p-10F));
  p = Lanes::fma(p, e.fraction, Lanes::splat(0x1.3b2d4cp-7F));
  p = Lanes::fma(p, e.fraction, Lanes::splat(0x1.c6aee8p-5F));
  p = Lanes::fma(p, e.fraction, Lanes::splat(0x1.ebfbdcp-3F));
  p = Lanes::fma(p, e.fraction, Lanes::splat(0x1.62e43p-1F));
  p = Lanes::fma(p, e.fraction, Lanes::splat(1.0F));
  // Where the exponent is out of range the split is meaningless (it may be NaN) and not selected.
  const auto vanishes = difference * factor < Lanes::splat(kLowestWeight);
  return Lanes::select(vanishes, Lanes::splat(0.0F), p * e.scale);
}

}  // namespace
}  // namespace qattn::cpu
