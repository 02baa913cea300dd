// Devices and kernels as the command's arguments name them.
#pragma once

#include <string>
#include <vector>

#include "qattn/qattn.hpp"

namespace qattn::command {

/// The device that `device`, "auto", "cpu", "cuda" or "cuda:N", names; "auto" is the best one, or
/// with a forced kernel the one that the kernel is for. Throws InputError for anything else.
Device pick_device(const std::string& device, const std::string& kernel);

/// The CPU and all CUDA devices of this machine.
std::vector<Device> all_devices();

/// kernels(), after every usable one for the CPU has run once: what the OS refuses at a kernel's
/// first run is then known.
std::vector<KernelStatus> tried_kernels(const Device& device);

/// Whether a kernel is the yardstick rather than something to be measured with it.
bool is_reference(const KernelStatus& kernel);

}  // namespace qattn::command
