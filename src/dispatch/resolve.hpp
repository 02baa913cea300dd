// From a device and a problem to a selection: what is shared by running, explaining and listing.
#pragma once

#include "dispatch/select.hpp"

namespace qattn::dispatch {

/// Features of a device. Throws Error(device_unavailable) with the reason for a CUDA device that
/// cannot be used.
core::FeatureSet device_features(const Device& device);

/// The selection for a problem on a device: table, features, and the forced name from options or,
/// for its own device, from the environment. The result points into its arguments and config().
Selection make_selection(const Device& device, core::FeatureSet have, const core::Problem* problem,
                         std::string_view forced);

}  // namespace qattn::dispatch
