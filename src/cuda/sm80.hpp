// The kernel family cuda/sm80 as the host sees it: its tiles and which kernels exist.
#pragma once

#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "cuda/attention.hpp"

namespace qattn::cuda {

/// Tiles of the kernel for one head_dim, a function of the head_dim alone. Every choice fits the
/// 99 KB that capability 8.6 and 8.9 grant a block.
template <int kHeadDim>
struct Sm80Policy {
  static_assert(kHeadDim % 32 == 0, "the mma takes 32 columns of q and k");
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = 16 * kWarps;
  static constexpr int kBlocksPerMultiprocessor = 2;  // 255 registers a thread: nearly no spills
  // K and V tiles in flight: with three, a load has a whole key group of time to arrive.
  static constexpr int kSlots = kHeadDim <= 192 ? 3 : 2;
  static constexpr int kSharedBytes = (kRows + kSlots * kGroupKeys) * kHeadDim;
  static_assert(kSharedBytes <= 99 * 1024, "does not fit capability 8.6 and 8.9");
};

/// The kernel of one head_dim; instantiated in a translation unit of its own (sm80.cu).
template <int kHeadDim>
AttentionKernel sm80_kernel(Precision precision);

extern template AttentionKernel sm80_kernel<32>(Precision);
extern template AttentionKernel sm80_kernel<64>(Precision);
extern template AttentionKernel sm80_kernel<128>(Precision);
extern template AttentionKernel sm80_kernel<192>(Precision);
extern template AttentionKernel sm80_kernel<256>(Precision);

/// Runs cuda/sm80: the table's RunFunction.
void run_sm80(const core::Problem& problem, const core::RunContext& context);

}  // namespace qattn::cuda
