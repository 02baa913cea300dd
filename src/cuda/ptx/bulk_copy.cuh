// cp.async.bulk.tensor: a box of a tensor from global to shared memory by the tensor copy engine.
#pragma once

#include <cuda/ptx>

#include <cstdint>

namespace qattn::cuda::ptx {

/// One thread. Copies the box of `map` (64-byte aligned, in parameter, constant or global memory)
/// at the coordinates, innermost first, to `to` in the shared window and counts its bytes on
/// `barrier`. What lies outside the tensor becomes 0.
__device__ __forceinline__ void bulk_copy_4d(std::uint32_t to, const void* map,
                                             const std::int32_t (&coordinates)[4],
                                             std::uint64_t* barrier) {
  ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                    __cvta_shared_to_generic(to), map, coordinates, barrier);
}

}  // namespace qattn::cuda::ptx
