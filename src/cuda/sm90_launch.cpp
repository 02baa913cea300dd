// The kernels of cuda/sm90 and their launcher.
#include "cuda/attention_launch.hpp"
#include "cuda/sm90.hpp"

namespace qattn::cuda {
namespace {

AttentionKernel compiled_kernel(std::size_t index, Precision precision) {
  return at_head_dim(index,
                     [precision](auto head_dim) { return sm90_kernel<head_dim>(precision); });
}

DecodeKernels compiled_decode(std::size_t index) {
  return at_head_dim(index, [](auto head_dim) { return sm90_decode<head_dim>(); });
}

void launch_sm90(const core::Problem& problem, const LaunchTarget& target) {
  static AttentionFamily family("cuda/sm90", &compiled_kernel, &compiled_decode);
  family.launch(problem, target);
}

}  // namespace

void run_sm90(const core::Problem& problem, const core::RunContext& context) {
  run(problem, context, &launch_sm90);
}

}  // namespace qattn::cuda
