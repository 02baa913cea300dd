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

  /// Matrix descriptor (PTX ISA, "Matrix Descriptor Format") of bytes 32 * step to 32 * step + 31
  /// of the rows from `row`, a multiple of 8, on.
  __device__ static std::uint64_t descriptor(std::uint32_t tile, int row, int step) {
    constexpr std::uint64_t kSwizzle = kSpanBytes == 128 ? 1 : kSpanBytes == 64 ? 2 : 3;
    constexpr std::uint64_t kEightRows = 8 * kSpanBytes / 16;
    constexpr std::uint64_t kLeading = 1;  // not used by swizzled tiles
    const std::uint32_t address =
        tile + static_cast<std::uint32_t>(32 * step / kSpanBytes * kBlockBytes + row * kSpanBytes +
                                          32 * step % kSpanBytes);
    return kSwizzle << 62 | kEightRows << 32 | kLeading << 16 | (address & 0x3FFFFU) >> 4;
  }
};

}  // namespace qattn::cuda::sm90
