#include "qattn/introspect.hpp"

#include "core/host_memory.hpp"
#include "core/problem.hpp"
#include "cpu/detect.hpp"
#include "cpu/threads.hpp"
#include "cuda/device.hpp"
#include "dispatch/resolve.hpp"
#include "dispatch/table.hpp"

namespace qattn {
namespace {

// Of any device; empty where it cannot be used.
core::DeviceFeatures features_of(const Device& device) {
  if (device.kind() == Device::Kind::cpu) return cpu::features();
  return {cuda::features(device.ordinal()), {}, {}};
}

}  // namespace

std::vector<KernelStatus> kernels(const Device& device) {
  return core::reporting_exhaustion("kernels", [&]() -> std::vector<KernelStatus> {
    const bool on_cpu = device.kind() == Device::Kind::cpu;
    const core::DeviceFeatures features = features_of(device);
    const std::string device_reason =
        on_cpu ? std::string() : cuda::unusable_reason(device.ordinal());
    dispatch::Selection selection{dispatch::table(), device.kind(), features.have, nullptr, {}};
    selection.withheld = features.withheld;
    selection.withheld_reason = features.reason;
    std::vector<KernelStatus> list;
    for (const core::Kernel& kernel : dispatch::table()) {
      if (kernel.device != device.kind()) continue;
      std::string reason = device_reason.empty() || kernel.run == nullptr
                               ? dispatch::refusal(kernel, selection)
                               : device_reason;
      const bool usable = reason.empty();
      list.push_back({std::string(kernel.name), usable, std::move(reason)});
    }
    return list;
  });
}

Explanation explain(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                    const Int8Tensor& v, const OutputTensor& out, const Options& options) {
  return core::reporting_exhaustion("explain", [&]() -> Explanation {
    const core::Problem problem = core::make_problem(q, k, v, out, options, false);
    const bool on_cpu = device.kind() == Device::Kind::cpu;
    core::DeviceFeatures features = features_of(device);
    if (on_cpu || !features.have.empty()) {
      return dispatch::explain(
          dispatch::make_selection(device, features, &problem, options.kernel));
    }
    // Kernels are passed over for what keeps the device from being used, not for a feature.
    const std::string reason = cuda::unusable_reason(device.ordinal());
    features.withheld =
        core::FeatureSet().with(core::Feature::cuda_sm80).with(core::Feature::cuda_sm90a);
    features.reason = reason;
    Explanation explanation =
        dispatch::explain(dispatch::make_selection(device, features, &problem, options.kernel));
    explanation.kernel.clear();
    explanation.error = "device " + device.name() + " cannot be used: " + reason;
    return explanation;
  });
}

std::string Explanation::to_string() const {
  return core::reporting_exhaustion("to_string", [&]() -> std::string {
    std::string text;
    for (const KernelStatus& status : passed_over) {
      text += "  " + status.name + ": passed over, " + status.reason + "\n";
    }
    if (!kernel.empty()) text += "  " + kernel + ": chosen\n";
    if (!error.empty()) text += "  error: " + error + "\n";
    return text;
  });
}

MachineInfo machine_info() {
  return core::reporting_exhaustion("machine_info", [&]() -> MachineInfo {
    MachineInfo info;
    info.cpu = cpu::cpu_name();
    const core::FeatureSet have = cpu::features().have;
    for (int i = 0; i < core::kFeatureCount; ++i) {
      if (have.has(static_cast<core::Feature>(i))) {
        info.cpu_features.emplace_back(core::kFeatureNames[static_cast<std::size_t>(i)]);
      }
    }
    info.cpu_threads = cpu::default_threads();
    const cuda::Status& status = cuda::status();
    info.cuda = status.reason.empty() ? "available" : status.reason;
    info.cuda_driver = status.driver_version;
    info.cuda_runtime = status.runtime_version;
    info.cuda_devices = cuda::devices();
    return info;
  });
}

}  // namespace qattn
