// The kernel family cuda/sm90 as the host sees it: its tiles and which kernels exist.
#pragma once

#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "cuda/attention.hpp"

namespace qattn::cuda {

/// Tiles of the kernel for one head_dim, a function of the head_dim alone.
template <int kHeadDim>
struct Sm90Policy {
  static_assert(kHeadDim % 32 == 0, "wgmma takes 32 columns of q and k");
  static constexpr int kConsumers = 2;  // warpgroups that compute, 64 rows each
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // Registers of a thread: 512 per four threads' lanes, 168 each at the start.
  static constexpr int kProducerRegisters = 56;
  static constexpr int kConsumerRegisters = 224;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= 3 * 168);
  static constexpr int kKeySlots = kHeadDim <= 128 ? 3 : 2;
  static constexpr int kValueSlots = 2;
  // Columns of V that a warpgroup multiplies at a time: its sums take half as many registers,
  // beside kHeadDim / 2 for the output.
  static constexpr int kColumns = kHeadDim <= 128 ? kHeadDim : 64;
  // Q, the keys, V in two slots as it lies in memory, V transposed.
  static constexpr int kTileBytes = (kRows + (kKeySlots + 2 + kValueSlots) * kGroupKeys) * kHeadDim;
  static constexpr int kBarrierBytes = 128;
  static constexpr int kAlignment = 1024;  // of the first tile, more than a launch promises
  static constexpr int kSharedBytes = kTileBytes + kBarrierBytes + kAlignment;
  static_assert(kSharedBytes <= 227 * 1024, "does not fit capability 9.0");
};

/// The kernel of one head_dim; instantiated in a translation unit of its own (sm90.cu).
template <int kHeadDim>
AttentionKernel sm90_kernel(Precision precision);

extern template AttentionKernel sm90_kernel<32>(Precision);
extern template AttentionKernel sm90_kernel<64>(Precision);
extern template AttentionKernel sm90_kernel<128>(Precision);
extern template AttentionKernel sm90_kernel<192>(Precision);
extern template AttentionKernel sm90_kernel<256>(Precision);

/// Runs cuda/sm90: the table's RunFunction.
void run_sm90(const core::Problem& problem, const core::RunContext& context);

}  // namespace qattn::cuda
