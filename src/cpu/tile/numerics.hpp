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
// Added to an integer in [-126, 127], it gives bits that shifted left by 23 are 2^integer.
constexpr float kExponent = kInteger + 127.0F;

// Hidden keys have this in place of a score. Its exponent is -infinity, or NaN where the factor is
// 0 or the row sees no key of the group; the clamp makes both kLowestExponent, whose probability is
// 0.
constexpr float kHidden = -__builtin_inff();

// The sum and the output of a state count this for a probability of 1.
constexpr float kUnit = 65280.0F;

// 8-bit probabilities of a group that add up to less have lost too much to rounding.
constexpr float kLeastBytes = 1024.0F;

// Exponents are kept less 1, so that they are at most -1 and multiples of 2^-23: the fraction above
// the next lower integer is then exact. The polynomials make up for it by a factor of 2.
constexpr float kLess = -1.0F;
// Probabilities' exponents (less 1) are clamped here: the largest times 2^-40 rounds to 0.
constexpr float kLowestExponent = -41.0F;
// Weights whose exponent (less 1) is below this are 0, so no weight is subnormal.
constexpr float kLowestWeight = -126.0F;

// An exponent as floor(x) + fraction.
template <class Lanes>
struct SplitExponent {
  typename Lanes::Floats fraction;  // in [0, 1)
  typename Lanes::Floats power;     // 2^floor(x), or x itself for lanes that multiply by 2^floor(x)
};

// For x in [-126, -1].
template <class Lanes>
inline SplitExponent<Lanes> split_exponent(typename Lanes::Floats x) {
  if constexpr (Lanes::kScalesByFloor) {
    return {Lanes::fraction(x), x};
  } else {
    const auto n = Lanes::floor(x);
    const auto power = Lanes::as_ints(n + Lanes::splat(kExponent));
    return {x - n, Lanes::as_floats(Lanes::template shift_left<23>(power))};
  }
}

// p * 2^floor(x): exact where it is not subnormal.
template <class Lanes>
inline typename Lanes::Floats scale(typename Lanes::Floats p, const SplitExponent<Lanes>& x) {
  if constexpr (Lanes::kScalesByFloor) {
    return Lanes::scale_by_floor(p, x.power);
  } else {
    return p * x.power;
  }
}

// p * 2^floor(x) + addend in one rounding.
template <class Lanes>
inline typename Lanes::Floats scale_and_add(typename Lanes::Floats p, const SplitExponent<Lanes>& x,
                                            typename Lanes::Floats addend) {
  if constexpr (Lanes::kScalesByFloor) {
    return Lanes::scale_by_floor(p, x.power) + addend;
  } else {
    return Lanes::fma(p, x.power, addend);
  }
}

// Polynomials for 2^f on [0, 1]: least maximum of the relative error with the constant term pinned,
// so that the largest probability and the weight of the maximum are exact.

// 2 * 255 * 2^f; relative error below 2.06e-3.
template <class Lanes>
inline typename Lanes::Floats exp2_times_510(typename Lanes::Floats f) {
  auto p = Lanes::fma(Lanes::splat(0x1.5087f4p+7F), f, Lanes::splat(0x1.53a3dcp+8F));
  return Lanes::fma(p, f, Lanes::splat(510.0F));
}

// 2 * 65280 * 2^f; relative error below 3e-6.
template <class Lanes>
inline typename Lanes::Floats exp2_times_130560(typename Lanes::Floats f) {
  auto p = Lanes::fma(Lanes::splat(0x1.b63f3ap+10F), f, Lanes::splat(0x1.aa4c7p+12F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.ec362cp+14F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.6173fp+16F));
  return Lanes::fma(p, f, Lanes::splat(130560.0F));
}

// 2 * 2^f; relative error below 7e-8.
template <class Lanes>
inline typename Lanes::Floats exp2_times_2(typename Lanes::Floats f) {
  auto p = Lanes::fma(Lanes::splat(0x1.c54174p-12F), f, Lanes::splat(0x1.46d64cp-9F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.3d0b92p-6F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.c68912p-4F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.ebfd58p-2F));
  p = Lanes::fma(p, f, Lanes::splat(0x1.62e42cp+0F));
  return Lanes::fma(p, f, Lanes::splat(2.0F));
}

// 2^(difference * factor) for differences that are not positive; exactly 1 for difference 0.
template <class Lanes>
inline typename Lanes::Floats weight(typename Lanes::Floats difference,
                                     typename Lanes::Floats factor) {
  const auto lowest = Lanes::splat(kLowestWeight);
  const auto x = Lanes::fma(difference, factor, Lanes::splat(kLess));
  const auto split = split_exponent<Lanes>(Lanes::max(x, lowest));
  return Lanes::select(x < lowest, Lanes::splat(0.0F),
                       scale<Lanes>(exp2_times_2<Lanes>(split.fraction), split));
}

}  // namespace
}  // namespace qattn::cpu
