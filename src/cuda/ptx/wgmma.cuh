// wgmma: products of a warpgroup, asynchronous (sm_90a). Order and completion; the products
// themselves are in wgmma_s8.cuh.
//
// Warp w of the warpgroup owns rows 16w to 16w + 15 of m64, laid out per warp as in mma_s8.cuh:
// d[n] is the accumulator of columns 8n to 8n + 7, an A operand in registers that of the mma of the
// same depth.
//
// Between wgmma_fence() and wgmma_wait() the registers of a product may not be touched.
#pragma once

#include <cstdint>

namespace qattn::cuda::ptx {

/// Orders earlier writes to the registers that the following products use before them.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Closes the group of the products since the last commit.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending groups are unfinished. Follow it with wgmma_ready() on the sums.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from reading `d` before the wait that precedes this call, and from writing it
/// after the fence that follows.
template <int kTiles>
__device__ __forceinline__ void wgmma_ready(std::int32_t (&d)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(d[n][i])::"memory");
  }
}

}  // namespace qattn::cuda::ptx
