// setmaxnreg: moves registers between the warpgroups of a block (sm_90a).
#pragma once

namespace qattn::cuda::ptx {

/// Gives up registers above kCount, a multiple of 8 from 24 to 256. All warps of a warpgroup.
template <int kCount>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Waits until kCount registers can be had. All warps of a warpgroup.
template <int kCount>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace qattn::cuda::ptx
