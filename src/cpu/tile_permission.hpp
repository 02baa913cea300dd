// The permission to use the AMX tile registers. Linux gives it to a process when asked, for good:
// to all of its threads, those that run already included, and to children that it forks
// (Documentation/arch/x86/xstate.rst). Without it the first tile instruction ends the process.
#pragma once

#include <cstdint>
#include <string_view>

namespace qattn::cpu {

/// The OS's answer as far as it is known.
struct TilePermission {
  bool refused = false;
  std::string_view reason;  // why it is refused, for a person; of static storage
};

/// The answer to request_tile_permission(), if there was one. Asks for nothing.
TilePermission tile_permission() noexcept;

/// Asks the OS for the permission, once per process: the first answer counts from then on. The
/// request changes the process: its signal frames grow, so Linux refuses it where a thread has a
/// small alternate signal stack, and refuses small ones afterwards.
TilePermission request_tile_permission();

/// State components (as in XCR0) that the OS gives, some of them on request. Asks for nothing.
std::uint64_t supported_state() noexcept;

}  // namespace qattn::cpu
