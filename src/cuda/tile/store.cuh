// Finished rows to global memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/scheduler.cuh"

namespace qattn::cuda::tile {

/// Factors that turn accumulators into an output row: value = (sum * inverse) * v_scale.
struct RowFinish {
  bool any_key;   // false: the row is 0
  float inverse;  // of the sum of probabilities; NaN where the score factor is not finite
  float v_scale;
};

/// Writes the columns of `row` that this thread holds.
template <int kHeadDim>
__device__ __forceinline__ void store_row(float* out, bool aligned, int head_dim,
                                          const Output<kHeadDim>& sums, int row,
                                          const RowFinish& finish) {
  const int lane_column = static_cast<int>(threadIdx.x % 4) * 4;
#pragma unroll
  for (int block = 0; block < Output<kHeadDim>::kBlocks; ++block) {
    const int first = 16 * block + lane_column;
    float value[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float sum = sums.value[block][row][i];
      value[i] = finish.any_key ? sum * finish.inverse * finish.v_scale : 0.0F;
    }
    if (aligned && first + 4 <= head_dim) {
      *reinterpret_cast<float4*>(out + first) = make_float4(value[0], value[1], value[2], value[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i < head_dim) out[first + i] = value[i];
      }
    }
  }
}

/// Natural-log sum of a row: factor * largest score + ln(sum).
__device__ __forceinline__ float log_sum(const ScoreFactor& factor, float max, float sum) {
  if (sum == 0.0F) return -INFINITY;
  if (!factor.finite) return NAN;
  const double base = factor.natural < 0 ? -kScoreBase : kScoreBase;
  // Scores is +-(base + s), so that max - base is s or -s: the one that |factor| belongs to.
  const double score = static_cast<double>(max) - base;
  return static_cast<float>(fabs(factor.natural) * score + static_cast<double>(logf(sum / kOne)));
}

}  // namespace qattn::cuda::tile
