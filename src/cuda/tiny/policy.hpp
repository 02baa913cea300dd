// Tiles of the kernel for tiny problems, which all families share.
#pragma once

#include "cuda/attention.hpp"

namespace qattn::cuda {

/// Whether launches of the tiny kernel start while the kernel before them in the stream still runs
/// (programmatic dependent launch). It hides a launch's latency behind that kernel's end.
inline constexpr bool kTinyOverlapsLaunches = false;

/// A block computes 16 rows; four warps share the one group of keys, so that all keys are in
/// flight, and multiplied, at once. One more warp computes the factors of the rows.
template <int kHeadDim>
struct TinyPolicy {
  static constexpr int kRows = kTinyRows;
  static constexpr int kWarps = 4;  // with keys
  static constexpr int kThreads = 32 * (kWarps + 1);
  static constexpr int kKeys = kGroupKeys / kWarps;   // of a warp
  static constexpr int kBlocksPerMultiprocessor = 3;  // 136 registers, more than it needs
  // Columns of the output that are joined at a time: all of them where their sums fit beside V.
  static constexpr int kColumns = kHeadDim <= 64 ? kHeadDim : kHeadDim == 192 ? 96 : kHeadDim / 2;
  static_assert(kColumns % 16 == 0 && kColumns <= 128 && kHeadDim % kColumns == 0);
  // Integers of a row of sums; the 16 keep rows of neighbouring lanes in different banks.
  static constexpr int kSumStride = kColumns + 16;

  // A warp's own memory: its keys, a copy of the queries, later its sums; then V.
  static constexpr int kKeyBytes = kKeys * kHeadDim;
  static constexpr int kQueryBytes = kRows * kHeadDim;
  static constexpr int kSumBytes = 4 * kRows * kSumStride;
  static constexpr int kFirstBytes =
      kSumBytes > kKeyBytes + kQueryBytes ? kSumBytes : kKeyBytes + kQueryBytes;
  static constexpr int kWarpBytes = kFirstBytes + kKeyBytes;
  static constexpr int kExchangeBytes = 1024;
  static constexpr int kSharedBytes = kExchangeBytes + kWarps * kWarpBytes;
  static_assert(kFirstBytes % 128 == 0 && kWarpBytes % 128 == 0, "tiles start on 128 bytes");
  static_assert(kSharedBytes <= 99 * 1024, "does not fit capability 8.6 and 8.9");
};

}  // namespace qattn::cuda
