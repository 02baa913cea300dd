// V from how it lies in memory to how the second product reads it.
#pragma once

#include <cstdint>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm90/layout.cuh"

namespace qattn::cuda::sm90 {

/// V for products of bytes, which sum along rows only: row 16b + 8o + i is column 16b + 2i + o of V
/// (o < 2, i < 8), its bytes the keys in the order of Bytes (bytes.cuh). So a thread's sums
/// of tiles 2b and 2b + 1 are its columns of block b in tile::Output.
template <int kHeadDim, int kKeys>
using TransposedV = Tile<kKeys, kHeadDim>;

/// Transposes 32 keys from `first_key` and the columns of kChunks chunks from `first_chunk` on.
/// ldmatrix transposes pairs of bytes, two neighbouring columns; prmt separates them. No bank
/// conflicts: even columns of 16 come before the odd ones.
template <int kHeadDim, int kKeys, int kChunks>
__device__ __forceinline__ void transpose_values(std::uint32_t to, std::uint32_t from,
                                                 int first_key, int first_chunk) {
  using From = Tile<kHeadDim, kKeys>;
  using To = TransposedV<kHeadDim, kKeys>;
  constexpr int kBatch = kChunks % 4 == 0 ? 4 : 2;  // loads in flight
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::uint32_t from_lane = from + From::offset(first_key + lane, first_chunk);
  // Matrices of the result: even columns of the first and second 16 keys, then odd columns.
  const std::uint32_t to_lane =
      to + To::offset(16 * first_chunk + lane / 16 * 8 + lane % 8, first_key / 16 + lane / 8 % 2);
#pragma unroll
  for (int first = 0; first < kChunks; first += kBatch) {
    std::uint32_t pairs[kBatch][4];  // keys 0-7, 8-15, 16-23, 24-31
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      ptx::ldmatrix_x4_trans(pairs[i], From::advance(from_lane, first + i));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      std::uint32_t columns[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        columns[half] = ptx::prmt(pairs[i][2 * half], pairs[i][2 * half + 1], 0x6420);
        columns[2 + half] = ptx::prmt(pairs[i][2 * half], pairs[i][2 * half + 1], 0x7531);
      }
      ptx::stmatrix_x4(to_lane + (first + i) * 16 * To::kSpanBytes, columns);
    }
  }
}

}  // namespace qattn::cuda::sm90
