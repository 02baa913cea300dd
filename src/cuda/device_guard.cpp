#include "cuda/device_guard.hpp"

#include <array>
#include <atomic>
#include <string>

#include "cuda/device.hpp"
#include "cuda/driver_api.hpp"
#include "cuda/properties.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

// Primary contexts are retained once and never released: work may be in flight whenever we could
// release one, and the last release destroys the context.
constexpr std::size_t kCachedDevices = 64;
std::array<std::atomic<CUcontext>, kCachedDevices> primary_contexts{};

void check(const DriverApi& driver, CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver.get_error_string(result, &text);
  throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::cuda,
              std::string(what) + " failed: " + (text != nullptr ? text : "unknown error"));
}

CUcontext primary_context(const DriverApi& driver, int ordinal) {
  const auto index = static_cast<std::size_t>(ordinal);
  if (index < kCachedDevices) {
    if (CUcontext context = primary_contexts[index].load(std::memory_order_acquire)) return context;
  }
  CUcontext context = nullptr;
  check(driver, driver.device_primary_ctx_retain(&context, properties(ordinal).handle),
        "creating a context on the CUDA device");
  if (index < kCachedDevices) primary_contexts[index].store(context, std::memory_order_release);
  return context;
}

}  // namespace

DeviceGuard::DeviceGuard(int ordinal) {
  if (!is_usable(ordinal)) {
    throw Error(ErrorCode::device_unavailable, "device cuda:" + std::to_string(ordinal) +
                                                   " cannot be used: " + unusable_reason(ordinal));
  }
  const DriverApi& driver = *driver_if_loaded();  // a usable device has one
  CUcontext current = nullptr;
  check(driver, driver.ctx_get_current(&current), "looking up the current CUDA context");
  if (current != nullptr) {
    CUdevice current_device = 0;
    check(driver, driver.ctx_get_device(&current_device), "looking up the current CUDA device");
    if (current_device == properties(ordinal).handle) return;
  }
  check(driver, driver.ctx_push_current(primary_context(driver, ordinal)),
        "making the CUDA device current");
  pushed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  driver_if_loaded()->ctx_pop_current(&popped);
}

}  // namespace qattn::cuda
