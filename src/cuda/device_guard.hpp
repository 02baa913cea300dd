// Makes a device current for a scope.
#pragma once

namespace qattn::cuda {

/// Makes `ordinal` the calling thread's current CUDA device until the end of the scope. A context
/// of that device that is already current is used as it is, so that streams made in it stay valid;
/// otherwise the device's primary context is put on top of the thread's context stack and taken off
/// again, which restores exactly what was there (cudaSetDevice() would create a context on the
/// device that it restores). Throws Error(device_unavailable | cuda).
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace qattn::cuda
