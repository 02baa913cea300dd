// The kernels of cuda/sm80 and their launcher.
#include "cuda/attention_launch.hpp"
#include "cuda/sm80.hpp"

namespace qattn::cuda {
namespace {

AttentionKernel compiled_kernel(std::size_t index, Precision precision) {
  constexpr std::array<AttentionKernel (*)(Precision), kCompiledHeadDims.size()> kGet = {
      &sm80_kernel<32>, &sm80_kernel<64>, &sm80_kernel<128>, &sm80_kernel<192>, &sm80_kernel<256>};
  return kGet[index](precision);
}

DecodeKernels decode_kernels(std::size_t index) {
  constexpr std::array<DecodeKernels (*)(), kCompiledHeadDims.size()> kGet = {
      &sm80_decode<32>, &sm80_decode<64>, &sm80_decode<128>, &sm80_decode<192>, &sm80_decode<256>};
  return kGet[index]();
}

void launch_sm80(const core::Problem& problem, const LaunchTarget& target) {
  static AttentionFamily family("cuda/sm80", &compiled_kernel, &decode_kernels);
  family.launch(problem, target);
}

}  // namespace

void run_sm80(const core::Problem& problem, const core::RunContext& context) {
  run(problem, context, &launch_sm80);
}

}  // namespace qattn::cuda
