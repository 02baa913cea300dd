#include "cuda/driver_api.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <memory>
#include <new>

namespace qattn::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

// Set once, never freed: the driver outlives every static destructor that might ask for it.
std::atomic<const DriverApi*> found{nullptr};

template <typename Function>
bool resolve(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// cuda.h maps the plain names to these versions of the functions.
bool resolve_all(void* library, DriverApi& api) noexcept {
  return resolve(library, "cuInit", api.init) &&
         resolve(library, "cuDriverGetVersion", api.driver_get_version) &&
         resolve(library, "cuDeviceGetCount", api.device_get_count) &&
         resolve(library, "cuDeviceGet", api.device_get) &&
         resolve(library, "cuDeviceGetName", api.device_get_name) &&
         resolve(library, "cuDeviceTotalMem_v2", api.device_total_mem) &&
         resolve(library, "cuDeviceGetAttribute", api.device_get_attribute) &&
         resolve(library, "cuDevicePrimaryCtxRetain", api.device_primary_ctx_retain) &&
         resolve(library, "cuCtxGetCurrent", api.ctx_get_current) &&
         resolve(library, "cuCtxGetDevice", api.ctx_get_device) &&
         resolve(library, "cuCtxPushCurrent_v2", api.ctx_push_current) &&
         resolve(library, "cuCtxPopCurrent_v2", api.ctx_pop_current) &&
         resolve(library, "cuPointerGetAttributes", api.pointer_get_attributes) &&
         resolve(library, "cuTensorMapEncodeTiled", api.tensor_map_encode_tiled) &&
         resolve(library, "cuGetErrorString", api.get_error_string);
}

const DriverApi* find(int dlopen_flags) noexcept {
  if (const DriverApi* api = found.load(std::memory_order_acquire)) return api;
  // The reference is kept: the functions stay valid.
  void* library = dlopen(kLibrary, dlopen_flags);
  if (library == nullptr) return nullptr;
  std::unique_ptr<DriverApi> api(new (std::nothrow) DriverApi);
  if (api == nullptr || !resolve_all(library, *api)) {
    dlclose(library);
    return nullptr;
  }
  const DriverApi* expected = nullptr;
  if (!found.compare_exchange_strong(expected, api.get(), std::memory_order_acq_rel)) {
    return expected;  // another thread was first
  }
  return api.release();
}

// Number of objects loaded into the process so far; at least 1.
unsigned long long loaded_objects() noexcept {
  unsigned long long count = 1;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;  // the first object tells
      },
      &count);
  return count;
}

}  // namespace

const DriverApi* load_driver() noexcept { return find(RTLD_NOW | RTLD_LOCAL); }

const DriverApi* driver_if_loaded() noexcept {
  if (const DriverApi* api = found.load(std::memory_order_acquire)) return api;
  // Asking for a library that is not there searches the file system, 10 us. Every forward() asks,
  // so the search is made again only when something has been loaded since.
  static std::atomic<unsigned long long> searched{0};
  const unsigned long long objects = loaded_objects();
  if (searched.load(std::memory_order_relaxed) == objects) return nullptr;
  const DriverApi* api = find(RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (api == nullptr) searched.store(objects, std::memory_order_relaxed);
  return api;
}

}  // namespace qattn::cuda
