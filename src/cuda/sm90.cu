// cuda/sm90: attention on the INT8 tensor cores of capability 9.0 (wgmma), warp-specialised.
//
// As many blocks as the device runs at once take blocks of rows in turns. A producer warpgroup
// brings Q, K and V into shared memory and transposes V, since wgmma sums bytes along rows only;
// two or three consumer warpgroups compute 64 rows each and overlap, one's softmax with another's
// products (the structure of FlashAttention-3, Shah et al. 2024).
// docs/numerics.md says what they compute.
//
// Compiled once per head_dim, with -DQATTN_HEAD_DIM.
#include "cuda/sm90.hpp"

#include "cuda/decode/kernels.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/sm90/attend.cuh"
#include "cuda/sm90/producer.cuh"
#include "cuda/sm90/schedule.cuh"
#include "cuda/tiny/attention.cuh"

namespace qattn::cuda {
namespace {

template <typename Policy, Precision kPrecision>
__device__ __forceinline__ void consume(const AttentionParams& params,
                                        const sm90::Shared<Policy>& shared, int warpgroup) {
  sm90::Stream<Policy> stream(shared, warpgroup);
#pragma unroll 1
  for (sm90::Schedule<Policy> schedule(params); schedule.valid(); schedule.advance()) {
    sm90::Attention<Policy, kPrecision> attention(params, schedule.work(), stream);
    if (schedule.tiles() > 0) attention.run(schedule.tiles());
    attention.finish();
  }
}

template <int kHeadDim, Precision kPrecision>
__global__ void __launch_bounds__(Sm90Policy<kHeadDim>::kThreads, 1)
    attention(const __grid_constant__ AttentionParams params) {
  using Policy = Sm90Policy<kHeadDim>;
  extern __shared__ unsigned char shared_memory[];
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_memory));
  const sm90::Shared<Policy> shared(shared_memory + (0U - address) % Policy::kAlignment);
  if (threadIdx.x == 0) shared.init(params.bulk);
  __syncthreads();

  // The same for all threads of a warp, and known to be.
  const int warpgroup = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == Policy::kConsumers) {
    ptx::setmaxnreg_dec<Policy::kProducerRegisters>();
    sm90::Producer<Policy>(params, shared).run();
  } else {
    ptx::setmaxnreg_inc<Policy::kConsumerRegisters>();
    consume<Policy, kPrecision>(params, shared, warpgroup);
  }
}

template <int kHeadDim, Precision kPrecision>
AttentionKernel kernel_of() {
  using Policy = Sm90Policy<kHeadDim>;
  AttentionKernel kernel;
  kernel.function = reinterpret_cast<const void*>(&attention<kHeadDim, kPrecision>);
  kernel.threads = Policy::kThreads;
  kernel.rows = Policy::kRows;
  kernel.shared_bytes = Policy::kSharedBytes;
  using KvTile = sm90::Tile<kHeadDim, Policy::kKeys>;
  kernel.box_keys = Policy::kKeys;
  kernel.box_bytes = KvTile::kSpanBytes;
  kernel.persistent = true;
  kernel.tiny = tiny_kernel_of<kHeadDim>();
  return kernel;
}

}  // namespace

template <int kHeadDim>
AttentionKernel sm90_kernel(Precision precision) {
  return precision == Precision::high ? kernel_of<kHeadDim, Precision::high>()
                                      : kernel_of<kHeadDim, Precision::fast>();
}

template <int kHeadDim>
DecodeKernels sm90_decode() {
  return decode_kernels<kHeadDim>();
}

template AttentionKernel sm90_kernel<QATTN_HEAD_DIM>(Precision precision);
template DecodeKernels sm90_decode<QATTN_HEAD_DIM>();

}  // namespace qattn::cuda
