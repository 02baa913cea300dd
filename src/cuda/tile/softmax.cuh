// Factors of scores, units of probabilities.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

namespace qattn::cuda::tile {

/// Probabilities are integers in units of 1 / kOne of the largest of their group. 255 * 256, so
/// that one and two planes of bytes share the unit.
inline constexpr float kOne = 65280.0F;

/// Factor of the integer scores of a row.
struct ScoreFactor {
  double natural;  // clamped to the float32 range
  bool finite;     // false: the row is NaN
};

/// As core::Problem::score_factor(). The product of finite float32 factors cannot leave float64.
__device__ __forceinline__ ScoreFactor score_factor(double softmax_scale, float q_scale,
                                                    float k_scale) {
  const double factor = softmax_scale * static_cast<double>(q_scale) * static_cast<double>(k_scale);
  const double largest = FLT_MAX;
  if (!isfinite(factor)) return {0.0, false};
  return {fmin(fmax(factor, -largest), largest), true};
}

/// Exponent per unit of integer score, base 2. Never 0 or infinite, so that its product with a
/// difference of -infinity is -infinity and with 0 is 0; differences stay below 2^24, so that
/// FLT_MIN is as good as 0.
__device__ __forceinline__ float exponent_of(const ScoreFactor& factor) {
  const double log2e = 1.4426950408889634;
  return static_cast<float>(
      fmax(fmin(fabs(factor.natural) * log2e, static_cast<double>(FLT_MAX)), double{FLT_MIN}));
}

}  // namespace qattn::cuda::tile
