// Errors of CUDA calls as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace qattn::bench {

/// Throws std::runtime_error with `what` and CUDA's own words unless `error` is a success.
inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace qattn::bench
