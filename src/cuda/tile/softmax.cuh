// The running softmax of a thread's two rows over groups of keys.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda/ptx/ex2.cuh"
#include "cuda/tile/scores.cuh"

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

/// What a group of keys contributes to the running state of a thread's two rows.
struct GroupScale {
  float max[2];      // of the group; 0 where the row sees none of its keys
  float rescale[2];  // of the state so far
  float weight[2];   // of the group; 0 where the row sees none of its keys
};

/// Largest score seen, as in Scores, and sum of probabilities in units of 1 / kOne of its own.
class Softmax {
 public:
  __device__ Softmax(float exponent0, float exponent1) : exponent_{exponent0, exponent1} {}

  __device__ float exponent(int row) const { return exponent_[row]; }
  __device__ float max(int row) const { return max_[row]; }
  __device__ float sum(int row) const { return sum_[row]; }

  /// Takes in the maxima of a group.
  __device__ GroupScale update(const Scores& s) {
    GroupScale group;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float largest = fmaxf(s.at(0, 2 * row), s.at(0, 2 * row + 1));
#pragma unroll
      for (int n = 1; n < Scores::kTiles; ++n) {
        largest = fmaxf(largest, fmaxf(s.at(n, 2 * row), s.at(n, 2 * row + 1)));
      }
      // The four lanes of a quad share a row.
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
      const float before = max_[row];
      max_[row] = fmaxf(before, largest);
      // -infinity minus -infinity is avoided; with a finite right side it gives weight 0.
      const float reference = finite_or_zero(max_[row]);
      group.rescale[row] = ptx::ex2(exponent_[row] * (before - reference));
      group.weight[row] = ptx::ex2(exponent_[row] * (largest - reference));
      group.max[row] = finite_or_zero(largest);
    }
    return group;
  }

  /// Takes in a group's integer sums of probabilities, at most 128 * 65280 < 2^24.
  __device__ void add(const std::int32_t (&sums)[2], const GroupScale& group) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sum_[row] =
          fmaf(static_cast<float>(sums[row]), group.weight[row], sum_[row] * group.rescale[row]);
    }
  }

 private:
  __device__ static float finite_or_zero(float x) { return x == -INFINITY ? 0.0F : x; }

  float exponent_[2];
  float max_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0.0F, 0.0F};
};

}  // namespace qattn::cuda::tile
