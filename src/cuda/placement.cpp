// Where pointers lie.
#include "cuda/device.hpp"
#include "cuda/driver_api.hpp"

namespace qattn::cuda {

Placement place(const void* pointer) noexcept {
  // CUDA memory exists only where the driver is loaded and initialised; asking changes neither.
  const DriverApi* driver = driver_if_loaded();
  if (driver == nullptr) return {};
  unsigned int memory_type = 0;
  unsigned int is_managed = 0;
  int ordinal = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&memory_type, &is_managed, &ordinal};
  // For a pointer that CUDA does not know the values stay 0; an uninitialised driver is an error.
  const CUresult result =
      driver->pointer_get_attributes(3, attributes, values, reinterpret_cast<CUdeviceptr>(pointer));
  if (result != CUDA_SUCCESS) return {};
  if (is_managed != 0) return {Placement::Kind::managed, ordinal};
  if (memory_type == CU_MEMORYTYPE_DEVICE) return {Placement::Kind::device, ordinal};
  return {};
}

}  // namespace qattn::cuda
