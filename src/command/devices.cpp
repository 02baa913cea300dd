#include "command/devices.hpp"

#include <algorithm>
#include <charconv>

#include "command/input_error.hpp"
#include "verify/host_problem.hpp"

namespace qattn::command {
namespace {

bool lists(const Device& device, const std::string& kernel) {
  const std::vector<KernelStatus> list = kernels(device);
  return std::any_of(list.begin(), list.end(),
                     [&](const KernelStatus& status) { return status.name == kernel; });
}

Device automatic_device(const std::string& kernel) {
  if (!kernel.empty()) {
    for (const Device& device : {Device::cpu(), Device::cuda()}) {
      if (lists(device, kernel)) return device;
    }
  }
  return Device::best();
}

}  // namespace

Device pick_device(const std::string& device, const std::string& kernel) {
  if (device == "auto") return automatic_device(kernel);
  if (device == "cpu") return Device::cpu();
  if (device == "cuda") return Device::cuda();
  const std::string prefix = "cuda:";
  if (device.compare(0, prefix.size(), prefix) == 0) {
    int ordinal = -1;
    const char* const end = device.data() + device.size();
    const auto [rest, error] = std::from_chars(device.data() + prefix.size(), end, ordinal);
    if (error == std::errc() && rest == end && ordinal >= 0) return Device::cuda(ordinal);
  }
  throw InputError("--device: is '" + device + "' (allowed: auto, cpu, cuda, cuda:N)");
}

std::vector<Device> all_devices() {
  std::vector<Device> devices = {Device::cpu()};
  for (const CudaDeviceInfo& info : machine_info().cuda_devices) {
    devices.push_back(Device::cuda(info.ordinal));
  }
  return devices;
}

std::vector<KernelStatus> tried_kernels(const Device& device) {
  std::vector<KernelStatus> list = kernels(device);
  if (device.kind() != Device::Kind::cpu) return list;
  const verify::HostProblem problem =
      verify::random_problem({1, 1, 1, 1, 1, 1}, Mask::full(), /*seed=*/1);
  for (const KernelStatus& kernel : list) {
    if (!kernel.usable) continue;
    try {
      verify::run(problem, device, Precision::high, kernel.name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kernel_unusable) throw;
    }
  }
  return kernels(device);
}

bool is_reference(const KernelStatus& kernel) { return kernel.name.rfind("reference/", 0) == 0; }

}  // namespace qattn::command
