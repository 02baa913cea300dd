// mbarrier: barriers in shared memory on which arrivals are counted and phases waited for.
#pragma once

#include <cuda/ptx>

#include <cstdint>

namespace qattn::cuda::ptx {

/// One thread, before any use; other threads see it after a barrier of the block.
__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t arrivals) {
  ::cuda::ptx::mbarrier_init(barrier, arrivals);
}

/// Makes initialised barriers visible to the copy engine. The thread that initialised them.
__device__ __forceinline__ void mbarrier_init_done() {
  ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
}

/// Counts one arrival and releases this thread's earlier writes.
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  static_cast<void>(::cuda::ptx::mbarrier_arrive(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                                 ::cuda::ptx::space_shared, barrier));
}

/// Counts one arrival of which `bytes` of bulk copies are yet to come.
__device__ __forceinline__ void mbarrier_arrive_expect(std::uint64_t* barrier,
                                                       std::uint32_t bytes) {
  static_cast<void>(::cuda::ptx::mbarrier_arrive_expect_tx(
      ::cuda::ptx::sem_release, ::cuda::ptx::scope_cta, ::cuda::ptx::space_shared, barrier, bytes));
}

/// Waits until the phase of this parity is complete; that before the first one, parity 1, is.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(::cuda::ptx::sem_acquire, ::cuda::ptx::scope_cta,
                                                barrier, parity)) {
  }
}

/// As mbarrier_wait(). Returns 0 in a way that keeps the compiler from computing what depends on it
/// before.
__device__ __forceinline__ std::int32_t mbarrier_wait_zero(std::uint64_t* barrier,
                                                           std::uint32_t parity) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier));
  std::int32_t waiting;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.s32 %0, 0, 1, p;\n"
        "}\n"
        : "=r"(waiting)
        : "r"(address), "r"(parity)
        : "memory");
  } while (waiting > 0);
  return waiting;
}

// The same by shared-window address, for capability 8.0 too. Without qualifiers arrivals release
// and waits acquire, at the scope of the block.

/// As mbarrier_init().
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// As mbarrier_arrive().
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

/// As mbarrier_wait().
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"  // waits for a while
#else
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

}  // namespace qattn::cuda::ptx
