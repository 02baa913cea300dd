// Launching a compiled kernel of one argument.
#pragma once

#include <cuda_runtime_api.h>

namespace qattn::cuda {

struct LaunchShape {
  dim3 grid = {};
  int threads = 0;
  int shared_bytes = 0;   // dynamic
  bool overlaps = false;  // may begin before the launch ahead of it has ended, and waits for it
};

/// Launches `function` on `stream` with `*params`. `name` as in "launching cuda/sm80". Throws
/// Error(cuda).
void launch_kernel(const char* name, const void* function, const LaunchShape& shape, void* params,
                   cudaStream_t stream);

/// Whether the loaded code of a kernel waits for the kernels before it (ptx/griddepcontrol.cuh):
/// code made for less than 9.0 does not, which may be what this device was given.
bool waits_for_preceding_kernels(const void* function);

}  // namespace qattn::cuda
