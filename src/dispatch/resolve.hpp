// From a device and a problem to a selection: what is shared by running, explaining and listing.
#pragma once

#include "dispatch/select.hpp"

namespace qattn::dispatch {

/// Features of a device. Throws Error(device_unavailable) with the reason for a CUDA device that
/// cannot be used.
core::DeviceFeatures device_features(const Device& device);

/// The selection for a problem on a device: table, features, and the forced name from options or,
/// for its own device, from the environment. The result points into its arguments and config().
Selection make_selection(const Device& device, const core::DeviceFeatures& features,
                         const core::Problem* problem, std::string_view forced);

/// The kernel that select() gives, which then runs: asks the OS for the permission that it needs,
/// if any, and selects again where that is refused (`selection` then holds the features that are
/// left). Throws what throw_no_kernel() throws if nothing is left.
const core::Kernel& select_to_run(Selection* selection);

}  // namespace qattn::dispatch
