#include "cuda/kernel_launch.hpp"

#include <string>

#include "cuda/error.hpp"

namespace qattn::cuda {

void launch_kernel(const char* name, const void* function, const LaunchShape& shape, void* params,
                   cudaStream_t stream) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = shape.overlaps ? 1 : 0;
  void* arguments[] = {params};
  const cudaError_t error = cudaLaunchKernelExC(&config, function, arguments);
  if (error != cudaSuccess) throw_error(error, (std::string("launching ") + name).c_str());
}

bool waits_for_preceding_kernels(const void* function) {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, function) == cudaSuccess &&
         attributes.binaryVersion >= 90 && attributes.ptxVersion >= 90;
}

}  // namespace qattn::cuda
