// The running softmax of a thread's two rows, and how it scales a group of keys.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/ptx/ex2.cuh"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tile/softmax.cuh"

namespace qattn::cuda::sm80 {

/// What a group of keys is scaled by. A score f, read as a float, has the probability
/// 2^fma(f - subtract, exponent, offset), in units of which the largest has 255 * 2^-24.
struct GroupScale {
  float subtract[2];
  float offset[2];
  float weight[2];  // of the group in the sums, per unit of a 16-bit probability
};

/// Sums of the rows so far. Scores are tile::Scores; probabilities of a group are relative to its
/// own largest, sums to the largest of a reference group: the first one, until another outweighs
/// it by more than 2^60. float32 sums have room for that (2^60 * 2^30 * seq_k / 128 < 2^127), so
/// that they are hardly ever rescaled.
///
/// Exponents are one fma where they can be. The rounding of `offset`, up to 2^-24 of
/// exponent * 2^24, is shared by all keys of the group and is part of its weight, so that it
/// cancels; it only must not move the largest probability, log2(255.5 / 255) = 0.0028 away from
/// another integer. Larger factors subtract the largest score first, which is exact.
class RowState {
 public:
  __device__ explicit RowState(const tile::ScoreFactor (&factor)[2])
      : exponent_{tile::exponent_of(factor[0]), tile::exponent_of(factor[1])} {}

  __device__ float exponent(int row) const { return exponent_[row]; }
  __device__ float sum(int row) const { return sum_[row]; }

  /// Whether exponents of the row are one fma.
  __device__ bool folded(int row) const { return exponent_[row] <= kLargestFolded; }

  /// Takes in the largest scores of a group, -infinity where the row sees none of its keys; such a
  /// group gets weight 1 and probabilities of 0. `first` says that it is the group of key 0.
  template <int kHeadDim>
  __device__ __forceinline__ GroupScale update(const float (&largest)[2], bool first,
                                               tile::Output<kHeadDim>& out) {
    GroupScale group;
    float position[2];
    bool outweighed = false;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      position[row] =
          folded(row) ? fmaf(-largest[row], exponent_[row], kLog2Largest) : -largest[row];
      if (largest[row] == -INFINITY) position[row] = reference_[row];
      if (first) reference_[row] = position[row];
      group.subtract[row] = folded(row) ? 0.0F : -position[row];
      group.offset[row] = folded(row) ? position[row] : kLog2Largest;
      group.weight[row] = weight(row, reference_[row] - position[row]);
      outweighed = outweighed || group.weight[row] > kLargestWeight;
    }
    if (__any_sync(0xFFFFFFFFU, outweighed)) rescale(group, position, out);
    return group;
  }

  /// Takes in a group's integer sums of probabilities, below 2^24.
  __device__ void add(const std::int32_t (&sums)[2], const float (&weight)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      sum_[row] = fmaf(static_cast<float>(sums[row]), weight[row], sum_[row]);
    }
  }

  /// Natural log of the sum of the row's exponentials; sum(row) is not 0.
  __device__ float log_sum(int row, const tile::ScoreFactor& factor) const {
    const double base = tile::kScoreBase;
    const double ln2 = 0.69314718055994531;
    const double e = static_cast<double>(exponent_[row]);
    const double c = fabs(factor.natural);
    const double sum = log(static_cast<double>(sum_[row]));
    const double unit = ln2 * (kLog2_255 + 8.0);
    if (!folded(row)) {
      const double sign = factor.natural < 0 ? -1.0 : 1.0;
      const double score = -static_cast<double>(reference_[row]) - sign * base;
      return static_cast<float>(c * score + (sum - unit));
    }
    // The exponent of the largest score of the reference group, with the rounding of its offset.
    const double scaled = kLog2_255 - 24.0 - static_cast<double>(reference_[row]) -
                          (factor.natural < 0 ? -e : e) * base;
    return static_cast<float>(c / e * scaled + (sum - unit));
  }

 private:
  static constexpr double kLog2_255 = 7.99435343685886;
  static constexpr float kLog2Largest = static_cast<float>(kLog2_255 - 24.0);
  static constexpr float kLargestFolded = 0x1p-9F;
  static constexpr float kLargestWeight = 0x1p60F;

  __device__ float weight(int row, float distance) const {
    return ptx::ex2(folded(row) ? distance : distance * exponent_[row]);
  }

  template <int kHeadDim>
  __device__ __forceinline__ void rescale(GroupScale& group, const float (&position)[2],
                                          tile::Output<kHeadDim>& out) {
    float factor[2] = {1.0F, 1.0F};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (group.weight[row] <= kLargestWeight) continue;
      factor[row] = weight(row, position[row] - reference_[row]);
      reference_[row] = position[row];
      group.weight[row] = 1.0F;
      sum_[row] *= factor[row];
    }
    out.rescale(factor);
  }

  float exponent_[2];
  float reference_[2] = {0.0F, 0.0F};  // position of the reference group
  float sum_[2] = {0.0F, 0.0F};
};

}  // namespace qattn::cuda::sm80
