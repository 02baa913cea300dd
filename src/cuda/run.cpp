#include "cuda/run.hpp"

#include "cuda/device_guard.hpp"
#include "cuda/staging.hpp"

namespace qattn::cuda {

void run(const core::Problem& problem, const core::RunContext& context, Launcher launch) {
  if (problem.empty()) return;
  const int ordinal = context.device.ordinal();
  const DeviceGuard guard(ordinal);
  const LaunchTarget target = {ordinal, static_cast<cudaStream_t>(context.device.stream()),
                               context.workspace, context.workspace_bytes, context.threads};
  if (context.host_memory) {
    run_staged(problem, target, launch);
  } else {
    launch(problem, target);
  }
}

}  // namespace qattn::cuda
