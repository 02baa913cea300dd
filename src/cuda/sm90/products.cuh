// The two matrix products of a warpgroup.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/layout.cuh"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/quantize.cuh"
#include "cuda/tile/scores.cuh"

namespace qattn::cuda::sm90 {

/// V as the second product reads it: row 16b + 8o + i is column 16b + 2i + o of V (o < 2, i < 8),
/// its bytes the keys in the order of tile::Plane. So a thread's sums of tiles 2b and 2b + 1 are
/// its columns of block b in tile::Output.
template <int kHeadDim>
using TransposedV = Tile<kGroupKeys, kHeadDim>;

/// Scores of the warpgroup's 64 rows, at shared address `q_tile`, with a tile of keys.
template <int kHeadDim>
__device__ __forceinline__ void scores(tile::Scores& s, std::uint32_t q_tile, std::uint32_t k_tile,
                                       const std::int32_t (&base)[2]) {
#pragma unroll
  for (int n = 0; n < tile::Scores::kTiles; ++n) {
#pragma unroll
    for (int entry = 0; entry < 4; ++entry) s.bits[n][entry] = base[entry / 2];
  }
  ptx::wgmma_ready(s.bits);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < kHeadDim / 32; ++step) {
    ptx::wgmma_s8_s8(s.bits, Tile<kHeadDim, 64>::descriptor(q_tile, 0, step),
                     Tile<kHeadDim, kGroupKeys>::descriptor(k_tile, 0, step));
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_ready(s.bits);
}

/// sum (+)= plane * V over the kColumns rows of V that `v_rows` starts with.
template <int kHeadDim, int kTiles>
__device__ __forceinline__ void multiply(std::int32_t (&sum)[kTiles][4], const tile::Plane& plane,
                                         std::uint32_t v_tile, int first_column, bool add) {
  ptx::wgmma_ready(sum);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < tile::Plane::kSteps; ++step) {
    ptx::wgmma_u8_s8(sum, plane.a + 4 * step,
                     TransposedV<kHeadDim>::descriptor(v_tile, first_column, step),
                     add || step > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_ready(sum);
}

/// out = out + weight * (256 * high + low) * V; with kPlanes == 1 there is no low plane. The sums
/// stay below 65280 * 128 * 128 < 2^30. kColumns columns at a time.
template <int kPlanes, int kColumns, int kHeadDim>
__device__ __forceinline__ void accumulate(tile::Output<kHeadDim>& out, const tile::Plane& high,
                                           const tile::Plane& low, std::uint32_t v_tile,
                                           const tile::GroupScale& group) {
  constexpr int kTiles = kColumns / 8;
  static_assert(kHeadDim % kColumns == 0);
  float weight[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    weight[row] = kPlanes == 2 ? group.weight[row] : 256.0F * group.weight[row];
  }
#pragma unroll
  for (int first = 0; first < kHeadDim; first += kColumns) {
    std::int32_t sum[kTiles][4];
    multiply<kHeadDim>(sum, high, v_tile, first, false);
    if constexpr (kPlanes == 2) {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) sum[i / 4][i % 4] *= 256;
      multiply<kHeadDim>(sum, low, v_tile, first, true);
    }
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      // As in tile::accumulate(): column 4t + c of row r comes from entry 2r + c / 2 of the even or
      // odd columns.
      const int block = first / 16 + i / 8;
      const int row = i % 8 / 4;
      const int column = i % 4;
      const std::int32_t value = sum[i / 8 * 2 + column % 2][2 * row + column / 2];
      out.value[block][row][column] =
          fmaf(static_cast<float>(value), weight[row], out.value[block][row][column]);
    }
  }
}

}  // namespace qattn::cuda::sm90
