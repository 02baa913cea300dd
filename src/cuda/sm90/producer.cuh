// The producer warpgroup: brings K and V into shared memory, transposes V.
#pragma once

#include <cstdint>

#include "cuda/ptx/fence_proxy.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/sm90.hpp"
#include "cuda/sm90/load.cuh"
#include "cuda/sm90/shared.cuh"

namespace qattn::cuda::sm90 {

/// Transposes keys 32 * warp to 32 * warp + 31 of a tile of V as it lies in global memory into
/// TransposedV. ldmatrix transposes pairs of bytes, two neighbouring columns; prmt separates them.
template <int kHeadDim>
__device__ __forceinline__ void transpose_v(std::uint32_t to, std::uint32_t from, int warp) {
  using From = Tile<kHeadDim, kGroupKeys>;
  using To = TransposedV<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  // Matrices of the result: even columns of the first and second 16 keys, then odd columns.
  const std::uint32_t to_lane = to + To::offset(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
#pragma unroll
  for (int block = 0; block < kHeadDim / 16; ++block) {
    std::uint32_t pairs[4];  // keys 0-7, 8-15, 16-23, 24-31
    ptx::ldmatrix_x4_trans(pairs, from + From::offset(32 * warp + lane, block));
    std::uint32_t columns[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      columns[half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x6420);
      columns[2 + half] = ptx::prmt(pairs[2 * half], pairs[2 * half + 1], 0x7531);
    }
    ptx::stmatrix_x4(to_lane + block * 16 * kGroupKeys, columns);
  }
}

/// Delivers `tiles` tiles of K and V of a (batch, kv head) pair. Every warp handles its own 32 keys
/// of each tile, so that the warps need not wait for each other.
template <int kHeadDim>
__device__ __forceinline__ void produce(const AttentionParams& params, Shared<kHeadDim>& shared,
                                        std::int64_t batch, std::int64_t head_kv, int tiles) {
  using Policy = Sm90Policy<kHeadDim>;
  using KvTile = Tile<kHeadDim, kGroupKeys>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const auto load = [&](const AttentionInput& input, int index, std::uint32_t tile) {
    const std::int64_t stride = input.seq_stride;
    const std::int64_t first_key = static_cast<std::int64_t>(index) * kGroupKeys;
    const std::int8_t* from =
        input.data + batch * input.batch_stride + head_kv * input.head_stride + first_key * stride;
    load_rows<KvTile, 32, 32>(tile, lane, 32 * warp, params.seq_k - static_cast<int>(first_key),
                              params.head_dim, input.alignment,
                              [from, stride](int row) { return from + row * stride; });
  };

  Position<Policy::kKeySlots> k_fill;
  Position<Policy::kKeySlots> k_ready;
  Position<Policy::kValueSlots> v;
  // Every tile is two groups of copies, K and V; past the end they are empty, since waits count.
  const auto load_next = [&](int index) {
    if (index < tiles) {
      ptx::mbarrier_wait(&shared.k_ring().empty[k_fill.slot], k_fill.parity ^ 1U);
      load(params.k, index, shared.k_tile(k_fill.slot));
      k_fill.advance();
    }
    ptx::cp_async_commit();
    if (index < tiles) load(params.v, index, shared.raw_v_tile(index % 2));
    ptx::cp_async_commit();
  };
  load_next(0);
#pragma unroll 1
  for (int index = 0; index < tiles; ++index) {
    load_next(index + 1);
    ptx::cp_async_wait<3>();
    ptx::fence_proxy_async();
    arrive_warp(&shared.k_ring().full[k_ready.slot]);
    k_ready.advance();

    ptx::cp_async_wait<2>();
    ptx::mbarrier_wait(&shared.v_ring().empty[v.slot], v.parity ^ 1U);
    __syncwarp();
    transpose_v<kHeadDim>(shared.v_tile(v.slot), shared.raw_v_tile(index % 2), warp);
    ptx::fence_proxy_async();
    arrive_warp(&shared.v_ring().full[v.slot]);
    v.advance();
  }
}

}  // namespace qattn::cuda::sm90
