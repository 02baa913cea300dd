// What the CPU and the OS grant.
#pragma once

#include <cstdint>
#include <string>

#include "core/features.hpp"

namespace qattn::cpu {

/// The registers that detection reads, so that tests can put other machines in their place.
struct CpuidLeaves {
  std::uint32_t max_leaf = 0;
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf1_edx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  // 0 where the OS does not enable XSAVE
  // Tile palettes: the highest one, and the geometry of palette 1.
  std::uint32_t leaf1d_eax = 0;
  std::uint32_t leaf1d_1_eax = 0;
  std::uint32_t leaf1d_1_ebx = 0;
  std::uint32_t leaf1d_1_ecx = 0;
  std::uint64_t supported_state = 0;  // what the OS gives on request, as bits of XCR0
};

/// Features that `leaves` grant: the instruction set and the OS's saving of its registers both. AMX
/// that the processor advertises without all that it takes is withheld, with a reason.
core::DeviceFeatures features_from_cpuid(const CpuidLeaves& leaves) noexcept;

/// Features of this machine: read once, but AMX is withheld once the OS has refused the permission.
/// Asks for nothing.
core::DeviceFeatures features() noexcept;

/// The same, after the OS was asked for the permission to use tile registers (at the first call).
core::DeviceFeatures features_with_tile_permission();

/// Brand string of the processor, or the architecture's name.
std::string cpu_name();

}  // namespace qattn::cpu
