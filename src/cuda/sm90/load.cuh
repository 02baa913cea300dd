// Global memory to tiles in shared memory, at any alignment.
#pragma once

#include <cstdint>

#include "cuda/attention.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/load.cuh"

namespace qattn::cuda::sm90 {

/// The part of a tile that a warp loads: rows from `first_row` and blocks of columns from
/// `first_block` on.
struct TilePart {
  int first_row;
  int first_block;
};

/// Loads kRows rows and kBlocks blocks of columns of a tile with the threads of a warp. Rows from
/// `valid_rows` on and columns from `head_dim` on become 0; `row_pointer(r)` is called for all
/// rows, and what it gives for rows that are not valid is not read. The caller commits the copies
/// and waits.
template <typename Tile, int kRows, int kBlocks, typename RowPointer>
__device__ __forceinline__ void load_part(std::uint32_t tile, const TilePart& part, int valid_rows,
                                          int head_dim, Alignment alignment,
                                          RowPointer row_pointer) {
  // Neighbouring threads take neighbouring chunks of a row.
  constexpr int kRowsPerPass = 32 / Tile::kSpan;
  static_assert(kRows % kRowsPerPass == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_chunk = part.first_block * Tile::kSpan + lane % Tile::kSpan;
  const auto copy_row = [&](int row, auto copy) {
    const std::int8_t* from = row_pointer(row) + 16 * first_chunk;
    const std::uint32_t to = tile + Tile::offset(row, first_chunk);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int valid =
          row < valid_rows ? tile::valid_bytes(head_dim, first_chunk + block * Tile::kSpan) : 0;
      copy(to + block * Tile::kBlockBytes, from + block * Tile::kSpanBytes, valid);
    }
  };
  const int begin = part.first_row + lane / Tile::kSpan;
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
