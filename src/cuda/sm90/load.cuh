// Global memory to tiles in shared memory, at any alignment.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/load.cuh"

namespace qattn::cuda::sm90 {

/// Loads rows first_row to first_row + kRows - 1 of a tile with kThreads threads, of which this is
/// number `thread`. Rows from `valid_rows` on and columns from `head_dim` on become 0;
/// `row_pointer(r)` is called for all rows, and what it gives for rows that are not valid is not
/// read. The caller commits the copies and waits.
template <typename Tile, int kRows, int kThreads, typename RowPointer>
__device__ __forceinline__ void load_rows(std::uint32_t tile, int thread, int first_row,
                                          int valid_rows, int head_dim, Alignment alignment,
                                          RowPointer row_pointer) {
  // Neighbouring threads take neighbouring chunks of a row.
  constexpr int kRowsPerPass = kThreads / Tile::kSpan;
  static_assert(kRows % kRowsPerPass == 0);
  const int chunk = thread % Tile::kSpan;
  const auto copy_row = [&](int row, auto copy) {
    const std::int8_t* from = row_pointer(row) + 16 * chunk;
    const std::uint32_t to = tile + Tile::offset(row, chunk);
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block) {
      const int valid =
          row < valid_rows ? tile::valid_bytes(head_dim, chunk + block * Tile::kSpan) : 0;
      copy(to + block * Tile::kBlockBytes, from + block * Tile::kSpanBytes, valid);
    }
  };
  const int begin = first_row + thread / Tile::kSpan;
  if (alignment == Alignment::bytes_16) {
#pragma unroll
    for (int row = 0; row < kRows; row += kRowsPerPass) copy_row(begin + row, ptx::cp_async_16);
    return;
  }
#pragma unroll 1
  for (int row = 0; row < kRows; row += kRowsPerPass) {
    copy_row(begin + row, [alignment](std::uint32_t to, const std::int8_t* from, int valid) {
      tile::load_unaligned_chunk(to, from, valid, alignment);
    });
  }
}

}  // namespace qattn::cuda::sm90
