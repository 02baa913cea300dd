// The lines of isa.inc as data, and whether this machine grants what a line needs.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "core/features.hpp"
#include "isa.hpp"

namespace qattn::bench {

/// A line of isa.inc.
struct IsaEntry {
  std::string_view row;
  core::FeatureSet needs;
  std::variant<CeilingFunction, ReadFunction, PeerFunction> function;
};

/// The lines for this processor, in their order.
std::span<const IsaEntry> isa_table();

/// Whether CPU and OS grant `needs`. Asks the OS for the permission to use AMX where it is needed.
bool granted(core::FeatureSet needs);

/// The function of the first line of `row` that this machine grants; null if there is none.
template <typename Function>
Function best_of(std::string_view row) {
  for (const IsaEntry& entry : isa_table()) {
    if (entry.row == row && granted(entry.needs)) return std::get<Function>(entry.function);
  }
  return nullptr;
}

}  // namespace qattn::bench
