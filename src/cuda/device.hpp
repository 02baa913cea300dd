// CUDA devices as the rest of the library sees them. Compiled in every build: without CUDA
// (device_absent.cpp) there are no devices and the reason says so. No CUDA header here.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/features.hpp"
#include "qattn/introspect.hpp"

namespace qattn::cuda {

/// Whether CUDA can be used in this process. Looking initialises CUDA where a driver is present.
struct Status {
  int device_count = 0;
  std::string reason;  // why there is no device; empty if there is one
  int driver_version = 0;
  int runtime_version = 0;
};
/// Looked at once per process; thread-safe.
const Status& status();

/// Features of a device, read once. Empty for an ordinal that does not exist.
core::FeatureSet features(int ordinal);
/// Why `ordinal` cannot be used, for a person; empty if it can.
std::string unusable_reason(int ordinal);
std::vector<CudaDeviceInfo> devices();

/// Where a pointer lies. Never initialises CUDA: where this process has not, every pointer is host.
struct Placement {
  enum class Kind { host, device, managed };
  Kind kind = Kind::host;
  int ordinal = 0;  // of device memory
};
Placement place(const void* pointer) noexcept;

/// Memory on a device; the calling thread's current device stays as it was. Throw Error.
void* allocate(int ordinal, std::size_t bytes);
void deallocate(int ordinal, void* pointer) noexcept;
void copy_to_device(int ordinal, void* stream, void* to, const void* from, std::size_t bytes);
void copy_to_host(int ordinal, void* stream, void* to, const void* from, std::size_t bytes);

}  // namespace qattn::cuda
