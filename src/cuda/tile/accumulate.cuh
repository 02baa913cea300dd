// Output accumulators, and V as operands of products.
#pragma once

#include <cstdint>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/prmt.cuh"

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

}  // namespace qattn::cuda::tile
