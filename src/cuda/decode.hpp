// Decoding as the host sees it: few rows against many keys, which are split among blocks.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/attention.hpp"

namespace qattn::cuda {

/// Keys of a split, counted from key 0, where there are seq_k. Nothing else decides, so that a
/// row's bits do not depend on the batch, the heads or the device. Short splits fill the device
/// with few pairs and cut the time of a lone block, about 0.9 us a group (8 heads, 4096 keys: 14 us
/// with splits of 512, 18 with 1024); but a row leaves 4 * head_dim + 8 bytes of each behind, to be
/// written and read again, and blocks begin and end: 32768 keys take 73.5 us with 512, 71.5 with
/// 1024.
constexpr int split_keys(std::int64_t seq_k) { return seq_k <= 16384 ? 512 : 1024; }
static_assert(split_keys(0) % kGroupKeys == 0);

/// Rows that the blocks of the compiled kernels take.
inline constexpr std::array kDecodeRows = {8, 16, 32};

/// With more splits a block of the merge takes one row, else one for each of its warps: a warp has
/// eight splits on their way at a time.
inline constexpr std::uint32_t kMergeSplitsOfWarp = 8;

/// What a row has seen of a split, beside its output.
struct alignas(8) SplitState {
  float max;  // the largest score as in tile::Scores; -infinity: no key
  float sum;  // of the probabilities relative to it, in units of 1 / tile::kOne
};

/// Parameters of a launch. Rows are those of AttentionParams.
struct DecodeParams {
  AttentionParams attention;     // row_blocks: blocks of a pair and split
  float* outputs = nullptr;      // [pair][row][split][compiled head_dim]
  SplitState* states = nullptr;  // [pair][row][split]
  std::uint32_t splits = 1;      // with one, blocks write the result and nothing is merged
  int split_keys = 0;            // of a split
};

/// Tiles of the kernel for one head_dim and 8 * kRowTiles rows. Every choice fits the 99 KB that
/// capability 8.6 and 8.9 grant a block.
template <int kHeadDim, int kRowTiles>
struct DecodePolicy {
  static_assert(kHeadDim % 32 == 0, "the mma takes 32 columns of q and k");
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRows = 8 * kRowTiles;
  static constexpr int kWarpKeys = kGroupKeys / kWarps;
  // The more blocks share a multiprocessor, the less of the time in which one begins or ends is
  // lost: at head_dim 128 and 8 rows four take 3 % less time than two with as many bytes on their
  // way. With many rows its registers allow fewer. With 32 rows 17 to 31 registers are spilled,
  // nearly all around the loop over groups, not in it.
  static constexpr int kBlocksPerMultiprocessor = kHeadDim > 128  ? 2
                                                  : kHeadDim > 64 ? (kRowTiles == 1   ? 4
                                                                     : kRowTiles == 2 ? 3
                                                                                      : 2)
                                                                  : (kRowTiles <= 2 ? 4 : 3);
  // K and V arrive in half groups. Two are being read, the others are on their way: 128 KB a
  // multiprocessor of capability 9.0 at head_dim 128 and at least 96 KB above. 4.3 TB/s times a
  // latency of 1 us are 33 KB.
  static constexpr int kSlotKeys = kGroupKeys / 2;
  static constexpr int kSlots = kHeadDim > 192   ? 5
                                : kHeadDim > 128 ? 7
                                : kHeadDim > 64  ? 14 - 2 * kBlocksPerMultiprocessor
                                                 : 10;
  static constexpr int kSlotBytes = kSlotKeys * kHeadDim;
  // Blocks of 16 columns of V, of all warps and of one.
  static constexpr int kBlocks = kHeadDim / 16;
  static constexpr int kWarpBlocks = (kBlocks + kWarps - 1) / kWarps;

  static constexpr int kQueryBytes = kRows * kHeadDim;
  static constexpr int kProbabilityBytes = 2 * kRows * kGroupKeys;
  static constexpr int kMaximaBytes = kWarps * kRows * 4;
  static constexpr int kSharedBytes =
      kQueryBytes + kProbabilityBytes + kMaximaBytes + kSlots * kSlotBytes;
  static_assert(kSharedBytes <= 99 * 1024, "does not fit capability 8.6 and 8.9");
};

/// A compiled kernel: a __global__ function of one DecodeParams.
struct DecodeKernel {
  const void* function = nullptr;
  int threads = 0;
  int rows = 0;          // of a block
  int shared_bytes = 0;  // dynamic
};

/// The compiled kernels of one head_dim.
struct DecodeKernels {
  std::array<DecodeKernel, kDecodeRows.size()> split;
  DecodeKernel merge;
};

}  // namespace qattn::cuda
