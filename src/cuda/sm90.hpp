// The kernel family cuda/sm90 as the host sees it: its tiles and which kernels exist.
#pragma once

#include "core/kernel.hpp"
#include "core/problem.hpp"
#include "cuda/attention.hpp"
#include "cuda/decode.hpp"

namespace qattn::cuda {

/// Tiles of the kernel for one head_dim, a function of the head_dim alone.
///
/// A step, one group of keys, is what a warpgroup takes through scores, exponentials and products
/// at a time. Three warpgroups without overlap inside hide more of each other's latencies than two
/// with it: 764 and 615 TFLOP/s (`fast` and `high`, head_dim 128, 16384 keys) against 661 and 576.
template <int kDim>
struct Sm90Policy {
  static_assert(kDim % 32 == 0, "wgmma takes 32 columns of q and k");
  static constexpr int kHeadDim = kDim;
  // Warpgroups that compute, 64 rows each: three where the output leaves them registers enough.
  static constexpr int kConsumers = kHeadDim <= 128 ? 3 : 2;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kKeys = kHeadDim <= 192 ? 128 : 64;  // of a tile
  static constexpr int kGroupTiles = kGroupKeys / kKeys;
  // Two warpgroups compute exponentials by turns, so that one has the tensor cores meanwhile: 7 %
  // at `high`, 3 % at `fast`. Three do better without.
  static constexpr bool kTurns = kConsumers == 2;
  // Registers of a thread; all warpgroups start with an equal share of 512.
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 160 : 232;
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= 512);
  static constexpr int kQuerySlots = 2;  // this block of rows and the next
  // Two groups and more, or what shared memory has room for.
  static constexpr int kKeySlots = kHeadDim == 192 ? 3 : 4;
  static constexpr int kRawSlots = 2;  // V as it lies in memory
  static constexpr int kValueSlots = kHeadDim == 192 ? 2 : 4;
  // Columns of V that a warpgroup multiplies at a time: bytes in two buffers, of which one is
  // multiplied while the other is added to the output, and words in their two planes.
  static constexpr int kByteColumns = kConsumers == 3 ? 32 : 64;
  static constexpr int kWordColumns = 32;
  static constexpr int kQueryBytes = kRows * kHeadDim;
  static constexpr int kTileBytes = kKeys * kHeadDim;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kAlignment = 1024;  // of the first tile, more than a launch promises
  static constexpr int kSharedBytes = kQuerySlots * kQueryBytes +
                                      (kKeySlots + kRawSlots + kValueSlots) * kTileBytes +
                                      kBarrierBytes + kAlignment;
  static_assert(kSharedBytes <= 227 * 1024, "does not fit capability 9.0");
};

/// The kernel of one head_dim; instantiated in a translation unit of its own (sm90.cu).
template <int kHeadDim>
AttentionKernel sm90_kernel(Precision precision);

/// Its decode kernels.
template <int kHeadDim>
DecodeKernels sm90_decode();

/// Runs cuda/sm90: the table's RunFunction.
void run_sm90(const core::Problem& problem, const core::RunContext& context);

}  // namespace qattn::cuda
