// Tiles in shared memory as wgmma reads them.
#pragma once

#include <cstdint>

namespace qattn::cuda::sm90 {

/// kRows rows of kWidth bytes along the dimension that is summed over. Columns are cut into blocks
/// of kSpanBytes, the widest swizzle that divides the width; within a block rows follow each other
/// and the 16-byte chunks of a row are permuted by an XOR with the row number, so that neither the
/// 8 rows that ldmatrix or wgmma takes at once nor a row meet in a bank. Tiles start at a multiple
/// of 1024 bytes.
template <int kWidth, int kRows>
struct Tile {
  static_assert(kWidth % 32 == 0 && kRows % 8 == 0);
  static constexpr int kSpanBytes = kWidth % 128 == 0 ? 128 : kWidth % 64 == 0 ? 64 : 32;
  static constexpr int kSpan = kSpanBytes / 16;  // chunks
  static constexpr int kBlocks = kWidth / kSpanBytes;
  static constexpr int kBlockBytes = kRows * kSpanBytes;
  static constexpr int kBytes = kRows * kWidth;

  /// Byte offset of a chunk.
  __device__ static constexpr int offset(int row, int chunk) {
    return chunk / kSpan * kBlockBytes + row * kSpanBytes +
           ((chunk % kSpan) ^ (row / (8 / kSpan) % kSpan)) * 16;
  }

  /// From the address of chunk c of a row to that of chunk c + `chunk`, where c and `chunk` have no
  /// bit in common. Written so that nothing but the address itself varies: what a loop adds to it
  /// is constant.
  __device__ static constexpr std::uint32_t advance(std::uint32_t address, int chunk) {
    return (address ^ static_cast<std::uint32_t>(chunk % kSpan * 16)) +
           static_cast<std::uint32_t>(chunk / kSpan * kBlockBytes);
  }

  /// Matrix descriptor (PTX ISA, "Matrix Descriptor Format") of a K-major operand: bytes 32 * step
  /// to 32 * step + 31, along which the product sums, of the rows from `row`, a multiple of 8, on.
  __device__ static std::uint64_t k_major(std::uint32_t tile, int row, int step) {
    return describe(
        tile, 32 * step / kSpanBytes * kBlockBytes + row * kSpanBytes + 32 * step % kSpanBytes);
  }

 private:
  /// The offset is added last, to a word that all descriptors of the tile share: one instruction
  /// for each instead of five. Shared addresses are below 2^18, so that nothing carries.
  __device__ static std::uint64_t describe(std::uint32_t tile, int offset) {
    constexpr std::uint32_t kLeading = 1;  // not used by swizzled K-major operands
    constexpr std::uint32_t kSwizzle = kSpanBytes == 128 ? 1 : kSpanBytes == 64 ? 2 : 3;
    constexpr std::uint32_t kEightRows = 8 * kSpanBytes / 16;
    const std::uint32_t low =
        (kLeading << 16 | tile >> 4) + static_cast<std::uint32_t>(offset) / 16;
    return std::uint64_t{kSwizzle << 30 | kEightRows} << 32 | low;
  }
};

}  // namespace qattn::cuda::sm90
