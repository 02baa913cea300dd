// Large problems in host memory: sent, computed and fetched part by part, all at the same time.
#pragma once

#include "cuda/run.hpp"
#include "cuda/staging/plan.hpp"

namespace qattn::cuda::staging {

/// Runs a plan: threads of this call copy it through page-locked buffers, or directly where the
/// caller's memory is page-locked. What the caller's stream holds is done first; nothing is left in
/// flight, on an error either. False, and nothing has been written, where there are no threads or
/// no page-locked memory to be had. Throws Error.
bool run_in_pipeline(const Plan& plan, const LaunchTarget& target, Launcher launch);

}  // namespace qattn::cuda::staging
