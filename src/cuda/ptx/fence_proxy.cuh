// fence.proxy.async: ordinary shared-memory accesses against those of wgmma and bulk copies.
#pragma once

#include <cuda/ptx>

namespace qattn::cuda::ptx {

/// Makes this thread's earlier writes to shared memory visible to wgmma, once the threads that
/// issue it have synchronised with this one.
__device__ __forceinline__ void fence_proxy_async() {
  ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
}

}  // namespace qattn::cuda::ptx
