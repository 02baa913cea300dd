#include "qattn/buffer.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "cuda/device.hpp"
#include "dispatch/resolve.hpp"
#include "qattn/error.hpp"

namespace qattn::detail {
namespace {

constexpr std::align_val_t kAlignment{256};  // what cudaMalloc gives, so both devices agree

}  // namespace

void* allocate(const Device& device, std::size_t bytes) {
  if (device.kind() == Device::Kind::cuda) {
    dispatch::device_features(device);  // throws with the reason where the device cannot be used
    return bytes == 0 ? nullptr : cuda::allocate(device.ordinal(), bytes);
  }
  if (bytes == 0) return nullptr;
  // Rounding a size near 2^64 up to the alignment would wrap around.
  const bool possible = bytes <= static_cast<std::size_t>(PTRDIFF_MAX);
  void* pointer = possible ? ::operator new(bytes, kAlignment, std::nothrow) : nullptr;
  if (pointer == nullptr) {
    throw Error(ErrorCode::out_of_memory,
                "out of host memory: " + std::to_string(bytes) + " bytes were asked for");
  }
  return pointer;
}

void deallocate(const Device& device, void* pointer) noexcept {
  if (pointer == nullptr) return;
  if (device.kind() == Device::Kind::cuda) {
    cuda::deallocate(device.ordinal(), pointer);
  } else {
    ::operator delete(pointer, kAlignment);
  }
}

void copy_to_device(const Device& device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (device.kind() == Device::Kind::cuda) {
    cuda::copy_to_device(device.ordinal(), device.stream(), to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void copy_to_host(const Device& device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (device.kind() == Device::Kind::cuda) {
    cuda::copy_to_host(device.ordinal(), device.stream(), to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace qattn::detail
