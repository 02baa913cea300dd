// cuda/sm80: attention on the INT8 tensor cores of capability 8.0 and later (mma.sync, cp.async).
//
// Each warp of a block computes 16 rows over all keys that they see (the loop order of
// FlashAttention-2, Dao 2023). Keys are taken in groups of 128 from key 0; the probabilities of a
// group are quantised against the group's own maximum, multiplied with V in integers, and drained
// into float32 accumulators with the weight of the group (docs/numerics.md).
//
// Compiled once per head_dim, with -DQATTN_HEAD_DIM.
#include "cuda/sm80.hpp"

#include "cuda/decode/kernels.cuh"
#include "cuda/sm80/group.cuh"
#include "cuda/sm80/stream.cuh"
#include "cuda/tile/load.cuh"
#include "cuda/tile/rows.cuh"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tiny/attention.cuh"

namespace qattn::cuda {
namespace {

template <int kHeadDim>
__device__ __forceinline__ void load_q(const AttentionParams& params, const tile::BlockWork& work,
                                       std::uint32_t q_tile) {
  using Policy = Sm80Policy<kHeadDim>;
  const std::int8_t* base =
      params.q.data + work.batch * params.q.batch_stride +
      static_cast<std::int64_t>(work.head_kv) * params.group_size * params.q.head_stride;
  tile::load_rows<kHeadDim, Policy::kRows, Policy::kThreads>(
      q_tile, work.rows, params.head_dim, params.q.alignment, [&](int row) {
        const tile::RowPlace place = work.place(row);
        return base + place.query * params.q.seq_stride +
               place.head_in_group * params.q.head_stride;
      });
}

/// What a thread knows about its rows before and after the loop over keys.
template <int kRows>
struct RowsAndFactors {
  tile::BlockWork work;
  tile::Rows rows;
  tile::ScoreFactor factor[2];

  __device__ __forceinline__ RowsAndFactors(const AttentionParams& params, std::uint32_t block)
      : work(tile::block_work<kRows>(params, block)), rows(tile::rows_of_thread(params, work)) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      factor[row] = tile::score_factor(params.softmax_scale, params.q.scale[rows.head[row]],
                                       params.k.scale[work.head_kv]);
    }
  }
};

/// First row of this thread's warp.
__device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / 32 * 16; }

template <int kHeadDim, Precision kPrecision>
__global__ void __launch_bounds__(Sm80Policy<kHeadDim>::kThreads,
                                  Sm80Policy<kHeadDim>::kBlocksPerMultiprocessor)
    attention(const __grid_constant__ AttentionParams params) {
  using Policy = Sm80Policy<kHeadDim>;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const auto q_tile = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_memory));
  const tile::BlockWork work = tile::block_work<Policy::kRows>(params, blockIdx.x);
  const int block_limit = tile::visible_keys(params, work.place(work.rows - 1).query);
  const int tiles = block_limit == 0 ? 0 : (block_limit - 1) / kGroupKeys + 1;

  sm80::KvStream<kHeadDim> stream(params, q_tile + Policy::kRows * kHeadDim, work.batch,
                                  work.head_kv, tiles);
  load_q<kHeadDim>(params, work, q_tile);
  stream.start();

  RowsAndFactors<Policy::kRows> rows(params, blockIdx.x);
  sm80::WarpRows<kHeadDim> warp(q_tile + warp_row() * kHeadDim, rows.factor);
  const int row_limit[2] = {rows.rows.limit[0], rows.rows.limit[1]};

  // Rows see more keys the later they come: the warp's first row the fewest, its last the most.
  const int warp_limit_min = __shfl_sync(0xFFFFFFFFU, row_limit[0], 0);
  const int warp_limit_max =
      warp_row() < work.rows ? __shfl_sync(0xFFFFFFFFU, row_limit[1], 31) : 0;

#pragma unroll 1
  for (int index = 0; index < tiles; ++index) {
    const int first_key = index * kGroupKeys;
    const bool visible = first_key < warp_limit_max;
    const int limit[2] = {row_limit[0] - first_key, row_limit[1] - first_key};
    const bool partial = warp_limit_min - first_key < kGroupKeys;

    const std::uint32_t k_tile = stream.keys(index);
    const auto values = [&stream, index] { return stream.values(index); };
    if (visible) {
      warp.template add_tile<kPrecision>(k_tile, limit, partial, index == 0, values);
    } else {
      values();
    }
  }
  // Found anew, so that no registers hold it in the loop.
  std::uint32_t block = blockIdx.x;
  asm volatile("" : "+r"(block));
  rows = RowsAndFactors<Policy::kRows>(params, block);
  warp.store(params, rows.work, rows.rows, rows.factor);
}

}  // namespace

template <int kHeadDim>
AttentionKernel sm80_kernel(Precision precision) {
  using Policy = Sm80Policy<kHeadDim>;
  AttentionKernel kernel;
  kernel.function = precision == Precision::high
                        ? reinterpret_cast<const void*>(&attention<kHeadDim, Precision::high>)
                        : reinterpret_cast<const void*>(&attention<kHeadDim, Precision::fast>);
  kernel.threads = Policy::kThreads;
  kernel.rows = Policy::kRows;
  kernel.shared_bytes = Policy::kSharedBytes;
  kernel.tiny = tiny_kernel_of<kHeadDim>();
  return kernel;
}

template <int kHeadDim>
DecodeKernels sm80_decode() {
  return decode_kernels<kHeadDim>();
}

template AttentionKernel sm80_kernel<QATTN_HEAD_DIM>(Precision precision);
template DecodeKernels sm80_decode<QATTN_HEAD_DIM>();

}  // namespace qattn::cuda
