// How many OpenMP threads a call may use.
#pragma once

#include <cstdint>

namespace qattn::cpu {

/// Threads that OpenMP would use for a large problem, its settings and the affinity mask applied.
int default_threads() noexcept;

/// At most `requested` threads (0: what OpenMP would use), but 1 inside a parallel region of the
/// caller's and in a child process: libgomp's threads do not survive a fork, and starting a team
/// there hangs.
std::int64_t usable_threads(int requested) noexcept;

}  // namespace qattn::cpu
