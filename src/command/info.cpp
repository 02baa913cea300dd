#include <cstdio>

#include "command/command.hpp"
#include "command/devices.hpp"
#include "command/json.hpp"

namespace qattn::command {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The kernels of every device; those of a first CUDA device even where there is none, with the
// reason.
std::vector<Device> listed_devices() {
  std::vector<Device> devices = all_devices();
  if (devices.size() == 1) devices.push_back(Device::cuda());
  return devices;
}

std::string json_text(const MachineInfo& machine) {
  Json json;
  json.begin_object().member("version", version());
  json.member("cpu", machine.cpu).member("cpu_threads", machine.cpu_threads);
  json.key("cpu_features").begin_array();
  for (const std::string& feature : machine.cpu_features) json.value(feature);
  json.end_array().key("cuda").begin_object();
  json.member("status", machine.cuda).member("driver", machine.cuda_driver);
  json.member("runtime", machine.cuda_runtime).key("devices").begin_array();
  for (const CudaDeviceInfo& device : machine.cuda_devices) {
    json.begin_object().member("ordinal", device.ordinal).member("name", device.name);
    json.member("capability_major", device.capability_major);
    json.member("capability_minor", device.capability_minor);
    json.member("multiprocessors", device.multiprocessors);
    json.member("memory_bytes", device.memory_bytes).end_object();
  }
  json.end_array().end_object().key("kernels").begin_array();
  for (const Device& device : listed_devices()) {
    for (const KernelStatus& kernel : kernels(device)) {
      json.begin_object().member("device", device.name()).member("name", kernel.name);
      json.member("usable", kernel.usable).member("reason", kernel.reason).end_object();
    }
  }
  json.end_array().member("best_device", Device::best().name()).end_object();
  return json.text();
}

void print(const MachineInfo& machine) {
  std::printf("qattn %s\n", version());
  std::printf("cpu       %s\n", machine.cpu.c_str());
  std::printf("features  %s\n", join(machine.cpu_features).c_str());
  std::printf("threads   %d\n", machine.cpu_threads);
  std::printf("cuda      %s\n", machine.cuda.c_str());
  if (machine.cuda_runtime != 0) {
    std::printf("          runtime %s, driver %s\n", version_text(machine.cuda_runtime).c_str(),
                machine.cuda_driver == 0 ? "none" : version_text(machine.cuda_driver).c_str());
  }
  for (const CudaDeviceInfo& device : machine.cuda_devices) {
    std::printf("cuda:%-4d %s, capability %d.%d, %d multiprocessors, %.0f GiB\n", device.ordinal,
                device.name.c_str(), device.capability_major, device.capability_minor,
                device.multiprocessors, static_cast<double>(device.memory_bytes) / (1 << 30));
  }
  std::printf("best      %s\n", Device::best().name().c_str());
  for (const Device& device : listed_devices()) {
    std::printf("kernels for %s\n", device.name().c_str());
    for (const KernelStatus& kernel : kernels(device)) {
      std::printf("  %-18s %s\n", kernel.name.c_str(),
                  kernel.usable ? "usable" : kernel.reason.c_str());
    }
  }
}

}  // namespace

int info(const InfoOptions& options) {
  const MachineInfo machine = machine_info();
  if (options.json) {
    std::printf("%s\n", json_text(machine).c_str());
  } else {
    print(machine);
  }
  return 0;
}

}  // namespace qattn::command
