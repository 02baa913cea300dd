// barrier.cta: named barriers among some of a block's warps.
#pragma once

namespace qattn::cuda::ptx {

/// Synchronises the `kThreads` threads that name barrier `id` (1 to 15; 0 is __syncthreads()).
template <int kThreads>
__device__ __forceinline__ void barrier_sync(int id) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

/// As barrier_sync(); true for all if `value` is for any.
template <int kThreads>
__device__ __forceinline__ bool barrier_any(int id, bool value) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.s32 p, %3, 0;\n"
      "barrier.cta.red.or.aligned.pred q, %1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "n"(kThreads), "r"(static_cast<int>(value))
      : "memory");
  return any != 0;
}

}  // namespace qattn::cuda::ptx
