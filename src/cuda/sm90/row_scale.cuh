// From integer scores to exponents of 2.
#pragma once

#include <cstdint>

#include "core/problem.hpp"
#include "cuda/tile/rows.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda::sm90 {

/// Bits of 1.5 * 2^23: added to the bits of a score, |s| <= 2^22, they make the float 12582912 + s.
inline constexpr std::int32_t kScoreBias = 0x4B400000;
inline constexpr float kBiasValue = 12582912.0F;

/// Score of a key that a row does not see: below all others, and minus infinity once biased.
inline constexpr std::int32_t kHidden = static_cast<std::int32_t>(0xFF800000U - 0x4B400000U);

/// How the integer scores of the thread's two rows become exponents: the probability of score s is
/// 2^(f * exponent - offset(reference)) with f = 12582912 + s and a reference near the row's
/// largest score.
///
/// The offset is rounded once and every weight comes from rounded offsets, so that its rounding
/// cancels between numerator and denominator. It moves the largest probability of a group by at
/// most 2^-10 of the exponent while exponent <= 2^-9 and so offset < 2^15, too little to change its
/// integer of 8 bits. Rows of a larger factor take their scores relative to the reference, f = s -
/// reference; rows whose factor is negative negate their scores. Both are rare, and `special` names
/// the warps that have any.
struct RowScale {
  /// log2 of what the reference score becomes: of 255 * 2^-24, which is 255 in the subnormals of
  /// float16.
  static constexpr float kUnit = -16.0056466F;
  static constexpr float kLargestBiased = 0x1p-9F;

  float exponent[2];
  bool negative[2];
  bool relative[2];  // scores are taken relative to the reference before they are scaled
  bool special;      // the same for all threads of a warp

  __device__ RowScale(const AttentionParams& params, const tile::Rows& rows, float k_scale) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const tile::ScoreFactor factor =
          tile::score_factor(params.softmax_scale, params.q.scale[rows.head[row]], k_scale);
      exponent[row] = tile::exponent_of(factor);
      negative[row] = factor.natural < 0;
      relative[row] = exponent[row] > kLargestBiased;
    }
    special =
        __any_sync(0xFFFFFFFFU, negative[0] || negative[1] || relative[0] || relative[1]) != 0;
  }

  __device__ float offset(int row, std::int32_t reference) const {
    return relative[row] ? -kUnit
                         : fmaf(kBiasValue + static_cast<float>(reference), exponent[row], -kUnit);
  }

  /// log2 of the weight of probabilities that were taken against `from` where those against `to`
  /// have weight 1. Never NaN: the exponent is finite and so is the difference of two int32.
  __device__ float distance(int row, std::int32_t from, std::int32_t to) const {
    return relative[row] ? (static_cast<float>(from) - static_cast<float>(to)) * exponent[row]
                         : offset(row, from) - offset(row, to);
  }

  /// Natural logarithm of `sum`, a sum of probabilities that were taken against `reference`,
  /// in units of 2^-24.
  __device__ float log_sum(int row, const tile::ScoreFactor& factor, std::int32_t reference,
                           float sum) const {
    if (sum == 0.0F) return -INFINITY;
    if (!factor.finite) return NAN;
    const double ln2 = 0.69314718055994531;
    const double unit = -24.0;
    const double base =
        relative[row]
            ? fabs(factor.natural) * reference + ln2 * (unit - kUnit)
            : ln2 * (unit + offset(row, reference) -
                     static_cast<double>(kBiasValue) * static_cast<double>(exponent[row]));
    return static_cast<float>(base + static_cast<double>(logf(sum)));
  }
};

}  // namespace qattn::cuda::sm90
