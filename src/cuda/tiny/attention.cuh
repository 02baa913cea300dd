// Attention for tiny problems, where the time is that of the longest chain of dependent steps.
//
// All keys of a block's 16 rows, at most one group, are loaded and multiplied at once, by four
// warps, each with memory of its own that no other warp writes. The chain is: read (queries, keys,
// values and scales together), scores, maximum (one exchange in shared memory), exponentials,
// products, join (another exchange), store. Probabilities have 16 bits; sums stay integers until
// all warps have been added up (docs/numerics.md).
//
// Included by the file of each family, so that a kernel has the name of its family.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/griddepcontrol.cuh"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tiny/group.cuh"
#include "cuda/tiny/join.cuh"
#include "cuda/tiny/load.cuh"
#include "cuda/tiny/policy.hpp"
#include "cuda/tiny/rows.cuh"

namespace qattn::cuda {
namespace {

namespace tiny_kernel {

/// Comes before everything that is read or written in global memory.
__device__ __forceinline__ void wait_for_inputs() {
  if constexpr (kTinyOverlapsLaunches) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(TinyPolicy<kHeadDim>::kThreads,
                                  TinyPolicy<kHeadDim>::kBlocksPerMultiprocessor)
    attention(const __grid_constant__ AttentionParams params) {
  using Policy = TinyPolicy<kHeadDim>;
  extern __shared__ __align__(128) unsigned char tiny_memory[];
  const tiny::Memory<kHeadDim> memory = {tiny_memory};
  tiny::Exchange& exchange = memory.exchange();
  // The compiler divides by shifts where it knows that a number is not negative.
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const tile::BlockWork work = tiny::block_work(params);
  const int block_limit = tiny::visible_keys(params, work.place(work.rows - 1).query);
  if (warp == Policy::kWarps) {
    wait_for_inputs();
    tiny::share_factors(params, work, exchange, lane);
    __syncthreads();
    return;  // barriers do not count threads that have left
  }
  const auto k_tile = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory.warp(warp)));
  const tiny::Tiles tiles = {k_tile, k_tile + Policy::kKeyBytes, k_tile + Policy::kFirstBytes};
  const tiny::Rows rows = tiny::rows_of_lane(params, work, lane);
  const tiny::Sources from(params, work, warp);

  wait_for_inputs();
  const tiny::Scales scales = tiny::load_scales(params, rows, work.head_kv);
  tiny::load_tiles<kHeadDim>(from, tiles, lane);
  tiny::FinishedRow finished = tiny::finished_row(params, work, rows, warp, lane);
  finished.v_scale = scales.v;
  const std::int32_t base[2] = {
      tile::score_base_bits(tiny::is_negative(params, scales.q[0], scales.k)),
      tile::score_base_bits(tiny::is_negative(params, scales.q[1], scales.k))};

  tile::Scores s;
  ptx::cp_async_wait<1>();
  __syncwarp();
  tiny::scores<kHeadDim>(s, tiles.q, tiles.k, lane, base);
  tiny::mask_scores(s, warp, lane, rows.limit);
  tiny::share_maxima(s, exchange, warp, lane);
  __syncthreads();

  const float exponent[2] = {exchange.exponent[lane / 4], exchange.exponent[lane / 4 + 8]};
  finished.finite = exchange.finite[finished.row] != 0;
  float maximum[2];
  tiny::group_maxima(maximum, exchange, lane);
  // Pairs of tiles with a key that some row sees.
  const int pairs = min(max(block_limit - 8 * warp + 63, 0) / 64, 2);
  tiny::Planes planes;
  tiny::quantize16(planes, s, maximum, exponent, pairs);
  tiny::store_sums(planes, exchange, warp, lane);
  ptx::cp_async_wait<0>();
  __syncwarp();

#pragma unroll 1
  for (int column = 0; column < kHeadDim; column += Policy::kColumns) {
    tiny::store_products<kHeadDim>(tiles.k, planes, tiles.v, column / 16, lane);
    __syncthreads();
    tiny::finish_columns(params, finished, memory, column, warp, lane);
    if (column + Policy::kColumns < kHeadDim) __syncthreads();
  }
}

}  // namespace tiny_kernel

/// The tiny kernel of one head_dim.
template <int kHeadDim>
TinyKernel tiny_kernel_of() {
  using Policy = TinyPolicy<kHeadDim>;
  return {reinterpret_cast<const void*>(&tiny_kernel::attention<kHeadDim>), Policy::kThreads,
          Policy::kSharedBytes};
}

}  // namespace
}  // namespace qattn::cuda
