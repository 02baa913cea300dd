// The kernel family cuda/sm80 as the host sees it: its tiles and which kernels exist.
#pragma once

#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "cuda/attention.hpp"
#include "cuda/decode.hpp"

namespace qattn::cuda {

/// Tiles of the kernel for one head_dim, a function of the head_dim alone. Every choice fits the
/// 99 KB that capability 8.6 and 8.9 grant a block.
template <int kHeadDim>
struct Sm80Policy {
  static_assert(kHeadDim % 32 == 0, "the mma takes 32 columns of q and k");
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = 16 * kWarps;
  // Three or four warps per scheduler hide what two do not. A thread has 168 or 128 registers then,
  // and spills where it is rare; from head_dim 192 on it needs all 255.
  static constexpr int kBlocksPerMultiprocessor = kHeadDim <= 64 ? 4 : kHeadDim <= 128 ? 3 : 2;
  // Tiles of K, and of V, in shared memory. With two of each, loads have the time of half a tile to
  // arrive, and warps wait for each other less.
  static constexpr int kBuffers = kHeadDim <= 128 ? 2 : 1;
  static constexpr int kStreamBytes = 2 * kBuffers * kGroupKeys * kHeadDim + 16;  // and mbarriers
  static constexpr int kSharedBytes = kRows * kHeadDim + kStreamBytes;
  static_assert(kSharedBytes <= 99 * 1024, "does not fit capability 8.6 and 8.9");
};

/// The kernel of one head_dim; instantiated in a translation unit of its own (sm80.cu).
template <int kHeadDim>
AttentionKernel sm80_kernel(Precision precision);

/// Its decode kernels.
template <int kHeadDim>
DecodeKernels sm80_decode();

/// Runs cuda/sm80: the table's RunFunction.
void run_sm80(const core::Problem& problem, const core::RunContext& context);

}  // namespace qattn::cuda
