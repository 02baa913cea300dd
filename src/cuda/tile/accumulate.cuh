// Output accumulators: integer products with V over a group of keys, drained into float32.
#pragma once

#include <cstdint>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/tile/layout.cuh"
#include "cuda/tile/quantize.cuh"

namespace qattn::cuda::tile {

/// Running output of the thread's two rows: entry i of block b is column 16 * b + 4 * (lane % 4) +
/// i.
template <int kHeadDim>
struct Output {
  static constexpr int kBlocks = kHeadDim / 16;
  float value[kBlocks][2][4] = {};

  /// Rescales the rows to a new maximum. Skipped where it would multiply by 1.
  __device__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(0xFFFFFFFFU, factor[0] != 1.0F || factor[1] != 1.0F)) return;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 8; ++i) value[block][i / 4][i % 4] *= factor[i / 4];
    }
  }
};

/// B operands of 32 keys and 16 columns: [0] the even columns, [1] the odd ones.
struct VOperand {
  std::uint32_t b[2][2];
};

/// Reads V as it lies, key by key. ldmatrix transposes pairs of bytes, two neighbouring columns;
/// prmt separates them. The key order is that of Plane.
__device__ __forceinline__ VOperand load_v(std::uint32_t address) {
  std::uint32_t pairs[4];  // keys 0-7, 8-15, 16-23, 24-31
  ptx::ldmatrix_x4_trans(pairs, address);
  VOperand v;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    v.b[0][half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x6420);
    v.b[1][half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x7531);
  }
  return v;
}

/// out = out + weight * (256 * high + low) * V; with kPlanes == 1 there is no low plane. The sums
/// stay below 65280 * 128 * 128 < 2^30.
template <int kPlanes, int kHeadDim>
__device__ __forceinline__ void accumulate(Output<kHeadDim>& out, const Plane& high,
                                           const Plane& low, std::uint32_t v_tile,
                                           const GroupScale& group) {
  using Layout = tile::Layout<kHeadDim>;
  const std::uint32_t v_lane = v_tile + Layout::offset(static_cast<int>(threadIdx.x % 32), 0);
#pragma unroll
  for (int block = 0; block < Output<kHeadDim>::kBlocks; ++block) {
    std::int32_t sum_high[2][4] = {};
    std::int32_t sum_low[2][4] = {};
    const std::uint32_t v_block = Layout::advance(v_lane, block);
#pragma unroll
    for (int step = 0; step < Plane::kSteps; ++step) {
      const VOperand v = load_v(v_block + step * 32 * kHeadDim);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        ptx::mma_m16n8k32_u8_s8(sum_high[odd], high.a + 4 * step, v.b[odd][0], v.b[odd][1]);
        if constexpr (kPlanes == 2) {
          ptx::mma_m16n8k32_u8_s8(sum_low[odd], low.a + 4 * step, v.b[odd][0], v.b[odd][1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Column 4t + c of row r comes from accumulator 2r + c / 2 of the even or odd columns.
      const int row = i / 4;
      const int column = i % 4;
      const int entry = 2 * row + column / 2;
      float& value = out.value[block][row][column];
      if constexpr (kPlanes == 2) {
        const std::int32_t sum = 256 * sum_high[column % 2][entry] + sum_low[column % 2][entry];
        value = fmaf(static_cast<float>(sum), group.weight[row], value);
      } else {
        value = fmaf(static_cast<float>(sum_high[column % 2][entry]), 256.0F * group.weight[row],
                     value);
      }
    }
  }
}

}  // namespace qattn::cuda::tile
