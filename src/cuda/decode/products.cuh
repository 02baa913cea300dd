// Products of a group's probabilities with V, columns times rows; drained into float32.
#pragma once

#include <cstdint>

#include "cuda/decode/ring.cuh"
#include "cuda/decode/softmax.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma_s8.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/tile/layout.cuh"

namespace qattn::cuda::decode {

/// Running output of a thread: entry 2 * c + i of value[b][n] is column 2 * (lane / 4) + c of the
/// warp's block b of 16 columns and row 8 * n + 2 * (lane % 4) + i.
template <int kWarpBlocks, int kRowTiles>
struct SplitOutput {
  float value[kWarpBlocks][kRowTiles][4] = {};
};

/// A operand of 16 columns and 32 keys: rows 0 to 7 are the even columns, 8 to 15 the odd ones.
/// `address` is that of 16 columns of key lane. ldmatrix transposes pairs of bytes, two
/// neighbouring columns; prmt separates them. The key order is that of ProbabilityOperand.
__device__ __forceinline__ void load_columns(std::uint32_t (&a)[4], std::uint32_t address) {
  std::uint32_t pairs[4];  // keys 0-7, 8-15, 16-23, 24-31
  ptx::ldmatrix_x4_trans(pairs, address);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    a[2 * half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x6420);
    a[2 * half + 1] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x7531);
  }
}

/// sum += a * p, the planes apart.
template <int kRowTiles>
__device__ __forceinline__ void multiply(std::int32_t (&high)[kRowTiles][4],
                                         std::int32_t (&low)[kRowTiles][4],
                                         const std::uint32_t (&a)[4],
                                         const ProbabilityOperand (&p)[kRowTiles]) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    ptx::mma_m16n8k32_s8_u8(high[n], a, p[n].high[0], p[n].high[1]);
    ptx::mma_m16n8k32_s8_u8(low[n], a, p[n].low[0], p[n].low[1]);
  }
}

/// The operands of 32 keys, as write_probabilities() left them.
template <int kRowTiles>
__device__ __forceinline__ void read_probabilities(ProbabilityOperand (&p)[kRowTiles],
                                                   const ProbabilityOperand* operands, int step) {
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    p[n] = operands[32 * (step * kRowTiles + n) + static_cast<int>(threadIdx.x % 32)];
  }
}

/// sum = sum * rescale + weight * (sum of the group's probabilities), a product with ones. At most
/// 128 * 65280 < 2^24.
template <int kRowTiles>
__device__ __forceinline__ void add_sums(RowStates<kRowTiles>& state,
                                         const GroupWeights<kRowTiles>& group,
                                         const ProbabilityOperand* operands) {
  const std::uint32_t ones[4] = {0x01010101U, 0x01010101U, 0x01010101U, 0x01010101U};
  std::int32_t high[kRowTiles][4] = {};
  std::int32_t low[kRowTiles][4] = {};
#pragma unroll
  for (int step = 0; step < kGroupKeys / 32; ++step) {
    ProbabilityOperand p[kRowTiles];
    read_probabilities(p, operands, step);
    multiply(high, low, ones, p);
  }
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t sum = 256 * high[n][i] + low[n][i];
      state.sum[n][i] =
          fmaf(static_cast<float>(sum), group.weight[n][i], state.sum[n][i] * group.rescale[n][i]);
    }
  }
}

/// out = out * rescale + weight * (256 * high + low) * V for the warp's columns, which start with
/// block `first_block`. The sums stay below 65280 * 128 * 128 < 2^30.
template <int kHeadDim, int kWarpBlocks, int kRowTiles>
__device__ __forceinline__ void accumulate(SplitOutput<kWarpBlocks, kRowTiles>& out,
                                           const GroupWeights<kRowTiles>& group,
                                           const ProbabilityOperand* operands,
                                           const GroupTile& v_tile, int first_block) {
  using Layout = tile::Layout<kHeadDim>;
  const auto v_lane =
      static_cast<std::uint32_t>(Layout::offset(static_cast<int>(threadIdx.x % 32), 0));
#pragma unroll
  for (int block = 0; block < kWarpBlocks; ++block) {
    std::int32_t high[kRowTiles][4] = {};
    std::int32_t low[kRowTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kGroupKeys / 32; ++step) {
      std::uint32_t a[4];
      load_columns(a,
                   Layout::advance(v_tile.rows<kHeadDim>(32 * step) + v_lane, first_block + block));
      ProbabilityOperand p[kRowTiles];
      read_probabilities(p, operands, step);
      multiply(high, low, a, p);
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int entry = 0; entry < 4; ++entry) {
        const int i = entry % 2;
        float& value = out.value[block][n][entry];
        const std::int32_t sum = 256 * high[n][entry] + low[n][entry];
        value = fmaf(static_cast<float>(sum), group.weight[n][i], value * group.rescale[n][i]);
      }
    }
  }
}

}  // namespace qattn::cuda::decode
