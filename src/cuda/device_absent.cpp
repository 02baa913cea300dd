// The functions of cuda/device.hpp in a build without CUDA: there are no devices.
#include "cuda/device.hpp"
#include "qattn/error.hpp"

namespace qattn::cuda {
namespace {

constexpr const char* kReason = "this build has no CUDA kernels";

[[noreturn]] void refuse(int ordinal) {
  throw Error(ErrorCode::device_unavailable,
              "device cuda:" + std::to_string(ordinal) + " cannot be used: " + kReason);
}

}  // namespace

const Status& status() {
  static const Status& status = *new Status{0, kReason, 0, 0};
  return status;
}

core::FeatureSet features(int) { return {}; }
std::string unusable_reason(int) { return kReason; }
std::vector<CudaDeviceInfo> devices() { return {}; }
Placement place(const void*) noexcept { return {}; }

void* allocate(int ordinal, std::size_t) { refuse(ordinal); }
void deallocate(int, void*) noexcept {}
void copy_to_device(int ordinal, void*, void*, const void*, std::size_t) { refuse(ordinal); }
void copy_to_host(int ordinal, void*, void*, const void*, std::size_t) { refuse(ordinal); }

}  // namespace qattn::cuda
