// The kernel table as C++ data, made from kernels.inc.
#pragma once

#include <span>

#include "core/kernel.hpp"

namespace qattn::dispatch {

/// Every kernel that the library knows, best first within a device, those that this build lacks
/// included (Kernel::run is null there).
std::span<const core::Kernel> table() noexcept;

}  // namespace qattn::dispatch
