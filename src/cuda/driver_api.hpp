// The CUDA driver's functions, found at run time: no symbol of libcuda is needed to load the
// library. Device detection and pointer queries go through them because, unlike the runtime's, they
// create no context and leave the caller's pending error alone.
#pragma once

#include <cuda.h>

namespace qattn::cuda {

/// Functions of libcuda.so.1; all are set.
struct DriverApi {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&cuCtxGetDevice) ctx_get_device = nullptr;
  decltype(&cuCtxPushCurrent) ctx_push_current = nullptr;
  decltype(&cuCtxPopCurrent) ctx_pop_current = nullptr;
  decltype(&cuPointerGetAttributes) pointer_get_attributes = nullptr;
  decltype(&cuTensorMapEncodeTiled) tensor_map_encode_tiled = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;
};

/// The driver, loaded into the process if it was not; null where there is none.
const DriverApi* load_driver() noexcept;

/// The driver if something has already loaded it; else null, and nothing is loaded.
const DriverApi* driver_if_loaded() noexcept;

}  // namespace qattn::cuda
