// The running softmax of a block's rows. Warps share the maximum of a group through shared memory,
// and after that every warp holds the same state.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/decode/scores.cuh"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/movmatrix.cuh"
#include "cuda/ptx/prmt.cuh"

namespace qattn::cuda::decode {

/// -infinity minus -infinity is avoided; with a finite right side it gives weight 0.
__device__ __forceinline__ float finite_or_zero(float x) { return x == -INFINITY ? 0.0F : x; }

/// What a group of keys contributes to the rows 8 * n + 2 * (lane % 4) + i of a thread.
template <int kRowTiles>
struct GroupWeights {
  float max[kRowTiles][2];      // of the group; 0 where the row sees none of its keys
  float rescale[kRowTiles][2];  // of the state so far
  float weight[kRowTiles][2];   // of the group; 0 where the row sees none of its keys
};

/// Largest score seen, biased as the scores are, and sum of probabilities in units of 1 / kOne of
/// its own, of the same rows.
template <int kRowTiles>
struct RowStates {
  float exponent[kRowTiles][2];  // per unit of integer score, base 2
  float max[kRowTiles][2];
  float sum[kRowTiles][2];
};

/// Maxima over the warp's keys to `maxima`, an entry for every row.
template <int kRowTiles>
__device__ __forceinline__ void write_maxima(float* maxima, const KeyScores<kRowTiles>& s) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    float largest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      largest[i] =
          fmaxf(fmaxf(s.at(n, 0, i), s.at(n, 0, 2 + i)), fmaxf(s.at(n, 1, i), s.at(n, 1, 2 + i)));
      // Lanes with the same lane % 4 share a row.
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        largest[i] = fmaxf(largest[i], __shfl_xor_sync(0xFFFFFFFFU, largest[i], lanes));
      }
    }
    const unsigned lane = threadIdx.x % 32;
    if (lane < 4) {
      reinterpret_cast<float2*>(maxima)[4 * n + lane] = make_float2(largest[0], largest[1]);
    }
  }
}

/// Takes in the maxima that kWarps warps have written side by side.
template <int kWarps, int kRowTiles>
__device__ __forceinline__ void update(RowStates<kRowTiles>& state, GroupWeights<kRowTiles>& group,
                                       const float* maxima) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float2 of_warp = reinterpret_cast<const float2*>(
          maxima)[warp * 4 * kRowTiles + 4 * n + static_cast<int>(threadIdx.x % 4)];
      largest[0] = fmaxf(largest[0], of_warp.x);
      largest[1] = fmaxf(largest[1], of_warp.y);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float before = state.max[n][i];
      state.max[n][i] = fmaxf(before, largest[i]);
      const float reference = finite_or_zero(state.max[n][i]);
      group.rescale[n][i] = ptx::ex2(state.exponent[n][i] * (before - reference));
      group.weight[n][i] = ptx::ex2(state.exponent[n][i] * (largest[i] - reference));
      group.max[n][i] = finite_or_zero(largest[i]);
    }
  }
}

/// round(kOne * 2^(exponent * (score - max))) in the low 16 bits. The difference is an exact
/// integer and is taken before it is scaled. Adding 1.5 * 2^23 rounds to an integer, ties to even.
__device__ __forceinline__ std::uint32_t probability16(float score, float max, float exponent) {
  const float log2_one = 15.9943534F;  // log2(65280)
  return __float_as_uint(ptx::ex2(fmaf(score - max, exponent, log2_one)) + 12582912.0F);
}

/// Probabilities of 32 keys and 8 rows as the B operands of m16n8k32: a plane of their high and one
/// of their low bytes, two registers each. Logical key 4t + j (j < 4, t = lane % 4) is key 2t + j
/// for j < 2 and key 8 + 2t + j - 2 for the others, and logical keys 16 to 31 the same of the next
/// 16. V follows the same order (products.cuh).
struct alignas(16) ProbabilityOperand {
  std::uint32_t high[2];
  std::uint32_t low[2];
};

/// Quantises the warp's scores against the maxima of the group: to `operands`, one of every thread
/// and 8 rows.
template <int kRowTiles>
__device__ __forceinline__ void write_probabilities(ProbabilityOperand* operands,
                                                    const KeyScores<kRowTiles>& s,
                                                    const RowStates<kRowTiles>& state,
                                                    const GroupWeights<kRowTiles>& group) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    // Of keys 8 * x to 8 * x + 7: row lane / 4, keys 2 * (lane % 4) and the next, 16 bits each.
    std::uint32_t p[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      std::uint32_t of_row[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        of_row[i] =
            probability16(s.at(n, x / 2, x % 2 * 2 + i), group.max[n][i], state.exponent[n][i]);
      }
      p[x] = ptx::movmatrix_trans(ptx::prmt(of_row[0], of_row[1], 0x5410));
    }
    ProbabilityOperand operand;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      operand.high[half] = ptx::prmt(p[2 * half], p[2 * half + 1], 0x7531);
      operand.low[half] = ptx::prmt(p[2 * half], p[2 * half + 1], 0x6420);
    }
    operands[32 * n + threadIdx.x % 32] = operand;
  }
}

}  // namespace qattn::cuda::decode
