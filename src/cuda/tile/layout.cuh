// Where the rows of a tile lie in shared memory.
#pragma once

#include <cstdint>

namespace qattn::cuda::tile {

/// A tile of rows of kHeadDim bytes, in chunks of 16. A row's chunks are permuted by an XOR with
/// low bits of the row number, so that the same chunk of eight consecutive rows (what ldmatrix
/// reads at once) covers all 32 banks.
template <int kHeadDim>
struct Layout {
  static constexpr int kChunks = kHeadDim / 16;
  // Largest power of two that divides the chunks of a row, at most the 8 chunks of 32 banks.
  static constexpr int kSpan = (kChunks & -kChunks) < 8 ? (kChunks & -kChunks) : 8;
  // Rows whose chunks differ in banks without a permutation share one XOR value.
  static constexpr int kRowsPerXor = 8 / kSpan;

  __device__ static constexpr int xor_of_row(int row) { return row / kRowsPerXor % kSpan; }

  /// Byte offset of a chunk.
  __device__ static constexpr int offset(int row, int chunk) {
    return row * kHeadDim + (chunk ^ xor_of_row(row)) * 16;
  }
  /// Moves an address of chunk c < 2 of some row to chunk c + `chunk` of that row, `chunk` even; or
  /// from chunk 0 to any. Valid where tiles start at a multiple of kSpan * 16 bytes.
  __device__ static constexpr std::uint32_t advance(std::uint32_t address, int chunk) {
    return (address ^ static_cast<std::uint32_t>(chunk % kSpan * 16)) +
           static_cast<std::uint32_t>(chunk / kSpan * kSpan * 16);
  }
};

}  // namespace qattn::cuda::tile
