#include "dispatch/resolve.hpp"

#include "cpu/detect.hpp"
#include "cuda/device.hpp"
#include "dispatch/config.hpp"
#include "dispatch/table.hpp"
#include "qattn/error.hpp"

namespace qattn::dispatch {
namespace {

// QATTN_KERNEL counts for the device that its kernel is for; an unknown name counts everywhere, so
// that a typing error cannot go unnoticed.
std::string_view forced_by_environment(const Device& device) {
  const std::string& name = config().kernel;
  if (name.empty()) return {};
  for (const core::Kernel& kernel : table()) {
    if (kernel.name == name && kernel.device != device.kind()) return {};
  }
  return name;
}

}  // namespace

core::DeviceFeatures device_features(const Device& device) {
  if (device.kind() == Device::Kind::cpu) return cpu::features();
  const core::FeatureSet have = cuda::features(device.ordinal());
  if (have.empty()) {
    throw Error(ErrorCode::device_unavailable, "device " + device.name() + " cannot be used: " +
                                                   cuda::unusable_reason(device.ordinal()));
  }
  return {have, {}, {}};
}

Selection make_selection(const Device& device, const core::DeviceFeatures& features,
                         const core::Problem* problem, std::string_view forced) {
  Selection selection{table(), device.kind(), features.have, problem, forced};
  selection.withheld = features.withheld;
  selection.withheld_reason = features.reason;
  if (forced.empty()) {
    selection.forced = forced_by_environment(device);
    selection.forced_by = "environment variable QATTN_KERNEL";
  }
  return selection;
}

const core::Kernel& select_to_run(Selection* selection) {
  const core::Kernel* kernel = select(*selection);
  if (kernel != nullptr && kernel->needs.has(core::Feature::amx_tile)) {
    const core::DeviceFeatures granted = cpu::features_with_tile_permission();
    selection->have = granted.have;
    selection->withheld = granted.withheld;
    selection->withheld_reason = granted.reason;
    kernel = select(*selection);
  }
  if (kernel == nullptr) throw_no_kernel(*selection);
  return *kernel;
}

}  // namespace qattn::dispatch
