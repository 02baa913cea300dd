// What all CUDA kernels have in common on the host: the device made current, tensors in host memory
// staged, then the kernel's own launcher.
#pragma once

#include <cuda_runtime_api.h>

#include "core/kernel.hpp"
#include "core/problem.hpp"

namespace qattn::cuda {

/// Where a launcher puts its work. The device is current.
struct LaunchTarget {
  int ordinal = 0;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;  // in device memory, 256-byte aligned; null where the caller gave none
  std::size_t workspace_bytes = 0;
  int threads = 0;  // of the processor, at most; 0: the library's choice
};

/// Launches a kernel on a problem whose tensors the device can address. Throws Error.
using Launcher = void (*)(const core::Problem&, const LaunchTarget&);

/// Runs `launch` on `problem`, in place and asynchronously where its tensors lie in device memory,
/// else on copies of them and with the result in place when it returns.
void run(const core::Problem& problem, const core::RunContext& context, Launcher launch);

}  // namespace qattn::cuda
