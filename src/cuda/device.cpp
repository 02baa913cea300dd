// CUDA devices of this machine, looked at through the driver once per process.
#include "cuda/device.hpp"

#include <cstdlib>

#include <cuda_runtime_api.h>

#include "cuda/driver_api.hpp"
#include "cuda/process_mark.hpp"
#include "cuda/properties.hpp"

// The architectures that cuda/sm80 is compiled for, from its row of the kernel table.
#ifndef QATTN_SM80_ARCHITECTURES
#define QATTN_SM80_ARCHITECTURES "80-real;90-real;80-virtual"
#endif

namespace qattn::cuda {
namespace {

struct Machine {
  Status status;
  std::vector<CudaDeviceInfo> devices;
  std::vector<DeviceProperties> properties;
  std::vector<core::FeatureSet> features;
  std::vector<std::string> unusable;  // why each device cannot be used; empty if it can
  ProcessMark process;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string no_device_text() {
  // getenv: nothing in the library changes the environment.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return "the CUDA driver finds no device";
  return std::string("no CUDA device is visible (CUDA_VISIBLE_DEVICES is \"") + visible + "\")";
}

std::string init_failure_text(const DriverApi& driver, CUresult result) {
  if (result == CUDA_ERROR_NO_DEVICE) return no_device_text();
  const char* text = nullptr;
  driver.get_error_string(result, &text);
  std::string reason = std::string("the CUDA driver cannot be initialised: ") +
                       (text != nullptr ? text : "error " + std::to_string(result));
  if (result == CUDA_ERROR_NOT_INITIALIZED) {
    reason += " (as in a process that was forked from one that uses CUDA)";
  }
  return reason;
}

int attribute(const DriverApi& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return driver.device_get_attribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

bool sm80_runs_on(int capability) noexcept {
  return capability >= 80 && has_code_for(QATTN_SM80_ARCHITECTURES, capability);
}

std::string unusable_text(const CudaDeviceInfo& info, int capability) {
  const std::string is = info.name + " has compute capability " +
                         std::to_string(info.capability_major) + "." +
                         std::to_string(info.capability_minor);
  if (capability < 80) return is + " (needed: 8.0 or later)";
  if (!sm80_runs_on(capability)) {
    return is + ", for which this build has no code (built for " QATTN_SM80_ARCHITECTURES ")";
  }
  return {};
}

void add_device(Machine& machine, const DriverApi& driver, int ordinal) {
  CudaDeviceInfo info;
  DeviceProperties properties;
  info.ordinal = ordinal;
  CUdevice device = 0;
  if (driver.device_get(&device, ordinal) == CUDA_SUCCESS) {
    properties.handle = device;
    char name[256] = {};
    if (driver.device_get_name(name, sizeof name - 1, device) == CUDA_SUCCESS) info.name = name;
    driver.device_total_mem(&info.memory_bytes, device);
    info.capability_major = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    info.capability_minor = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    info.multiprocessors = attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    properties.capability = 10 * info.capability_major + info.capability_minor;
    properties.l2_bytes = attribute(driver, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    properties.multiprocessors = info.multiprocessors;
    properties.block_shared_bytes =
        attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  }
  core::FeatureSet features;
  if (sm80_runs_on(properties.capability)) features = features.with(core::Feature::cuda_sm80);
  if (properties.capability == 90) features = features.with(core::Feature::cuda_sm90a);
  machine.features.push_back(features);
  machine.unusable.push_back(unusable_text(info, properties.capability));
  machine.devices.push_back(info);
  machine.properties.push_back(properties);
}

void look(Machine& machine) {
  Status& status = machine.status;
  status.runtime_version = CUDART_VERSION;
  const DriverApi* driver = load_driver();
  if (driver == nullptr) {
    status.reason = "no CUDA driver is installed (libcuda.so.1 was not found or is too old)";
    return;
  }
  driver->driver_get_version(&status.driver_version);
  // A driver serves every runtime of its own major version and older ones.
  if (status.driver_version / 1000 < CUDART_VERSION / 1000) {
    status.reason = "the CUDA driver is too old: it supports CUDA " +
                    version_text(status.driver_version) + ", this build needs CUDA " +
                    std::to_string(CUDART_VERSION / 1000) + ".0 or later";
    return;
  }
  const CUresult result = driver->init(0);
  if (result != CUDA_SUCCESS) {
    status.reason = init_failure_text(*driver, result);
    return;
  }
  int count = 0;
  if (driver->device_get_count(&count) != CUDA_SUCCESS || count == 0) {
    status.reason = no_device_text();
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) add_device(machine, *driver, ordinal);
  status.device_count = count;
}

// Never destroyed: it is asked by whatever runs at exit.
const Machine& machine() {
  static const Machine& seen = *[] {
    auto* machine = new Machine;
    look(*machine);
    return machine;
  }();
  if (seen.status.device_count == 0 || seen.process.is_here()) return seen;
  // CUDA does not survive a fork.
  static const Machine& forked = *[] {
    auto* child = new Machine;
    child->status.runtime_version = CUDART_VERSION;
    child->status.driver_version = seen.status.driver_version;
    child->status.reason =
        "this process was forked from one that had initialised CUDA; use CUDA in only one of them";
    return child;
  }();
  return forked;
}

bool exists(const Machine& machine, int ordinal) noexcept {
  return ordinal >= 0 && ordinal < machine.status.device_count;
}

}  // namespace

const Status& status() { return machine().status; }

core::FeatureSet features(int ordinal) {
  const Machine& here = machine();
  return exists(here, ordinal) ? here.features[static_cast<std::size_t>(ordinal)]
                               : core::FeatureSet{};
}

std::string unusable_reason(int ordinal) {
  const Machine& here = machine();
  if (!here.status.reason.empty()) return here.status.reason;
  if (!exists(here, ordinal)) {
    return "there is no such device (visible: 0 to " +
           std::to_string(here.status.device_count - 1) + ")";
  }
  return here.unusable[static_cast<std::size_t>(ordinal)];
}

std::vector<CudaDeviceInfo> devices() { return machine().devices; }

bool is_usable(int ordinal) {
  const Machine& here = machine();
  return here.status.reason.empty() && exists(here, ordinal) &&
         here.unusable[static_cast<std::size_t>(ordinal)].empty();
}

const DeviceProperties& properties(int ordinal) {
  static constexpr DeviceProperties kNone;
  const Machine& here = machine();
  return exists(here, ordinal) ? here.properties[static_cast<std::size_t>(ordinal)] : kNone;
}

}  // namespace qattn::cuda
