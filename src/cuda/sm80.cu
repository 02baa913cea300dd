// cuda/sm80: attention on the INT8 tensor cores of capability 8.0 and later (mma.sync, cp.async).
//
// A block computes 64 rows, each of its warps 16, over all keys that they see (the loop order of
// FlashAttention-2, Dao 2023). Keys are taken in groups of 128 from key 0; the probabilities of a
// group are quantised against the group's own maximum, multiplied with V in integers, and drained
// into float32 accumulators with the weight of the group (docs/numerics.md).
//
// Compiled once per head_dim, with -DQATTN_HEAD_DIM.
#include "cuda/sm80.hpp"
#include "cuda/tile/accumulate.cuh"
#include "cuda/tile/group.cuh"
#include "cuda/tile/load.cuh"
#include "cuda/tile/ring.cuh"
#include "cuda/tile/rows.cuh"
#include "cuda/tile/scheduler.cuh"
#include "cuda/tile/scores.cuh"
#include "cuda/tile/softmax.cuh"

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

  tile::KvRing<kHeadDim> ring(params, q_tile + Policy::kRows * kHeadDim, work.batch, work.head_kv,
                              tiles);
  load_q<kHeadDim>(params, work, q_tile);
  ring.start();

  const tile::Rows rows = tile::rows_of_thread(params, work);
  tile::ScoreFactor factor[2];
  std::int32_t base[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    factor[row] = tile::score_factor(params.softmax_scale, params.q.scale[rows.head[row]],
                                     params.k.scale[work.head_kv]);
    base[row] = tile::score_base_bits(factor[row].natural < 0);
  }
  tile::Softmax state(tile::exponent_of(factor[0]), tile::exponent_of(factor[1]));
  tile::Output<kHeadDim> out;

  // Rows see more keys the later they come: the warp's first row the fewest, its last the most.
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int warp_limit_min = __shfl_sync(0xFFFFFFFFU, rows.limit[0], 0);
  const int warp_limit_max = warp_row < work.rows ? __shfl_sync(0xFFFFFFFFU, rows.limit[1], 31) : 0;

  for (int index = 0; index < tiles; ++index) {
    const int first_key = index * kGroupKeys;
    const bool visible = first_key < warp_limit_max;
    const int limit[2] = {rows.limit[0] - first_key, rows.limit[1] - first_key};

    tile::Scores s;
    const std::uint32_t k_tile = ring.take();
    if (visible) {
      tile::scores<kHeadDim>(s, q_tile + warp_row * kHeadDim, k_tile, base);
      if (warp_limit_min - first_key < kGroupKeys) tile::mask_scores(s, limit);
    }
    const std::uint32_t v_tile = ring.take();
    if (visible) {
      const int in_group[2] = {min(max(limit[0], 0), kGroupKeys),
                               min(max(limit[1], 0), kGroupKeys)};
      tile::add_group<kPrecision>(
          state, out, s, index == 0, in_group,
          [](bool value) { return __any_sync(0xFFFFFFFFU, value) != 0; },
          [&](auto planes, const tile::Plane& high, const tile::Plane& low,
              const tile::GroupScale& group) {
            tile::accumulate<decltype(planes)::value>(out, high, low, v_tile, group);
          });
    }
  }
  tile::store_rows(params, work, rows, state, factor, out);
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
  return kernel;
}

template AttentionKernel sm80_kernel<QATTN_HEAD_DIM>(Precision precision);

}  // namespace qattn::cuda
