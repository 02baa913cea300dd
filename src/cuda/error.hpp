// CUDA error codes as exceptions. Only the codes that a call itself returns are looked at: the
// runtime's pending error belongs to the caller and is neither read nor cleared.
#pragma once

#include <cuda_runtime_api.h>

namespace qattn::cuda {

/// Throws Error for `error`: out_of_memory where memory ran out, device_unavailable where the
/// binary has no code for the device, else cuda. `what` says what was tried ("copying q to the
/// device").
[[noreturn]] void throw_error(cudaError_t error, const char* what);

/// Throws unless `error` is cudaSuccess.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw_error(error, what);
}

}  // namespace qattn::cuda
