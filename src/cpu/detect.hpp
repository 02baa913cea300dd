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
};

/// Features that `leaves` grant: the instruction set and the OS's saving of its registers both.
core::FeatureSet features_from_cpuid(const CpuidLeaves& leaves) noexcept;

/// Features of this machine, read once.
core::FeatureSet features() noexcept;

/// Brand string of the processor, or the architecture's name.
std::string cpu_name();

}  // namespace qattn::cpu
