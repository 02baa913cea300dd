#include "qattn/forward.hpp"

#include "core/host_memory.hpp"
#include "core/problem.hpp"
#include "dispatch/config.hpp"
#include "dispatch/placement.hpp"
#include "dispatch/resolve.hpp"
#include "dispatch/verbose.hpp"

namespace qattn {

namespace {

void run(const Device& device, const Int8Tensor& q, const Int8Tensor& k, const Int8Tensor& v,
         const OutputTensor& out, const Options& options) {
  const core::Problem problem = core::make_problem(q, k, v, out, options);
  const core::DeviceFeatures features = dispatch::device_features(device);
  dispatch::Selection selection =
      dispatch::make_selection(device, features, &problem, options.kernel);
  if (dispatch::select(selection) == nullptr) dispatch::throw_no_kernel(selection);
  if (problem.empty()) return;
  core::RunContext context;
  context.host_memory = dispatch::check_placement(device, q, k, v, out, options);
  const core::Kernel& kernel = dispatch::select_to_run(&selection);
  if (dispatch::config().verbose) dispatch::print_decision_once(device, selection);
  context.device = device;
  context.threads = options.threads;
  context.executor = options.executor;
  context.workspace = options.workspace;
  context.workspace_bytes = options.workspace_bytes;
  kernel.run(problem, context);
}

}  // namespace

void forward(const Device& device, const Int8Tensor& q, const Int8Tensor& k, const Int8Tensor& v,
             const OutputTensor& out, const Options& options) {
  core::reporting_exhaustion("forward", [&] { run(device, q, k, v, out, options); });
}

void forward(const Device& device, const std::int8_t* q, const std::int8_t* k, const std::int8_t* v,
             const float* q_scale, const float* k_scale, const float* v_scale, float* out,
             std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
             bool causal) {
  const Shape shape{batch, seq, heads, head_dim};
  Options options;
  options.mask = causal ? Mask::causal() : Mask::full();
  forward(device, Int8Tensor{q, shape, per_head(q_scale)}, Int8Tensor{k, shape, per_head(k_scale)},
          Int8Tensor{v, shape, per_head(v_scale)}, OutputTensor{out, shape}, options);
}

std::size_t workspace_bytes(const Device& device, const Int8Tensor& q, const Int8Tensor& k,
                            const Int8Tensor& v, const OutputTensor& out, const Options& options) {
  return core::reporting_exhaustion("workspace_bytes", [&]() -> std::size_t {
    const core::Problem problem = core::make_problem(q, k, v, out, options, false);
    const core::DeviceFeatures features = dispatch::device_features(device);
    const dispatch::Selection selection =
        dispatch::make_selection(device, features, &problem, options.kernel);
    const core::Kernel* kernel = dispatch::select(selection);
    if (kernel == nullptr) dispatch::throw_no_kernel(selection);
    if (problem.empty() || kernel->workspace == nullptr) return 0;
    return kernel->workspace(problem);
  });
}

}  // namespace qattn
