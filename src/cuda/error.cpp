#include "cuda/error.hpp"

#include <string>

#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

ErrorCode code_of(cudaError_t error) noexcept {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::out_of_memory;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      return ErrorCode::device_unavailable;
    default:
      return ErrorCode::cuda;
  }
}

}  // namespace

void throw_error(cudaError_t error, const char* what) {
  throw Error(code_of(error), std::string(what) + " failed: " + cudaGetErrorString(error) + " (" +
                                  cudaGetErrorName(error) + ")");
}

}  // namespace qattn::cuda
