// Problems whose tensors lie in host memory.
#pragma once

#include "cuda/run.hpp"

namespace qattn::cuda {

/// Copies the inputs to the device, launches, copies the results back and waits. Of the caller's
/// output only the elements of `out` and `lse` are written, nothing between its rows. An error
/// while the stream is being captured. Throws Error(unsupported | out_of_memory | cuda).
void run_staged(const core::Problem& problem, const LaunchTarget& target, Launcher launch);

}  // namespace qattn::cuda
