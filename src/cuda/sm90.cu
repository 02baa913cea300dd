// cuda/sm90: attention on the INT8 tensor cores of capability 9.0 (wgmma), warp-specialised.
//
// A block computes 128 rows over all keys that they see. A producer warpgroup brings K and V into
// shared memory and transposes V, since wgmma sums bytes along rows only; two consumer warpgroups
// compute 64 rows each and overlap, one's softmax with the other's products. Numbers are those of
// cuda/sm80, bit by bit: the same groups of 128 keys, the same planes of probabilities, the same
// order of sums (docs/numerics.md).
//
// Compiled once per head_dim, with -DQATTN_HEAD_DIM.
#include "cuda/sm90.hpp"

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/sm90/producer.cuh"
#include "cuda/sm90/products.cuh"
#include "cuda/tile/group.cuh"
#include "cuda/tile/rows.cuh"

namespace qattn::cuda {
namespace {

/// Loads the rows of a consumer warpgroup.
template <int kHeadDim>
__device__ __forceinline__ void load_q(const AttentionParams& params, const tile::BlockWork& work,
                                       std::uint32_t q_tile, int warpgroup) {
  const std::int8_t* base =
      params.q.data + work.batch * params.q.batch_stride +
      static_cast<std::int64_t>(work.head_kv) * params.group_size * params.q.head_stride;
  const int first_row = 64 * warpgroup;
  sm90::load_rows<sm90::Tile<kHeadDim, 64>, 64, 128>(
      q_tile, static_cast<int>(threadIdx.x) % 128, 0, work.rows - first_row, params.head_dim,
      params.q.alignment, [&](int row) {
        const tile::RowPlace place = work.place(first_row + row);
        return base + place.query * params.q.seq_stride +
               place.head_in_group * params.q.head_stride;
      });
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::fence_proxy_async();
  ptx::barrier_sync<128>(1 + warpgroup);
}

/// A consumer warpgroup.
template <int kHeadDim, Precision kPrecision>
__device__ __forceinline__ void consume(const AttentionParams& params,
                                        sm90::Shared<kHeadDim>& shared, const tile::BlockWork& work,
                                        int warpgroup, int tiles) {
  using Policy = Sm90Policy<kHeadDim>;
  const std::uint32_t q_tile = shared.q_tile(warpgroup);
  load_q<kHeadDim>(params, work, q_tile, warpgroup);

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

  // Rows see more keys the later they come. The warps of a warpgroup multiply together, so that
  // they skip a tile together.
  const int warp_limit_min = __shfl_sync(0xFFFFFFFFU, rows.limit[0], 0);
  const int limit_max = 64 * warpgroup < work.rows
                            ? tile::visible_keys(params, work.place(64 * warpgroup + 63).query)
                            : 0;

  sm90::Position<Policy::kKeySlots> k;
  sm90::Position<Policy::kValueSlots> v;
#pragma unroll 1
  for (int index = 0; index < tiles; ++index) {
    const int first_key = index * kGroupKeys;
    const bool visible = first_key < limit_max;
    const int limit[2] = {rows.limit[0] - first_key, rows.limit[1] - first_key};

    tile::Scores s;
    ptx::mbarrier_wait(&shared.k_ring().full[k.slot], k.parity);
    if (visible) sm90::scores<kHeadDim>(s, q_tile, shared.k_tile(k.slot), base);
    sm90::arrive_warp(&shared.k_ring().empty[k.slot]);
    k.advance();

    if (visible) {
      if (warp_limit_min - first_key < kGroupKeys) tile::mask_scores(s, limit);
      const int in_group[2] = {min(max(limit[0], 0), kGroupKeys),
                               min(max(limit[1], 0), kGroupKeys)};
      tile::add_group<kPrecision>(
          state, out, s, index == 0, in_group,
          [warpgroup](bool value) { return ptx::barrier_any<128>(1 + warpgroup, value); },
          [&](auto planes, const tile::Plane& high, const tile::Plane& low,
              const tile::GroupScale& group) {
            ptx::mbarrier_wait(&shared.v_ring().full[v.slot], v.parity);
            sm90::accumulate<decltype(planes)::value, Policy::kColumns>(
                out, high, low, shared.v_tile(v.slot), group);
          });
    } else {
      ptx::mbarrier_wait(&shared.v_ring().full[v.slot], v.parity);
    }
    sm90::arrive_warp(&shared.v_ring().empty[v.slot]);
    v.advance();
  }
  tile::store_rows(params, work, rows, state, factor, out);
}

template <int kHeadDim, Precision kPrecision>
__global__ void __launch_bounds__(Sm90Policy<kHeadDim>::kThreads, 1)
    attention(const __grid_constant__ AttentionParams params) {
  using Policy = Sm90Policy<kHeadDim>;
  extern __shared__ unsigned char shared_memory[];
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_memory));
  sm90::Shared<kHeadDim> shared(shared_memory + (0U - address) % Policy::kAlignment);
  if (threadIdx.x == 0) {
    shared.k_ring().init(4, 4 * Policy::kConsumers);
    shared.v_ring().init(4, 4 * Policy::kConsumers);
  }
  __syncthreads();

  const tile::BlockWork work = tile::block_work<Policy::kRows>(params, blockIdx.x);
  const int block_limit = tile::visible_keys(params, work.place(work.rows - 1).query);
  const int tiles = block_limit == 0 ? 0 : (block_limit - 1) / kGroupKeys + 1;
  // The same for all threads of a warp, and known to be.
  const int warpgroup = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == Policy::kConsumers) {
    ptx::setmaxnreg_dec<Policy::kProducerRegisters>();
    sm90::produce<kHeadDim>(params, shared, work.batch, work.head_kv, tiles);
  } else {
    ptx::setmaxnreg_inc<Policy::kConsumerRegisters>();
    consume<kHeadDim, kPrecision>(params, shared, work, warpgroup, tiles);
  }
}

}  // namespace

template <int kHeadDim>
AttentionKernel sm90_kernel(Precision precision) {
  using Policy = Sm90Policy<kHeadDim>;
  AttentionKernel kernel;
  kernel.function = precision == Precision::high
                        ? reinterpret_cast<const void*>(&attention<kHeadDim, Precision::high>)
                        : reinterpret_cast<const void*>(&attention<kHeadDim, Precision::fast>);
  kernel.threads = Policy::kThreads;
  kernel.rows = Policy::kRows;
  kernel.shared_bytes = Policy::kSharedBytes;
  return kernel;
}

template AttentionKernel sm90_kernel<QATTN_HEAD_DIM>(Precision precision);

}  // namespace qattn::cuda
