// Integer scores of a warp's 32 keys of a group and all rows of the block, keys times rows: with
// few rows the products are as small as they can be, 16 keys and 8 rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/tile/layout.cuh"

namespace qattn::cuda::decode {

/// With g = lane / 4 and t = lane % 4, entry 2 * h + i of bits[n][m] is key 16 * m + 8 * h + g of
/// the warp's and row 8 * n + 2 * t + i of the block, as a float biased like tile::Scores.
template <int kRowTiles>
struct KeyScores {
  std::int32_t bits[kRowTiles][2][4];

  __device__ float at(int n, int m, int entry) const { return __int_as_float(bits[n][m][entry]); }
};

/// Scores of the 32 keys at `k_rows` with the rows at `q_tile`, both laid out by tile::Layout.
/// base[n][i] holds the bits that the sums of a row start with (tile::score_base_bits()).
template <int kHeadDim, int kRowTiles>
__device__ __forceinline__ void key_scores(KeyScores<kRowTiles>& s, std::uint32_t q_tile,
                                           std::uint32_t k_rows,
                                           const std::int32_t (&base)[kRowTiles][2]) {
  using Layout = tile::Layout<kHeadDim>;
  constexpr int kSteps = kHeadDim / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Matrices of k: keys 0-7 and 8-15 of chunk 0, then of chunk 1. Of q: chunks 0 to 3, which are
  // two steps, of rows 0-7; where one step is left its two chunks come twice, since the next two
  // are another row's or, past the last row, those of a tile that may be on its way.
  const std::uint32_t k_lane = k_rows + Layout::offset(lane % 16, lane / 16);
  const std::uint32_t q_lane =
      q_tile + Layout::offset(lane % 8, lane / 8 % (Layout::kChunks < 4 ? 2 : 4));
#pragma unroll
  for (int step = 0; step < kSteps; step += 2) {
    std::uint32_t q_step = q_lane;
    if (kSteps > 1 && step + 1 == kSteps) q_step = q_tile + Layout::offset(lane % 8, lane / 8 % 2);
    std::uint32_t q[kRowTiles][4];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      ptx::ldmatrix_x4(q[n], Layout::advance(q_step, 2 * step) + n * 8 * kHeadDim);
    }
#pragma unroll
    for (int odd = 0; odd < 2 && step + odd < kSteps; ++odd) {
      const std::uint32_t k_step = Layout::advance(k_lane, 2 * (step + odd));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        std::uint32_t k[4];
        ptx::ldmatrix_x4(k, k_step + m * 16 * kHeadDim);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          const std::int32_t start[4] = {base[n][0], base[n][1], base[n][0], base[n][1]};
          ptx::mma_m16n8k32_s8_s8(s.bits[n][m], k, q[n][2 * odd], q[n][2 * odd + 1],
                                  step + odd == 0 ? start : s.bits[n][m]);
        }
      }
    }
  }
}

/// Makes the scores of keys that a row does not see -infinity. `limit[n][i]` is the number of keys
/// that it sees, counted from the warp's first.
template <int kRowTiles>
__device__ __forceinline__ void mask_keys(KeyScores<kRowTiles>& s,
                                          const int (&limit)[kRowTiles][2]) {
  const int lane_key = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int entry = 0; entry < 4; ++entry) {
        if (16 * m + entry / 2 * 8 + lane_key >= limit[n][entry % 2]) {
          s.bits[n][m][entry] = __float_as_int(-INFINITY);
        }
      }
    }
  }
}

}  // namespace qattn::cuda::decode
