// griddepcontrol: kernels of a stream that overlap (programmatic dependent launch, capability 9.0).
// Nothing in code for less: the launcher asks for the overlap only where the code has it.
#pragma once

namespace qattn::cuda::ptx {

/// Lets the next launch begin once all blocks of this one have come here or ended. Where this one
/// may overlap the one before it, after griddepcontrol_wait(): the next one may rely on what came
/// before this one.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Waits until the launch ahead has ended and its writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace qattn::cuda::ptx
