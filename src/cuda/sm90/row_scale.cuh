// From integer scores to exponents of 2.
#pragma once

#include <climits>
#include <cstdint>

#include "core/problem.hpp"
#include "cuda/tile/rows.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda::sm90 {

/// How the integer scores of the thread's two rows become exponents: the probability of score s is
/// 2^(s * exponent - offset(reference)) with reference a score near the row's largest.
///
/// The offset is rounded once and every weight comes from rounded offsets, so that its rounding
/// cancels between numerator and denominator. It moves the largest probability of a tile by less
/// than 2^-11 of the exponent while |offset| is below 2^13, too little to change its integer of 8
/// bits. Rows whose factor could exceed that subtract the reference from the integer scores
/// instead; rows whose factor is negative negate them. Both are rare, and `special` names the warps
/// that have any.
template <int kHeadDim>
struct RowScale {
  /// log2 of what the reference score becomes: of 255 * 2^-24, which is 255 in the subnormals of
  /// float16.
  static constexpr float kUnit = -16.0056466F;
  static constexpr float kLargestOffset = 8000.0F;  // and 32 more, for 16 bits, stay below 2^13
  static constexpr float kLargestScore = 16384.0F * kHeadDim;

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
      relative[row] = exponent[row] > kLargestOffset / kLargestScore;
    }
    special =
        __any_sync(0xFFFFFFFFU, negative[0] || negative[1] || relative[0] || relative[1]) != 0;
  }

  __device__ float offset(int row, std::int32_t reference) const {
    return relative[row] ? -kUnit : fmaf(static_cast<float>(reference), exponent[row], -kUnit);
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
    const double base = relative[row] ? fabs(factor.natural) * reference + ln2 * (unit - kUnit)
                                      : ln2 * (unit + offset(row, reference));
    return static_cast<float>(base + static_cast<double>(logf(sum)));
  }
};

/// Score of a key that a row does not see, below all others.
inline constexpr std::int32_t kHidden = INT_MIN;

}  // namespace qattn::cuda::sm90
