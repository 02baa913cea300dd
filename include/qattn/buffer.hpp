// Memory on a device, for programs that are written once for every device.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "qattn/device.hpp"
#include "qattn/export.hpp"

namespace qattn {

namespace detail {
/// 256-byte aligned memory of the device for `size` elements; throws Error(out_of_memory |
/// device_unavailable).
QATTN_API void* allocate(const Device& device, std::size_t size, std::size_t element_bytes);
QATTN_API void deallocate(const Device& device, void* pointer) noexcept;
/// Copies and waits until the copy is done, after all work that was put on the device's stream.
/// Throws Error(invalid_argument) for host memory that is null, unless `bytes` is 0.
QATTN_API void copy_to_device(const Device& device, void* to, const void* from, std::size_t bytes);
QATTN_API void copy_to_host(const Device& device, void* to, const void* from, std::size_t bytes);
}  // namespace detail

/// Owns `size` uninitialised elements in the memory of a device. Movable, not copyable.
///
///     qattn::Buffer<float> out(device, count);
///     qattn::forward(device, ..., out.data(), ...);
///     out.copy_to(host_pointer);
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain data only");

 public:
  /// No memory.
  Buffer() noexcept : device_(Device::cpu()) {}
  /// Throws Error(out_of_memory | device_unavailable).
  Buffer(const Device& device, std::size_t size)
      : device_(device),
        data_(static_cast<T*>(detail::allocate(device, size, sizeof(T)))),
        size_(size) {}
  /// Allocates and copies `size` elements from host memory. `host` may be null only if `size` is 0:
  /// else Error(invalid_argument).
  Buffer(const Device& device, const T* host, std::size_t size) : Buffer(device, size) {
    copy_from(host);
  }
  Buffer(Buffer&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { detail::deallocate(device_, data_); }

  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  const Device& device() const noexcept { return device_; }

  /// Copies size() elements from host memory and waits. Throws as the constructor that copies.
  void copy_from(const T* host) { detail::copy_to_device(device_, data_, host, size_ * sizeof(T)); }
  /// Copies size() elements to host memory, after all earlier work on the stream, and waits. Throws
  /// as copy_from().
  void copy_to(T* host) const { detail::copy_to_host(device_, host, data_, size_ * sizeof(T)); }

 private:
  Device device_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace qattn
