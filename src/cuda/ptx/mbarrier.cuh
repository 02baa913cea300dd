// mbarrier: barriers in shared memory on which arrivals are counted and phases waited for.
#pragma once

#include <cuda/ptx>

#include <cstdint>

namespace qattn::cuda::ptx {

/// One thread, before any use; other threads see it after a barrier of the block.
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  ::cuda::ptx::mbarrier_init(barrier, arrivals);
}

/// Counts one arrival and releases this thread's earlier writes.
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  static_cast<void>(::cuda::ptx::mbarrier_arrive(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                                 ::cuda::ptx::space_shared, barrier));
}

/// Waits until the phase of this parity is complete; that before the first one, parity 1, is.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(::cuda::ptx::sem_acquire, ::cuda::ptx::scope_cta,
                                                barrier, parity)) {
  }
}

}  // namespace qattn::cuda::ptx
