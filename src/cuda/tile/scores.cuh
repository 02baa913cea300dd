// Integer scores of 16 queries and 128 keys in the registers of a warp.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/tile/layout.cuh"

namespace qattn::cuda::tile {

/// Sums start at the bits of +-12582912 (1.5 * 2^23): read as a float, base + s is then
/// +-(12582912 + s), exactly, for |s| <= 2^22, which is 128 * 128 * 256. So no score is converted,
/// and for rows whose factor is negative the sign bit makes the largest float the largest score.
inline constexpr float kScoreBase = 12582912.0F;

/// Bits that the sums of a row start with.
__device__ __forceinline__ std::int32_t score_base_bits(bool negative_factor) {
  return __float_as_int(negative_factor ? -kScoreBase : kScoreBase);
}

/// Scores of the two rows of this thread (lane / 4 and 8 + lane / 4 of the warp's 16): entry
/// 2 * row + i of tile n is key 8 * n + 2 * (lane % 4) + i.
struct Scores {
  static constexpr int kTiles = kGroupKeys / 8;
  std::int32_t bits[kTiles][4];

  __device__ float at(int tile, int entry) const { return __int_as_float(bits[tile][entry]); }
};

/// Scores of the warp's rows of the q tile (at shared address `q_rows`) with a whole K tile.
template <int kHeadDim>
__device__ __forceinline__ void scores(Scores& s, std::uint32_t q_rows, std::uint32_t k_tile,
                                       const std::int32_t (&base)[2]) {
  using Layout = tile::Layout<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Matrices of q: rows 0-7 and 8-15 of chunk 0, then of chunk 1. Of k: chunks 0 and 1 of keys 0-7,
  // then of keys 8-15.
  const std::uint32_t q_lane = q_rows + Layout::offset(lane % 16, lane / 16);
  const std::uint32_t k_lane = k_tile + Layout::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const std::int32_t start[4] = {base[0], base[0], base[1], base[1]};
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    std::uint32_t q[4];
    ptx::ldmatrix_x4(q, Layout::advance(q_lane, 2 * step));
    const std::uint32_t k_step = Layout::advance(k_lane, 2 * step);
#pragma unroll
    for (int n = 0; n < Scores::kTiles; n += 2) {
      std::uint32_t k[4];
      ptx::ldmatrix_x4(k, k_step + n * 8 * kHeadDim);
      ptx::mma_m16n8k32_s8_s8(s.bits[n], q, k[0], k[1], step == 0 ? start : s.bits[n]);
      ptx::mma_m16n8k32_s8_s8(s.bits[n + 1], q, k[2], k[3], step == 0 ? start : s.bits[n + 1]);
    }
  }
}

/// Makes the scores of keys that a row does not see -infinity. `limit[row]` is the number of keys
/// that it sees, counted from the first key of the tile.
__device__ __forceinline__ void mask_scores(Scores& s, const int (&limit)[2]) {
  const int lane_key = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < Scores::kTiles; ++n) {
#pragma unroll
    for (int entry = 0; entry < 4; ++entry) {
      const int key = 8 * n + lane_key + entry % 2;
      if (key >= limit[entry / 2]) s.bits[n][entry] = __float_as_int(-INFINITY);
    }
  }
}

}  // namespace qattn::cuda::tile
